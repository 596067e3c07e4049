CREATE TABLE IF NOT EXISTS ${table} (
  subscriber STRING NOT NULL COMMENT 'Host that asked',
  requests BIGINT NOT NULL COMMENT 'Gaps that it asked for and was answered',
  notifications BIGINT NOT NULL COMMENT 'Notifications that it was sent again',
  bytes BIGINT NOT NULL COMMENT 'Bytes of these datagrams',
  unavailable BIGINT NOT NULL COMMENT 'Of the requests: those for what cannot be computed any more',
  rejected BIGINT NOT NULL COMMENT 'Requests beside them, over the limits of a host',
  recorded_at TIMESTAMP NOT NULL COMMENT 'End of the seconds that it counts'
)
USING delta
COMMENT 'What each host asked for again: a row for some seconds in which it did.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
