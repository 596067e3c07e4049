CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Rule in subscriptions',
  code STRING NOT NULL COMMENT 'Stable code of the warning, for example SUBSCRIPTION.NEVER_TRUE',
  line INT COMMENT 'Line of the filter text, from 1',
  column INT COMMENT 'Column, from 1',
  message STRING NOT NULL COMMENT 'What is most likely not meant, and what to write instead',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'Rules that are live and most likely not what their author means.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
