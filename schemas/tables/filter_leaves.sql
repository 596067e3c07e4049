CREATE TABLE IF NOT EXISTS ${table} (
  state INT NOT NULL COMMENT 'State of filter_entries that no table continues; below 0 a term of the index',
  leaf INT NOT NULL COMMENT 'Number of the leaf in statistics and logs; below 0 a term of the index',
  receivers ARRAY<STRING> NOT NULL COMMENT 'Hosts, sorted; empty for nobody',
  actions ARRAY<STRING> NOT NULL COMMENT 'Named actions of a switch and updates of state, as text',
  predicates ARRAY<STRUCT<field: STRING, intervals: ARRAY<STRUCT<low: BINARY, high: BINARY>>, text: STRING>>
    COMMENT 'Of a term of the index: what an event must satisfy, all of them, for these receivers; else NULL',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'Final states of the compiled filter and what happens there, and terms that are matched beside it.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
