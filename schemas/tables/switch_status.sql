CREATE TABLE IF NOT EXISTS ${table} (
  switch STRING NOT NULL COMMENT 'Name of the switch',
  entries_version BIGINT NOT NULL COMMENT 'Version of switch_entries that was written',
  desired INT NOT NULL COMMENT 'Number of entries that the switch should have',
  installed INT COMMENT 'Number of entries that were read back from the switch; null if it did not answer',
  in_sync BOOLEAN NOT NULL COMMENT 'True if the switch has exactly the desired entries',
  errors ARRAY<STRING> NOT NULL COMMENT 'Error messages of the switch, unchanged',
  seconds DOUBLE NOT NULL COMMENT 'Time from the start of the refresh to the read-back',
  checked_at TIMESTAMP NOT NULL COMMENT 'Time of the check'
)
USING delta
COMMENT 'State of each switch after each refresh, as last read back from the switch.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
