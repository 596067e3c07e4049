CREATE TABLE IF NOT EXISTS ${table} (
  state INT NOT NULL COMMENT 'Final state of filter_entries; negative for a term of the index',
  leaf INT NOT NULL COMMENT 'Number of the leaf in statistics and logs; negative for a term of the index',
  receivers ARRAY<STRING> NOT NULL COMMENT 'Receiving hosts, sorted; empty if there are none',
  actions ARRAY<STRING> NOT NULL COMMENT 'Named actions of a switch and updates of state variables, as text',
  predicates ARRAY<STRUCT<field: STRING, intervals: ARRAY<STRUCT<low: BINARY, high: BINARY>>, text: STRING>>
    COMMENT 'Predicates of a term of the index, all of which an event must satisfy to reach these receivers; NULL for other rows',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'Final states of the compiled filter with their receivers and actions, and terms that are matched by an index.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
