CREATE TABLE IF NOT EXISTS ${table} (
  link_id INT NOT NULL COMMENT 'Unique, never 0; 14 bits, or 30 where labels have 32',
  switch STRING NOT NULL COMMENT 'Switch the direction leaves',
  port INT NOT NULL COMMENT 'Its egress port',
  neighbor STRING NOT NULL COMMENT 'Switch or host at the other end',
  neighbor_port INT COMMENT 'Port there; null for a host',
  weight DOUBLE NOT NULL COMMENT 'Cost of sending over it, above 0 and at most 1e12',
  up BOOLEAN NOT NULL COMMENT 'False while the link is failed',
  tunnel STRUCT<ipv4: STRING, mac: BIGINT, next_hop: BIGINT> COMMENT 'Where the link is a tunnel through other networks, its end here: the addresses of the end, and the MAC address of the router behind the port. Null for a cable'
)
USING delta
COMMENT 'One row is one direction of one link: out of a switch, through one port. Hop and stop labels name these ids.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.link_id_fits_label' = 'link_id BETWEEN 1 AND 1073741823',
  'delta.constraints.weight_positive' = 'weight > 0 AND weight <= 1e12'
)
