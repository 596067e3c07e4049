CREATE TABLE IF NOT EXISTS ${table} (
  switch STRING NOT NULL COMMENT 'Switch',
  reason STRING NOT NULL COMMENT 'Why, as its P4 program names it; the index of the counter where no source lies beside it',
  packets BIGINT NOT NULL COMMENT 'Packets since the switch was given its program',
  counted_at TIMESTAMP NOT NULL COMMENT 'When'
)
USING delta
COMMENT 'What each switch has dropped, by reason: a row whenever a count is seen to differ.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
