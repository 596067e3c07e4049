CREATE TABLE IF NOT EXISTS ${table} (
  vnf INT NOT NULL COMMENT 'Program, a row of vnfs',
  state INT NOT NULL COMMENT 'State of which it holds, or held, a replica; a row of states',
  subscribed BOOLEAN NOT NULL COMMENT 'False: it has unsubscribed, or is dead',
  live_since TIMESTAMP COMMENT 'When the controller learned that its switch carries the state to it; null: not yet, or no longer',
  updated_at TIMESTAMP NOT NULL COMMENT 'When that was so'
)
USING delta
COMMENT 'One row is one program and a state: who holds what. Written by jobs/replica_controller.py; see docs/states.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.live_is_subscribed' = 'subscribed OR live_since IS NULL'
)
