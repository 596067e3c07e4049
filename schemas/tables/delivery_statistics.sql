CREATE TABLE IF NOT EXISTS ${table} (
  batch_id BIGINT NOT NULL COMMENT 'Number of the micro-batch of the stream',
  publisher STRING NOT NULL COMMENT 'Sending host',
  subscriber STRING NOT NULL COMMENT 'Receiving host',
  notifications BIGINT NOT NULL COMMENT 'Number of frames',
  messages BIGINT NOT NULL COMMENT 'Number of messages in these frames',
  bytes BIGINT NOT NULL COMMENT 'Bytes of these frames as sent by the publisher',
  recorded_at TIMESTAMP NOT NULL COMMENT 'End of the batch'
)
USING delta
COMMENT 'Notifications sent to each subscriber in each batch.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
