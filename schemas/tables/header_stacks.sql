CREATE TABLE IF NOT EXISTS ${table} (
  publisher STRING NOT NULL COMMENT 'Sending host, or ingress host through whose link other hosts send',
  receivers ARRAY<STRING> NOT NULL COMMENT 'All receivers of the leaf',
  part INT NOT NULL COMMENT 'Number of the stack, starting at 0; more than one stack if a single one would exceed the limit of the switches',
  part_receivers ARRAY<STRING> NOT NULL COMMENT 'Receivers that this stack reaches',
  labels ARRAY<BIGINT> NOT NULL COMMENT 'Labels in order, as defined by the encoding, unsigned',
  versions MAP<STRING, BIGINT> NOT NULL COMMENT 'Versions of the tables that the stack was computed from'
)
USING delta
COMMENT 'Label stacks that carry a notification from a publisher to a set of receivers.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
