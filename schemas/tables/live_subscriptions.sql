CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Rule in subscriptions',
  subscriber STRING NOT NULL COMMENT 'Host that receives what matches, unless the rule says others',
  filter STRING NOT NULL COMMENT 'The rule, as it is live',
  since_version BIGINT NOT NULL COMMENT 'Version of subscriptions since which it is live as it is',
  since TIMESTAMP NOT NULL COMMENT 'When the plan was made that it went live with',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'Rules that are live, and since when. The view subscription_matches of run_sql counts what each has matched.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
