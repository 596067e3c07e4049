CREATE TABLE IF NOT EXISTS ${table} (
  batch_id BIGINT NOT NULL COMMENT 'Micro-batch of the stream',
  publisher STRING NOT NULL COMMENT 'Host by whose link they entered: the one that sent, or the ingress of the place',
  receivers ARRAY<STRING> NOT NULL COMMENT 'All hosts that each of these notifications went to, sorted',
  notifications BIGINT NOT NULL COMMENT 'How many; one that left in several frames, with a stack each, counts once',
  messages BIGINT NOT NULL COMMENT 'Messages in them',
  datagram_bytes BIGINT NOT NULL COMMENT 'Bytes of their IPv4 datagrams, without Ethernet header and stack',
  recorded_at TIMESTAMP NOT NULL COMMENT 'End of the batch'
)
USING delta
COMMENT 'Notifications sent to each set of receivers, by batch: what retuning replays.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
