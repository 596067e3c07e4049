CREATE TABLE IF NOT EXISTS ${table} (
  host STRING NOT NULL COMMENT 'Unique name',
  switch STRING NOT NULL COMMENT 'Switch that the host is attached to',
  port INT NOT NULL COMMENT 'Port of that switch',
  mac BIGINT NOT NULL COMMENT 'Ethernet address as a number',
  ipv4 STRING NOT NULL COMMENT 'IPv4 address',
  role STRING NOT NULL COMMENT 'subscriber, or publisher for a host that sends frames into the network'
)
USING delta
COMMENT 'One row per host, with its attachment to a switch.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.role_known' = 'role IN (\'subscriber\', \'publisher\')',
  'delta.constraints.mac_48_bits' = 'mac BETWEEN 0 AND 281474976710655'
)
