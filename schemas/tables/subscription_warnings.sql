CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Rule in subscriptions',
  code STRING NOT NULL COMMENT 'Stable code of the warning, for example SUBSCRIPTION.NEVER_TRUE',
  line INT COMMENT 'Line of the filter text, starting at 1',
  column INT COMMENT 'Column of the line, starting at 1',
  message STRING NOT NULL COMMENT 'Description of the probable mistake, and a suggestion',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'Live rules that probably do not do what their author intended.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
