"""A record with a time that does not fit microseconds harms no other record."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kafka_topics import kafka_topic
from pcap_deployment import Deployment, attribute_deployment
from pyspark.sql import SparkSession
from rerequesting import Client, Service, sent

from stackcast.jobs.adapters.replay.explanation import SentExplanation
from stackcast.jobs.adapters.replay.history import History
from stackcast.lab.up.broker import Broker
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, session_id
from stackcast.udfs.stop_request import StopRequest

pytestmark = pytest.mark.integration

RULES = {
    "hot": ("h1", "temp >= 0"),
    # Two events that are centuries apart are not within a second of each other.
    "twice": ("h4", "temp >= 0 and count(1s) > 1"),
}


@pytest.fixture
def deployment(
    spark: SparkSession, broker: Broker, empty_tables: Path, tmp_path: Path
) -> Deployment:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    # Brokers before Kafka 3.6 accept every time.
    any_time = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    admin.create_topics([NewTopic(f"itch.{tmp_path.name}", 1, 1, topic_configs=any_time)])
    admin.close()
    servers = broker.bootstrap_servers
    return attribute_deployment(spark, servers, tmp_path, empty_tables, RULES)


def publish(deployment: Deployment) -> None:
    """Publish five events, the third with a time in nanoseconds, a minute between the others."""
    producer = KafkaProducer(bootstrap_servers=deployment.servers, acks="all")
    now = round(time.time() * 1000)
    for number in range(5):
        stamp = time.time_ns() if number == 2 else now + 60_000 * number
        event = json.dumps({"temp": number}).encode()
        producer.send(deployment.settings.topic, event, partition=0, timestamp_ms=stamp)
    producer.close()


def test_its_neighbours_are_delivered_explained_and_sent_again(deployment):
    publish(deployment)
    deployment.run()
    session = session_id(kafka_topic(deployment.settings), 0)
    delivered = sent(deployment)
    assert len(delivered["h1", session]) == 5
    assert ("h4", session) not in delivered
    explanation = SentExplanation(deployment.spark, deployment.settings, deployment.tables)
    for offset in range(5):
        explained = explanation.explain(session.decode(), offset << OFFSET_SHIFT)
        assert explained["receivers"] == ["h1"]
    service = Service(deployment)
    try:
        client = Client(service.rerequests)
        assert client.all("h1", session) == delivered["h1", session]
        assert client.all("h4", session) == []
    finally:
        service.close()
    parts = deployment.spark, deployment.settings, deployment.tables
    history = History(*parts, "hot")
    counted = history.deliver({0: (0, 5)}, StopRequest())
    assert (counted["packets"], counted["frames"], counted["dead_letters"]) == (5, 5, 0)


@pytest.mark.long
def test_the_error_of_the_connector_names_the_record(deployment):
    publish(deployment)
    deployment.set(fetch="connector")
    with pytest.raises(StackcastError) as refused:
        deployment.run()
    assert refused.value.code == "KAFKA.TIME_OUT_OF_RANGE"
    assert "partition 0, offset 2." in str(refused.value)
