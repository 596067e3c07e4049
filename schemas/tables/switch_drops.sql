CREATE TABLE IF NOT EXISTS ${table} (
  switch STRING NOT NULL COMMENT 'Name of the switch',
  reason STRING NOT NULL COMMENT 'Reason as named in the P4 program; the index of the counter if the source is not available',
  packets BIGINT NOT NULL COMMENT 'Packets dropped since the program was installed on the switch',
  counted_at TIMESTAMP NOT NULL COMMENT 'Time at which the counter was read'
)
USING delta
COMMENT 'Packets that each switch has dropped, by reason. A row is added whenever a count has changed.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
