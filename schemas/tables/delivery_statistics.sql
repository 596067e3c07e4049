CREATE TABLE IF NOT EXISTS ${table} (
  batch_id BIGINT NOT NULL COMMENT 'Micro-batch of the stream',
  publisher STRING NOT NULL COMMENT 'Host that sent',
  subscriber STRING NOT NULL COMMENT 'Host that receives',
  notifications BIGINT NOT NULL COMMENT 'Frames',
  messages BIGINT NOT NULL COMMENT 'Messages in them',
  bytes BIGINT NOT NULL COMMENT 'Bytes of those frames as sent by the publisher',
  recorded_at TIMESTAMP NOT NULL COMMENT 'End of the batch'
)
USING delta
COMMENT 'Notifications sent to each subscriber, by batch.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
