CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Name of the grant, unique; chosen by its author',
  subscriber STRING NOT NULL COMMENT 'Host that may get the events; * for every host',
  format STRING NOT NULL COMMENT 'Message format the filter is written for: itch or attributes',
  filter STRING NOT NULL COMMENT 'Which events: a condition as in subscriptions, on fields alone, without actions',
  updated_by STRING COMMENT 'Who wrote the row',
  updated_at TIMESTAMP COMMENT 'When'
)
USING delta
COMMENT 'One row is one grant: who may subscribe to which events. Empty: everybody to everything. See docs/subscriptions.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.id_not_empty' = 'length(id) > 0',
  'delta.constraints.format_known' = 'format IN (\'itch\', \'attributes\')'
)
