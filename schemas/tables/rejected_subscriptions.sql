CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Rule in subscriptions, or a grant or an advertisement',
  subscriber STRING COMMENT 'Subscriber of the rule; null for a grant or an advertisement',
  code STRING NOT NULL COMMENT 'Stable code of the error, for example SUBSCRIPTION.UNKNOWN_FIELD',
  line INT COMMENT 'Line of the filter text, from 1',
  column INT COMMENT 'Column, from 1',
  message STRING NOT NULL COMMENT 'What is wrong and what to do',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'Rules that did not compile, as of one version of subscriptions; all others are live.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
