CREATE TABLE IF NOT EXISTS ${table} (
  vnf INT NOT NULL COMMENT 'Program that has the replica; a row of vnfs',
  state INT NOT NULL COMMENT 'Replicated state; a row of states',
  publisher INT NOT NULL COMMENT 'Publishing program; a row of vnfs',
  update_number INT NOT NULL COMMENT 'Number of the newest update of this publisher in the replica',
  segment INT NOT NULL COMMENT 'Last segment of that update',
  updated_at TIMESTAMP NOT NULL COMMENT 'Time at which the controller received the position'
)
USING delta
COMMENT 'One row per replica and publisher, with the newest update that the replica has. Written by jobs/replica_controller.py; see docs/explanation/replicated-state.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.constraints.update_24_bits' = 'update_number BETWEEN 0 AND 16777215',
  'delta.constraints.segment_12_bits' = 'segment BETWEEN 1 AND 4095'
)
