CREATE TABLE IF NOT EXISTS ${table} (
  switch STRING NOT NULL COMMENT 'Name of the switch',
  entry_key STRING NOT NULL COMMENT 'Table name and match fields as one string, which is unique within a switch',
  table_name STRING NOT NULL COMMENT 'Table of the P4 program',
  match ARRAY<STRUCT<field: STRING, kind: STRING, value: BINARY>> NOT NULL COMMENT 'Match fields of the entry',
  action STRING NOT NULL COMMENT 'Action of the P4 program',
  params ARRAY<STRUCT<name: STRING, value: BINARY>> NOT NULL COMMENT 'Parameters of the action',
  priority INT NOT NULL COMMENT 'The entry with the highest priority wins; 0 if every match is exact'
)
USING delta
COMMENT 'Entries that each switch should have. refresh_switches follows the change data feed of this table.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true'
)
