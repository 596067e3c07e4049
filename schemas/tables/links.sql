CREATE TABLE IF NOT EXISTS ${table} (
  link_id INT NOT NULL COMMENT 'Unique number, never 0; 14 bits, or 30 bits if labels have 32 bits',
  switch STRING NOT NULL COMMENT 'Switch that this direction leaves',
  port INT NOT NULL COMMENT 'Egress port of that switch',
  neighbor STRING NOT NULL COMMENT 'Switch or host at the other end',
  neighbor_port INT COMMENT 'Port at the other end; null for a host',
  weight DOUBLE NOT NULL COMMENT 'Cost of sending over the link, greater than 0 and at most 1e12',
  up BOOLEAN NOT NULL COMMENT 'False while the link is down',
  tunnel STRUCT<ipv4: STRING, mac: BIGINT, next_hop: BIGINT> COMMENT 'Local end of the tunnel if the link is a tunnel through other networks: IPv4 and MAC address of this end, and MAC address of the router behind the port. Null if the link is a cable'
)
USING delta
COMMENT 'One row per direction of a link, which leaves a switch through one port. Hop and stop labels contain these ids.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.link_id_fits_label' = 'link_id BETWEEN 1 AND 1073741823',
  'delta.constraints.weight_positive' = 'weight > 0 AND weight <= 1e12'
)
