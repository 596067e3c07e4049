CREATE TABLE IF NOT EXISTS ${table} (
  host STRING NOT NULL COMMENT 'Name, unique',
  switch STRING NOT NULL COMMENT 'Switch it is attached to',
  port INT NOT NULL COMMENT 'Port of that switch',
  mac BIGINT NOT NULL COMMENT 'Ethernet address as a number',
  ipv4 STRING NOT NULL COMMENT 'IPv4 address',
  role STRING NOT NULL COMMENT 'subscriber, or publisher for a host that sends frames in'
)
USING delta
COMMENT 'One row is one host and where it is attached.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.role_known' = 'role IN (\'subscriber\', \'publisher\')',
  'delta.constraints.mac_48_bits' = 'mac BETWEEN 0 AND 281474976710655'
)
