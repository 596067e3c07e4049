CREATE TABLE IF NOT EXISTS ${table} (
  state INT NOT NULL COMMENT 'Number of the state (STATE_ID), from 1 on, never given twice: it is published to 239.0.0.0 + state',
  name STRING NOT NULL COMMENT 'What programs call it, unique',
  owner INT COMMENT 'Program that published it first, a row of vnfs; null: none has yet',
  segments BIGINT NOT NULL COMMENT 'Segments of its updates that the backlog keeps',
  updated_at TIMESTAMP NOT NULL COMMENT 'When that was so'
)
USING delta
COMMENT 'One row is one replicated state. Written by jobs/replica_controller.py; see docs/states.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.state_22_bits' = 'state BETWEEN 1 AND 4194303'
)
