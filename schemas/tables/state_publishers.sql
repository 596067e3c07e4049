CREATE TABLE IF NOT EXISTS ${table} (
  vnf INT NOT NULL COMMENT 'Program, a row of vnfs',
  state INT NOT NULL COMMENT 'State that it publishes, a row of states',
  first_update INT NOT NULL COMMENT 'Number of its first update: later than all of the state before',
  newest_update INT COMMENT 'Number of the newest that the backlog has in full; null: none yet. Numbers go round after 16777215',
  updated_at TIMESTAMP NOT NULL COMMENT 'When that was so'
)
USING delta
COMMENT 'One row is one program and a state that it publishes. Written by jobs/replica_controller.py; see docs/states.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.constraints.update_24_bits' = 'first_update BETWEEN 0 AND 16777215'
)
