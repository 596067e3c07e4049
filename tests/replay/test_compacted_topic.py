"""A topic that Kafka has compacted does not lead to wrong answers of rules with state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kafka_topics import kafka_topic
from pcap_deployment import attribute_deployment, receipts
from pyspark.sql import SparkSession
from rerequesting import Client, Service, sent
from waiting import until

from stackcast.jobs.adapters.replay.explanation import SentExplanation
from stackcast.jobs.check_delivery import Evidence
from stackcast.lab.proof.verdict import DeliveryVerdict
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


class CompactedTopic:
    """A stream that sends twelve records in one batch, of which Kafka keeps three."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path, tables: Path) -> None:
        admin = KafkaAdminClient(bootstrap_servers=servers)
        admin.create_topics([NewTopic(f"itch.{folder.name}", 1, 1, topic_configs=COMPACTED)])
        admin.close()
        self.stream = attribute_deployment(spark, servers, folder, tables, RULES)
        self._producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=500)
        # One batch of records, so that nothing of it is compacted before the stream has read it.
        for number in range(12):
            self.publish(KEYS[number % 3], hum=6 + number, temp=number)
        self.flush()
        self.stream.run()
        (row,) = self.stream.ledger
        assert [(p["until_offset"], p["records"]) for p in row["partitions"]] == [(12, 12)]

    def publish(self, key: bytes, **event: int) -> None:
        content = json.dumps(event).encode()
        self._producer.send(self.stream.settings.topic, content, key=key, partition=0)

    def flush(self) -> None:
        self._producer.flush(60)

    def compact(self) -> None:
        """Wait until Kafka has removed nine records."""

        def left() -> int:
            # A record more closes the segment before, which alone is compacted.
            self.publish(b"other", hum=0, temp=0)
            self.flush()
            return sum(offset < 12 for _, offset, _ in self.stream.topics.read_all())

        until(lambda: left() == 3)

    def close(self) -> None:
        self._producer.close()


@pytest.fixture
def topic(
    spark: SparkSession, broker: Broker, empty_tables: Path, tmp_path: Path
) -> Iterator[CompactedTopic]:
    with closing(
        CompactedTopic(spark, broker.bootstrap_servers, tmp_path, empty_tables)
    ) as compacted:
        yield compacted


def test_replay_of_rules_with_state_names_the_records_that_are_gone(topic):
    topic.compact()
    compacted = topic.stream
    session = session_id(kafka_topic(compacted.settings), 0)
    delivered = sent(compacted)["h4", session]
    # The rule counts the events before: the seventh is the first one with more than five.
    assert [int.from_bytes(d[10:18]) >> OFFSET_SHIFT for d in delivered] == [*range(6, 12)]
    explanation = SentExplanation(compacted.spark, compacted.settings, compacted.tables)
    with pytest.raises(ReplayError, match=r"RECORDS_GONE: records 0 to 11 .*3 of 12 are left"):
        explanation.explain(session.decode(), 10 << OFFSET_SHIFT)
    service = Service(compacted)
    try:
        client = Client(service.rerequests)
        datagrams, summary = client.ask("h4", session, 0)
        assert not datagrams and summary.gone
        assert (summary.from_, summary.until) == (0, 12 << OFFSET_SHIFT)
    finally:
        service.close()


@pytest.mark.long
def test_a_proof_with_rules_that_keep_state_names_the_records_that_are_gone(topic):
    deployment = topic.stream
    brought = receipts(deployment.frames())

    def verdict(since: int = 0) -> DeliveryVerdict:
        return Evidence(deployment.spark, deployment.settings).verdict(brought, since)

    before = verdict()
    assert before.proved and before.received > 12, list(before.lines())
    topic.compact()
    _, end = deployment.topics.spans()[0]
    gone = rf"RECORDS_GONE: records 0 to 11 .*3 of 12 are left.* now has offsets 0 to {end - 1}"
    with pytest.raises(ReplayError, match=gone):
        verdict()
    # Batches after that count on from the same records.
    deployment.run()
    with pytest.raises(ReplayError, match=gone):
        verdict(since=1)
    # Without state, each record counts by itself, and later batches can be proved.
    deployment.change("subscriptions", {"id": "humid"}, filter="hum > 5")
    topic.publish(b"new", hum=7, temp=1)
    topic.flush()
    deployment.run()
    brought = receipts(deployment.frames())
    after = verdict(since=2)
    assert after.proved and after.received == 2, list(after.lines())
