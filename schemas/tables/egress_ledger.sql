CREATE TABLE IF NOT EXISTS ${table} (
  batch_id BIGINT NOT NULL COMMENT 'Micro-batch of the stream',
  topic STRING NOT NULL COMMENT 'Kafka topic',
  topic_id STRING NOT NULL COMMENT 'Id that Kafka gave the topic; empty before Kafka 2.8',
  generation INT NOT NULL COMMENT 'Rises each time that the stream continues after Kafka truncated the log',
  partitions ARRAY<STRUCT<partition: INT, from_offset: BIGINT, until_offset: BIGINT, records: BIGINT, first_sequence: BIGINT, last_sequence: BIGINT, leader_epoch: INT>> NOT NULL COMMENT 'Offsets read (until is exclusive), number of records in them, sequence numbers sent, and the epoch of the leader that they were read from',
  versions MAP<STRING, BIGINT> NOT NULL COMMENT 'Versions of all tables used',
  packets BIGINT NOT NULL COMMENT 'Kafka records',
  messages BIGINT NOT NULL COMMENT 'Messages in them',
  matched BIGINT NOT NULL COMMENT 'Messages with at least one receiver',
  frames BIGINT NOT NULL COMMENT 'Frames sent',
  bytes BIGINT NOT NULL COMMENT 'Bytes of those frames',
  dead_letters BIGINT NOT NULL COMMENT 'Packets and messages that could not be read',
  started_at TIMESTAMP NOT NULL COMMENT 'Start of the batch',
  seconds DOUBLE NOT NULL COMMENT 'From start until all frames were handed over',
  settings MAP<STRING, STRING> COMMENT 'Settings that shaped the bytes of notifications'
)
USING delta
COMMENT 'One row a micro-batch: what was read, with which versions, and what went out.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
