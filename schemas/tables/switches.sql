CREATE TABLE IF NOT EXISTS ${table} (
  switch STRING NOT NULL COMMENT 'Unique name',
  device_id BIGINT NOT NULL COMMENT 'P4Runtime device id',
  address STRING NOT NULL COMMENT 'P4Runtime address, host:port',
  pipeline STRING NOT NULL COMMENT 'P4 program that the switch runs: a file name in p4/ without its suffix',
  layer STRING COMMENT 'Layer of the network: spine, fabric, rack, ...',
  max_rules INT COMMENT 'Maximum number of table entries',
  max_groups INT COMMENT 'Maximum number of multicast groups'
)
USING delta
COMMENT 'One row per switch of the network.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.device_id_not_negative' = 'device_id >= 0'
)
