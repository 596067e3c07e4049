CREATE TABLE IF NOT EXISTS ${table} (
  versions MAP<STRING, BIGINT> NOT NULL COMMENT 'Versions of the tables that the switches were written from',
  topic STRING COMMENT 'Null: refresh_switches says that these versions are ready. Else the stream of this topic begins with them: they are in use until egress_ledger has a batch of it',
  term BIGINT COMMENT 'Which refresher wrote the row: each that takes the lead adds a row without versions and with the next number, and rows of earlier ones are refused from then on',
  entries_version BIGINT COMMENT 'Version of switch_entries that all switches were read back to hold',
  committed_at TIMESTAMP COMMENT 'When the oldest edit that these versions bring was committed',
  ready_at TIMESTAMP NOT NULL COMMENT 'When the last switch had been read back',
  seconds DOUBLE COMMENT 'From that edit until they were ready',
  table_ids MAP<STRING, STRING> COMMENT 'Delta ids of the tables in versions: the row says nothing of a table that was made anew since'
)
USING delta
COMMENT 'One row is one set of versions that all switches hold. Streams name in their stacks what the newest of them says.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
