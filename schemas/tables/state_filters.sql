CREATE TABLE IF NOT EXISTS ${table} (
  name STRING NOT NULL COMMENT 'Name of the filter. Replicas of the state SOURCE?NAME receive only what the filter selects',
  source STRING NOT NULL COMMENT 'Table or topic that jobs/state_stream.py publishes',
  filter STRING NOT NULL COMMENT 'Condition on the columns of the source, in the language of subscriptions',
  enabled BOOLEAN NOT NULL COMMENT 'False: the filter selects nothing',
  updated_by STRING COMMENT 'Author of the row',
  updated_at TIMESTAMP COMMENT 'Time of the edit'
)
USING delta
COMMENT 'One row per filter on replicated states, which selects the rows or records that replicas receive. Edited by people; see docs/explanation/replicated-state.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.name_given' = 'length(trim(name)) > 0'
)
