CREATE TABLE IF NOT EXISTS ${table} (
  state INT NOT NULL COMMENT 'State of filter_entries that no table continues',
  leaf INT NOT NULL COMMENT 'Number of the leaf in statistics and logs',
  receivers ARRAY<STRING> NOT NULL COMMENT 'Hosts, sorted; empty for nobody',
  actions ARRAY<STRING> NOT NULL COMMENT 'Named actions of a switch and updates of state, as text',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'Final states of the compiled filter and what happens there.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
