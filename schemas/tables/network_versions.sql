CREATE TABLE IF NOT EXISTS ${table} (
  versions MAP<STRING, BIGINT> NOT NULL COMMENT 'Versions of the tables that the entries of the switches were derived from',
  topic STRING COMMENT 'Null: refresh_switches reports that these versions are ready. Otherwise the stream of this topic starts with them, and they are in use until egress_ledger has a batch of the stream',
  term BIGINT COMMENT 'Number of the refresher that wrote the row. A refresher that becomes primary adds a row without versions and with the next number; later rows with lower numbers are rejected',
  entries_version BIGINT COMMENT 'Version of switch_entries that is confirmed to be installed on all switches',
  committed_at TIMESTAMP COMMENT 'Commit time of the oldest edit that these versions include',
  ready_at TIMESTAMP NOT NULL COMMENT 'Time at which the entries of the last switch were confirmed',
  seconds DOUBLE COMMENT 'Time from that edit until the versions were ready',
  table_ids MAP<STRING, STRING> COMMENT 'Delta ids of the tables in versions. The row does not apply to a table that was recreated later'
)
USING delta
COMMENT 'One row per set of table versions whose entries are installed on all switches. Streams compute their stacks from the newest set.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
