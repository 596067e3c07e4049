CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Name of the rule, unique; chosen by its author',
  subscriber STRING NOT NULL COMMENT 'Host that receives what matches; a row of hosts',
  format STRING NOT NULL COMMENT 'Message format the filter is written for, for example itch',
  filter STRING NOT NULL COMMENT 'The rule: a condition, and optionally : fwd(host, ...) in place of the subscriber',
  enabled BOOLEAN NOT NULL COMMENT 'A rule that is not enabled matches nothing',
  updated_by STRING COMMENT 'Who wrote the row',
  updated_at TIMESTAMP COMMENT 'When'
)
USING delta
COMMENT 'One row is one rule: who wants which events. People write this table; see docs/subscriptions.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.id_not_empty' = 'length(id) > 0'
)
