CREATE TABLE IF NOT EXISTS ${table} (
  vnf INT NOT NULL COMMENT 'Number of the program (VNF_ID), starting at 5001 and never reused',
  name STRING NOT NULL COMMENT 'Name of the program; a program that restarts keeps its name and gets another number',
  host STRING NOT NULL COMMENT 'IPv4 address of the host whose middleware the program uses',
  alive BOOLEAN NOT NULL COMMENT 'False: the program has ended, or has been silent for 90 s',
  replaced BOOLEAN NOT NULL COMMENT 'True: a later program with the same name has published, so the updates of this program are discarded',
  updated_at TIMESTAMP NOT NULL COMMENT 'Time of the last change'
)
USING delta
COMMENT 'One row per program that takes part in replicated states. Written by jobs/replica_controller.py; see docs/explanation/replicated-state.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.vnf_16_bits' = 'vnf BETWEEN 5001 AND 65535'
)
