CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Unique name of the advertisement, chosen by its author',
  publisher STRING NOT NULL COMMENT 'Host that announces what it will publish; a row of hosts',
  format STRING NOT NULL COMMENT 'Message format of the filter: itch or attributes',
  filter STRING NOT NULL COMMENT 'Condition in the language of subscriptions, without actions',
  enabled BOOLEAN NOT NULL COMMENT 'False: the advertisement is ignored',
  updated_by STRING COMMENT 'Author of the row',
  updated_at TIMESTAMP COMMENT 'Time of the edit'
)
USING delta
COMMENT 'One row per advertisement. All advertisements of a publisher apply together; a publisher without any may publish everything.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.id_not_empty' = 'length(id) > 0',
  'delta.constraints.format_known' = 'format IN (\'itch\', \'attributes\')'
)
