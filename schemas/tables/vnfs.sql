CREATE TABLE IF NOT EXISTS ${table} (
  vnf INT NOT NULL COMMENT 'Number of a program (VNF_ID), from 5001 on, never given twice',
  name STRING NOT NULL COMMENT 'What the program calls itself; one that starts again has the same name and another number',
  host STRING NOT NULL COMMENT 'IPv4 address of the host whose middleware it speaks to',
  alive BOOLEAN NOT NULL COMMENT 'False: it has ended, or said nothing for 90 s',
  replaced BOOLEAN NOT NULL COMMENT 'True: a later one of its name has published, and what it published is let go',
  updated_at TIMESTAMP NOT NULL COMMENT 'When that was so'
)
USING delta
COMMENT 'One row is one program that takes part in replicated states. Written by jobs/replica_controller.py; see docs/states.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.vnf_16_bits' = 'vnf BETWEEN 5001 AND 65535'
)
