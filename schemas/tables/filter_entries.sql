CREATE TABLE IF NOT EXISTS ${table} (
  field STRING NOT NULL COMMENT 'Table: message_type or a field of the format',
  state INT NOT NULL COMMENT 'State an event is in',
  low BINARY NOT NULL COMMENT 'First value of the row, raw, big-endian, as wide as the field',
  high BINARY NOT NULL COMMENT 'Last value of the row',
  kind STRING NOT NULL COMMENT 'exact, range, lpm (a prefix, the longest wins), default where no other fits, absent where the event lacks the field',
  next INT NOT NULL COMMENT 'State the row leads to',
  text STRING NOT NULL COMMENT 'The row for people, in units of the field',
  subscriptions_version BIGINT NOT NULL COMMENT 'Version of subscriptions that was compiled'
)
USING delta
COMMENT 'The compiled filter: in table field, a value from low to high takes state to next.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
