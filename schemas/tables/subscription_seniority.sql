CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Rule in subscriptions',
  subscriber STRING NOT NULL COMMENT 'Subscriber of the rule',
  since_version BIGINT NOT NULL COMMENT 'Version of subscriptions since which it has a row with this id and subscriber; in a copy of the tables that counts its versions from 0 again, later pairs have higher numbers all the same'
)
USING delta
COMMENT 'The order in which rules came into subscriptions, one row for each id and subscriber. It decides who keeps an id and who is beyond a quota.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
