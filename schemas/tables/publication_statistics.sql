CREATE TABLE IF NOT EXISTS ${table} (
  batch_id BIGINT NOT NULL COMMENT 'Number of the micro-batch of the stream',
  publisher STRING NOT NULL COMMENT 'Host through whose link the notifications entered: the sending host, or the ingress of the location',
  receivers ARRAY<STRING> NOT NULL COMMENT 'All hosts that received each of these notifications, sorted',
  notifications BIGINT NOT NULL COMMENT 'Number of notifications; a notification that was sent in several frames counts once',
  messages BIGINT NOT NULL COMMENT 'Number of messages in these notifications',
  datagram_bytes BIGINT NOT NULL COMMENT 'Bytes of their IPv4 datagrams, without Ethernet header and stack',
  recorded_at TIMESTAMP NOT NULL COMMENT 'End of the batch'
)
USING delta
COMMENT 'Notifications sent to each set of receivers in each batch. Retuning replays them.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
