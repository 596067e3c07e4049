CREATE TABLE IF NOT EXISTS ${table} (
  id STRING NOT NULL COMMENT 'Unique name of the grant, chosen by its author',
  subscriber STRING NOT NULL COMMENT 'Host that may receive the events; * for every host',
  format STRING NOT NULL COMMENT 'Message format of the filter: itch or attributes',
  filter STRING NOT NULL COMMENT 'Permitted events: a condition in the language of subscriptions that refers only to fields, without actions',
  updated_by STRING COMMENT 'Author of the row',
  updated_at TIMESTAMP COMMENT 'Time of the edit'
)
USING delta
COMMENT 'One row per grant, which permits a host to subscribe to certain events. If the table is empty, all hosts may subscribe to all events. See docs/reference/rule-language.md.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}',
  'delta.enableChangeDataFeed' = 'true',
  'delta.constraints.id_not_empty' = 'length(id) > 0',
  'delta.constraints.format_known' = 'format IN (\'itch\', \'attributes\')'
)
