CREATE TABLE IF NOT EXISTS ${table} (
  switch STRING NOT NULL COMMENT 'Switch',
  entries_version BIGINT NOT NULL COMMENT 'Version of switch_entries that was written',
  desired INT NOT NULL COMMENT 'Entries it should hold',
  installed INT COMMENT 'Entries it was read back to hold; null when it did not answer',
  in_sync BOOLEAN NOT NULL COMMENT 'True when it holds exactly what it should',
  errors ARRAY<STRING> NOT NULL COMMENT 'What the switch refused, in its own words',
  seconds DOUBLE NOT NULL COMMENT 'Time from the start of the refresh to the read-back',
  checked_at TIMESTAMP NOT NULL COMMENT 'When'
)
USING delta
COMMENT 'What each switch was last seen to hold: one row a switch and refresh.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
