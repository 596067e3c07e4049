CREATE TABLE IF NOT EXISTS ${table} (
  publisher STRING NOT NULL COMMENT 'Host that sends, or by whose link as an ingress others do',
  receivers ARRAY<STRING> NOT NULL COMMENT 'All receivers of the leaf',
  part INT NOT NULL COMMENT 'From 0; above 0 where one stack would exceed the switches limit',
  part_receivers ARRAY<STRING> NOT NULL COMMENT 'Receivers this stack reaches',
  labels ARRAY<BIGINT> NOT NULL COMMENT 'Labels in order, as the encoding has them, without sign',
  versions MAP<STRING, BIGINT> NOT NULL COMMENT 'Versions of the tables it was made from'
)
USING delta
COMMENT 'The stack of labels that carries a notification from a publisher to a set of receivers.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
