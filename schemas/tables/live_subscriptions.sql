CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Rule in subscriptions',
  subscriber STRING NOT NULL COMMENT 'Host that receives matching events, unless the rule names others',
  filter STRING NOT NULL COMMENT 'Text of the live rule',
  since_version BIGINT NOT NULL COMMENT 'Version of subscriptions since which the rule has been live in this form',
  since TIMESTAMP NOT NULL COMMENT 'Time at which the plan was computed that made the rule live',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'Live rules, and since when they have been live. The view subscription_matches of run_sql counts the matches of each rule.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
