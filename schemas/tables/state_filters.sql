CREATE TABLE IF NOT EXISTS ${table} (
  name STRING NOT NULL COMMENT 'Name of the filter; replicas of the state SOURCE?NAME get what it lets pass',
  source STRING NOT NULL COMMENT 'What is filtered: the table or topic that a jobs/state_stream.py publishes',
  filter STRING NOT NULL COMMENT 'A condition on its columns, in the language of subscriptions',
  enabled BOOLEAN NOT NULL COMMENT 'What is not enabled lets nothing pass',
  updated_by STRING COMMENT 'Who wrote the row',
  updated_at TIMESTAMP COMMENT 'When'
)
USING delta
COMMENT 'One row is one filter on replicated states: which rows or records its replicas get. People write this table; see docs/states.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.name_given' = 'length(trim(name)) > 0'
)
