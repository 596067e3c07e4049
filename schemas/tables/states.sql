CREATE TABLE IF NOT EXISTS ${table} (
  state INT NOT NULL COMMENT 'Number of the state (STATE_ID), starting at 1 and never reused. The state is published to the address 239.0.0.0 + state',
  name STRING NOT NULL COMMENT 'Unique name that programs use',
  owner INT COMMENT 'First program that published the state, a row of vnfs; null if no program has published it yet',
  segments BIGINT NOT NULL COMMENT 'Number of segments that the updates of the state have in the backlog',
  updated_at TIMESTAMP NOT NULL COMMENT 'Time of the last change'
)
USING delta
COMMENT 'One row per replicated state. Written by jobs/replica_controller.py; see docs/explanation/replicated-state.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.state_22_bits' = 'state BETWEEN 1 AND 4194303'
)
