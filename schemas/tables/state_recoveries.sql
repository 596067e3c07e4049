CREATE TABLE IF NOT EXISTS ${table} (
  recovery BIGINT NOT NULL COMMENT 'Number of the recovery, from 1 on',
  host STRING NOT NULL COMMENT 'IPv4 address of the host that had lost something',
  state INT NOT NULL COMMENT 'State, a row of states',
  publisher INT NOT NULL COMMENT 'Program that published, a row of vnfs',
  update_number INT NOT NULL COMMENT 'Number of the update',
  first_segment INT NOT NULL COMMENT 'First segment that was brought again',
  segments INT NOT NULL COMMENT 'How many were',
  recovered_at TIMESTAMP NOT NULL COMMENT 'When, within a second'
)
USING delta
COMMENT 'One row is something lost that the replica controller brought again. Written by jobs/replica_controller.py; see docs/states.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
