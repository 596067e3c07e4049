CREATE TABLE IF NOT EXISTS ${table} (
  vnf INT NOT NULL COMMENT 'Program that holds the replica, a row of vnfs',
  state INT NOT NULL COMMENT 'State, a row of states',
  publisher INT NOT NULL COMMENT 'Program that published, a row of vnfs',
  update_number INT NOT NULL COMMENT 'Number of its newest update that the replica has',
  segment INT NOT NULL COMMENT 'Last segment of that',
  updated_at TIMESTAMP NOT NULL COMMENT 'When the controller learned it'
)
USING delta
COMMENT 'One row is a replica and a publisher: how far the one has the other. Written by jobs/replica_controller.py; see docs/states.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.constraints.update_24_bits' = 'update_number BETWEEN 0 AND 16777215',
  'delta.constraints.segment_12_bits' = 'segment BETWEEN 1 AND 4095'
)
