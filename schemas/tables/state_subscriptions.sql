CREATE TABLE IF NOT EXISTS ${table} (
  vnf INT NOT NULL COMMENT 'Subscribing program; a row of vnfs',
  state INT NOT NULL COMMENT 'State that the program replicates or has replicated; a row of states',
  subscribed BOOLEAN NOT NULL COMMENT 'False: the program has unsubscribed or ended',
  live_since TIMESTAMP COMMENT 'Time at which the controller learned that the switch forwards the state to the program; null if it does not',
  updated_at TIMESTAMP NOT NULL COMMENT 'Time of the last change'
)
USING delta
COMMENT 'One row per program and state that it has subscribed to. Written by jobs/replica_controller.py; see docs/explanation/replicated-state.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.live_is_subscribed' = 'subscribed OR live_since IS NULL'
)
