CREATE TABLE IF NOT EXISTS ${table} (
  switch STRING NOT NULL COMMENT 'Name, unique',
  device_id BIGINT NOT NULL COMMENT 'P4Runtime device id',
  address STRING NOT NULL COMMENT 'P4Runtime address, host:port',
  pipeline STRING NOT NULL COMMENT 'P4 program it runs, a file name of p4/ without suffix',
  layer STRING COMMENT 'Where it stands: spine, fabric, rack, ...',
  max_rules INT COMMENT 'Most table entries it can hold',
  max_groups INT COMMENT 'Most multicast groups it can hold'
)
USING delta
COMMENT 'One row is one switch of the network.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.device_id_not_negative' = 'device_id >= 0'
)
