CREATE TABLE IF NOT EXISTS ${table} (
  vnf INT NOT NULL COMMENT 'Publishing program; a row of vnfs',
  state INT NOT NULL COMMENT 'Published state; a row of states',
  first_update INT NOT NULL COMMENT 'Number of the first update of this program, which is higher than those of all earlier updates of the state',
  newest_update INT COMMENT 'Number of its newest update that is completely in the backlog; null if there is no such update yet. Numbers wrap around after 16777215',
  updated_at TIMESTAMP NOT NULL COMMENT 'Time of the last change'
)
USING delta
COMMENT 'One row per program and state that it publishes. Written by jobs/replica_controller.py; see docs/explanation/replicated-state.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.constraints.update_24_bits' = 'first_update BETWEEN 0 AND 16777215'
)
