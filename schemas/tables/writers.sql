CREATE TABLE IF NOT EXISTS ${table} (
  role STRING NOT NULL COMMENT 'Role that only one process may have at a time: the stream of a topic, or retuning',
  epoch BIGINT NOT NULL COMMENT 'Number of the claim. Only the process with the highest epoch of a role may write; writes with lower epochs are rejected',
  owner STRING NOT NULL COMMENT 'Owner of the claim. A stream is identified by the id of its checkpoint and can claim its role again at any time',
  checkpoint STRING COMMENT 'Path of the checkpoint',
  host STRING NOT NULL COMMENT 'Machine that runs the process',
  pid BIGINT NOT NULL COMMENT 'Process id on that machine',
  application STRING NOT NULL COMMENT 'Id of the Spark application',
  since TIMESTAMP NOT NULL COMMENT 'Time of the claim',
  ended_at TIMESTAMP COMMENT 'Time at which the owner of the claim released the role; null in the row that made the claim'
)
USING delta
COMMENT 'One row for each claim to be the only writer with a role, and one row for the end of each claim.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
