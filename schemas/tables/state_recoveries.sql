CREATE TABLE IF NOT EXISTS ${table} (
  recovery BIGINT NOT NULL COMMENT 'Number of the recovery, starting at 1',
  host STRING NOT NULL COMMENT 'IPv4 address of the host that had lost the segments',
  state INT NOT NULL COMMENT 'Replicated state; a row of states',
  publisher INT NOT NULL COMMENT 'Publishing program; a row of vnfs',
  update_number INT NOT NULL COMMENT 'Number of the update',
  first_segment INT NOT NULL COMMENT 'First segment that was sent again',
  segments INT NOT NULL COMMENT 'Number of segments that were sent again',
  recovered_at TIMESTAMP NOT NULL COMMENT 'Time of the recovery, to the second'
)
USING delta
COMMENT 'One row per range of lost segments that the replica controller sent again. Written by jobs/replica_controller.py; see docs/explanation/replicated-state.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
