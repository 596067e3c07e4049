CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Name of the advertisement, unique; chosen by its author',
  publisher STRING NOT NULL COMMENT 'Host that announces what it will publish; a row of hosts',
  format STRING NOT NULL COMMENT 'Message format the filter is written for: itch or attributes',
  filter STRING NOT NULL COMMENT 'A condition as in subscriptions, without actions',
  enabled BOOLEAN NOT NULL COMMENT 'A row that is not enabled announces nothing',
  updated_by STRING COMMENT 'Who wrote the row',
  updated_at TIMESTAMP COMMENT 'When'
)
USING delta
COMMENT 'One row is one advertisement. Those of a publisher count together; without any it may publish everything.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.id_not_empty' = 'length(id) > 0',
  'delta.constraints.format_known' = 'format IN (\'itch\', \'attributes\')'
)
