CREATE TABLE IF NOT EXISTS ${table} (
  batch_id BIGINT NOT NULL COMMENT 'Number of the micro-batch of the stream',
  topic STRING NOT NULL COMMENT 'Kafka topic',
  topic_id STRING NOT NULL COMMENT 'Id that Kafka assigned to the topic; empty before Kafka 2.8',
  generation INT NOT NULL COMMENT 'Incremented whenever the stream continues after Kafka truncated the log',
  partitions ARRAY<STRUCT<partition: INT, from_offset: BIGINT, until_offset: BIGINT, records: BIGINT, first_sequence: BIGINT, last_sequence: BIGINT, leader_epoch: INT, ingress: STRING>> NOT NULL COMMENT 'Offsets read (until_offset is exclusive), number of records, sequence numbers sent, leader epoch of the broker from which the records were read, and host through whose link all frames entered the network (null if each frame entered through the link of its publisher)',
  versions MAP<STRING, BIGINT> NOT NULL COMMENT 'Versions of all tables that the batch used',
  packets BIGINT NOT NULL COMMENT 'Number of Kafka records',
  messages BIGINT NOT NULL COMMENT 'Number of messages in these records',
  matched BIGINT NOT NULL COMMENT 'Number of messages with at least one receiver',
  frames BIGINT NOT NULL COMMENT 'Number of frames sent',
  bytes BIGINT NOT NULL COMMENT 'Bytes of these frames',
  dead_letters BIGINT NOT NULL COMMENT 'Number of packets and messages that could not be decoded',
  started_at TIMESTAMP NOT NULL COMMENT 'Start of the batch',
  seconds DOUBLE NOT NULL COMMENT 'Time from the start until all frames were handed to the network',
  settings MAP<STRING, STRING> COMMENT 'Settings that affect the bytes of notifications'
)
USING delta
COMMENT 'One row per micro-batch: offsets read, table versions used, and amounts sent.'
TBLPROPERTIES (
  'stackcast.layout' = '${layout}'
)
