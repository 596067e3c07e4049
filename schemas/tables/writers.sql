CREATE TABLE IF NOT EXISTS ${table} (
  role STRING NOT NULL COMMENT 'What one alone may do at a time: stream of a topic, or retuning',
  epoch BIGINT NOT NULL COMMENT 'Number of the claim: who has the highest of a role may write, and those before are refused',
  owner STRING NOT NULL COMMENT 'Who claims: of a stream the id of its checkpoint, which takes its own place again at any time',
  checkpoint STRING COMMENT 'Where that is',
  host STRING NOT NULL COMMENT 'Machine of the process',
  pid BIGINT NOT NULL COMMENT 'Its number there',
  application STRING NOT NULL COMMENT 'Its application in Spark',
  since TIMESTAMP NOT NULL COMMENT 'When it claimed',
  ended_at TIMESTAMP COMMENT 'Null: a claim. Else who made it has ended, and its place is free'
)
USING delta
COMMENT 'One row is a claim to write alone, or its end.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
