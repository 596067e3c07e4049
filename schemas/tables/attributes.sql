CREATE TABLE IF NOT EXISTS ${table} (
  id INT NOT NULL COMMENT 'Number of the attribute in headers, less than the number of bits of a bitmask; never reused for another attribute',
  name STRING NOT NULL COMMENT 'Unique name in JSON and in rules',
  type STRING NOT NULL COMMENT 'unsigned, signed, decimal, timestamp (seconds since 1970, or ISO 8601 text), float or text',
  scale DECIMAL(38,18) NOT NULL COMMENT 'Smallest difference between two values: value = offset + raw * scale; 1 for float and text',
  offset DECIMAL(38,18) NOT NULL COMMENT 'Value of raw 0, which is the smallest value of the attribute; 0 for float and text',
  registered_by STRING COMMENT 'Author of the row; stream if the stream registered an unknown attribute',
  registered_at TIMESTAMP COMMENT 'Time of the registration'
)
USING delta
COMMENT 'One row per attribute of attribute/value events. Rows are added but never changed, so that an id keeps its meaning.'
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
