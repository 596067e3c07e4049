"""A topic that Kafka has compacted does not lead to wrong answers of rules with state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kafka_topics import kafka_topic
from pcap_deployment import Deployment, attribute_deployment
from pyspark.sql import SparkSession
from rerequesting import Client, Service, sent
from waiting import until

from stackcast.jobs.adapters.replay.explanation import SentExplanation
from stackcast.lab.up.broker import Broker
from stackcast.udfs.errors import ReplayError
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, session_id

pytestmark = pytest.mark.integration

#: The topic as it is compacted as soon as possible.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1",
}
RULES = {"humid": ("h4", "hum > 5 and count(1h) > 5"), "warm": ("h1", "temp > 0")}
KEYS = (b"a", b"b", b"c")


@pytest.fixture
def compacted(
    spark: SparkSession, broker: Broker, empty_tables: Path, tmp_path: Path
) -> Deployment:
    """Returns a stream that sent twelve records in one batch, of which Kafka has kept three."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics([NewTopic(f"itch.{tmp_path.name}", 1, 1, topic_configs=COMPACTED)])
    servers = broker.bootstrap_servers
    deployment = attribute_deployment(spark, servers, tmp_path, empty_tables, RULES)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all", linger_ms=500)

    def publish(key: bytes, **event: int) -> None:
        content = json.dumps(event).encode()
        producer.send(deployment.settings.topic, content, key=key, partition=0)

    # One batch of records, so that nothing of it is compacted before the stream has read it.
    for number in range(12):
        publish(KEYS[number % 3], hum=6 + number, temp=number)
    producer.flush(60)
    deployment.run()
    (row,) = deployment.ledger
    assert [(p["until_offset"], p["records"]) for p in row["partitions"]] == [(12, 12)]

    def left() -> int:
        # A record more closes the segment before, which alone is compacted.
        publish(b"other", hum=0, temp=0)
        producer.flush(60)
        return sum(offset < 12 for _, offset, _ in deployment.topics.read_all())

    until(lambda: left() == 3)
    producer.close()
    admin.close()
    return deployment


def test_replay_of_rules_with_state_names_the_records_that_are_gone(compacted):
    session = session_id(kafka_topic(compacted.settings), 0)
    delivered = sent(compacted)["h4", session]
    # The rule counts the events before: the seventh is the first one with more than five.
    assert [int.from_bytes(d[10:18]) >> OFFSET_SHIFT for d in delivered] == [*range(6, 12)]
    explanation = SentExplanation(compacted.spark, compacted.settings, compacted.tables)
    with pytest.raises(ReplayError, match=r"RECORDS_GONE: .* offsets 0 to 11 .*3 of 12 records"):
        explanation.explain(session.decode(), 10 << OFFSET_SHIFT)
    service = Service(compacted)
    try:
        client = Client(service.rerequests)
        datagrams, summary = client.ask("h4", session, 0)
        assert not datagrams and summary.gone
        assert (summary.from_, summary.until) == (0, 12 << OFFSET_SHIFT)
    finally:
        service.close()
