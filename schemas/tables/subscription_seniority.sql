CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Rule in subscriptions',
  subscriber STRING NOT NULL COMMENT 'Subscriber of the rule',
  since_version BIGINT NOT NULL COMMENT 'Version of subscriptions in which a row with this id and subscriber was added. If the versions of a copied table start at 0 again, pairs that are added later still get higher numbers'
)
USING delta
COMMENT 'The order in which rules were added to subscriptions, with one row per id and subscriber. It decides which row keeps an id and which rules exceed a quota.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
