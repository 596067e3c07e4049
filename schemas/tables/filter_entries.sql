CREATE TABLE IF NOT EXISTS ${table} (
  field STRING NOT NULL COMMENT 'Table: message_type or a field of the format',
  state INT NOT NULL COMMENT 'State of the event before this table',
  low BINARY NOT NULL COMMENT 'First value that the row matches, raw and big-endian, as wide as the field',
  high BINARY NOT NULL COMMENT 'Last value that the row matches',
  kind STRING NOT NULL COMMENT 'exact, range, lpm (longest prefix match), default if no other row matches, or absent if the event does not have the field',
  next INT NOT NULL COMMENT 'State that the row leads to',
  text STRING NOT NULL COMMENT 'The row in readable form, in units of the field',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'The compiled filter: in the table of a field, a value between low and high leads from state to next.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
