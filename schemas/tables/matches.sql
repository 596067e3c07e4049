CREATE TABLE IF NOT EXISTS ${table} (
  publisher STRING NOT NULL COMMENT 'Sending host',
  subscriber STRING NOT NULL COMMENT 'Receiving host',
  match STRING NOT NULL COMMENT 'permanent: the host receives all events that the publisher advertises; potential: it may receive some of these events; none: it cannot receive any of them',
  versions MAP<STRING, BIGINT> NOT NULL COMMENT 'Versions of subscriptions and advertisements that were compared'
)
USING delta
COMMENT 'Relation between the subscriptions of each host and the advertisements of a publisher.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
