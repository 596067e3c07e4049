CREATE TABLE IF NOT EXISTS ${table} (
  publisher STRING NOT NULL COMMENT 'Host that sends',
  subscriber STRING NOT NULL COMMENT 'Host that receives',
  match STRING NOT NULL COMMENT 'permanent: gets all that the publisher advertises; potential: may get some of it; none: can get nothing of it',
  versions MAP<STRING, BIGINT> NOT NULL COMMENT 'Versions of subscriptions and advertisements that it was found from'
)
USING delta
COMMENT 'How the subscriptions of each host stand to what a publisher advertises.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
