CREATE TABLE IF NOT EXISTS ${table} (
  switch STRING NOT NULL COMMENT 'Switch',
  entry_key STRING NOT NULL COMMENT 'Table and match as one text; unique for a switch',
  table_name STRING NOT NULL COMMENT 'Table of the P4 program',
  match ARRAY<STRUCT<field: STRING, kind: STRING, value: BINARY>> NOT NULL COMMENT 'Match fields',
  action STRING NOT NULL COMMENT 'Action of the P4 program',
  params ARRAY<STRUCT<name: STRING, value: BINARY>> NOT NULL COMMENT 'Its parameters',
  priority INT NOT NULL COMMENT 'Larger wins; 0 where every match is exact'
)
USING delta
COMMENT 'What each switch should hold. refresh_switches follows this table\'s change data feed.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true'
)
