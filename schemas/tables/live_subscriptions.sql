CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Rule in subscriptions',
  subscriber STRING NOT NULL COMMENT 'Host that receives matching events, unless the rule names others',
  filter STRING NOT NULL COMMENT 'Text of the live rule',
  since_version BIGINT NOT NULL COMMENT 'Version of subscriptions with which the rule became live in this form',
  since TIMESTAMP NOT NULL COMMENT 'Time at which the plan with which the rule became live was computed',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'One row per live rule, with the version and the time with which it became live. The view subscription_matches of run_sql counts the matches of each rule.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
