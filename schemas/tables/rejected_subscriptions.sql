CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Rule in subscriptions, or name of a grant or an advertisement',
  subscriber STRING COMMENT 'Subscriber of the rule; null for a grant or an advertisement',
  code STRING NOT NULL COMMENT 'Stable code of the error, for example SUBSCRIPTION.UNKNOWN_FIELD',
  line INT COMMENT 'Line of the filter text, starting at 1',
  column INT COMMENT 'Column of the line, starting at 1',
  message STRING NOT NULL COMMENT 'Description of the error and how to correct it',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'Rules that did not compile, for one version of subscriptions. All other rules are live.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
