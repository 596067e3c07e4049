CREATE TABLE IF NOT EXISTS ${table} (
  subscriber STRING NOT NULL COMMENT 'Host that sent the requests',
  requests BIGINT NOT NULL COMMENT 'Number of answered requests for lost notifications',
  notifications BIGINT NOT NULL COMMENT 'Number of notifications that were sent again',
  bytes BIGINT NOT NULL COMMENT 'Bytes of these datagrams',
  unavailable BIGINT NOT NULL COMMENT 'Number of answered requests for notifications that can no longer be computed',
  rejected BIGINT NOT NULL COMMENT 'Number of further requests that were rejected because the host exceeded its limits',
  recorded_at TIMESTAMP NOT NULL COMMENT 'End of the interval'
)
USING delta
COMMENT 'Requests of each host for lost notifications. Each row counts the requests of a few seconds.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
