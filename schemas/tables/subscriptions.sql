CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Unique name of the rule, chosen by its author',
  subscriber STRING NOT NULL COMMENT 'Host that receives matching events; a row of hosts',
  format STRING NOT NULL COMMENT 'Message format of the filter, for example itch',
  filter STRING NOT NULL COMMENT 'The rule: a condition, optionally followed by : fwd(host, ...) to replace the subscriber',
  enabled BOOLEAN NOT NULL COMMENT 'False: the rule matches nothing',
  updated_by STRING COMMENT 'Author of the row',
  updated_at TIMESTAMP COMMENT 'Time of the edit'
)
USING delta
COMMENT 'One row per rule, which selects the events that a host receives. Edited by people; see docs/reference/rule-language.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.id_not_empty' = 'length(id) > 0'
)
