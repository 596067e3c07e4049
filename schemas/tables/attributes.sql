CREATE TABLE IF NOT EXISTS ${table} (
  id INT NOT NULL COMMENT 'Number in headers, less than the bits of a bitmask; never used again for another attribute',
  name STRING NOT NULL COMMENT 'Name in JSON and in rules, unique',
  type STRING NOT NULL COMMENT 'unsigned, signed, decimal, timestamp (seconds since 1970, or ISO 8601 text), float or text',
  scale DECIMAL(38,18) NOT NULL COMMENT 'Least difference of two values: value = offset + raw * scale; 1 for float and text',
  offset DECIMAL(38,18) NOT NULL COMMENT 'Value of raw 0, the least that the attribute can have; 0 for float and text',
  registered_by STRING COMMENT 'Who wrote the row; stream where unknown attributes are registered',
  registered_at TIMESTAMP COMMENT 'When'
)
USING delta
COMMENT 'One row is one attribute of attribute/value events. Rows are added and never changed, so that an id keeps its meaning.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.appendOnly' = 'true',
  'delta.isolationLevel' = 'Serializable',
  'delta.constraints.id_fits_mask' = 'id BETWEEN 0 AND 63',
  'delta.constraints.name_is_word' = 'regexp_like(name, \'^[A-Za-z_][A-Za-z0-9_]{0,62}$$\')',
  'delta.constraints.type_known' = 'type IN (\'unsigned\', \'signed\', \'decimal\', \'timestamp\', \'float\', \'text\')',
  'delta.constraints.scale_positive' = 'scale > 0'
)
