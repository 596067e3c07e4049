"""Health and log contain the reason why a stream is slow or partly stopped, and a remedy."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from pcap_deployment import Deployment, records
from ports import free_port
from pyspark.sql import SparkSession
from waiting import until

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.stream import watch
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.lab.up.broker import Broker

pytestmark = pytest.mark.integration


@pytest.fixture
def watched(
    spark: SparkSession,
    broker: Broker,
    filled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Deployment:
    """Return a deployment that is monitored at short intervals."""
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(watch, "TRANSACTION_SECONDS", 1.0)
    shutil.copytree(filled, tmp_path / "tables")
    port = free_port()
    return Deployment(spark, broker.bootstrap_servers, tmp_path, metrics_port=port)


def problems(deployment: Deployment) -> list[str]:
    url = f"http://127.0.0.1:{deployment.settings.metrics_port}/health"
    try:
        with urllib.request.urlopen(url) as answer:
            content: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        content = json.load(error)
    return list(content["problems"])


def test_an_open_transaction_is_reported_with_its_partition_and_offset(watched, caplog):
    watched.set(kafka={**watched.settings.kafka, "isolation.level": "read_committed"})
    watched.publish(records()[:20])
    hanging = KafkaProducer(
        bootstrap_servers=watched.servers, transactional_id=watched.settings.topic
    )
    hanging.init_transactions()
    hanging.begin_transaction()
    hanging.send(watched.settings.topic, records()[20], partition=0).get(60)
    query, delivery = start(watched.spark, watched.settings, Lifecycle())
    try:
        until(lambda: delivery.recorder.processed == {0: 10, 1: 10})
        problem = (
            f"an open transaction holds back partition 0 of {watched.settings.topic} at offset 10"
        )
        until(lambda: any(text.startswith(problem) for text in problems(watched)))
        assert any(record.getMessage().startswith(problem) for record in caplog.records)
        hanging.abort_transaction()
        until(lambda: not problems(watched))
    finally:
        query.stop()
        delivery.close()
        hanging.close()


def test_more_partitions_than_slots_in_real_time_are_reported(watched, caplog):
    watched.set(latency="realtime")
    watched.publish(records()[:20])
    query, delivery = start(watched.spark, watched.settings, Lifecycle())
    try:
        until(lambda: delivery.recorder.processed == {0: 10, 1: 10})
        until(lambda: not problems(watched))
        admin = KafkaAdminClient(bootstrap_servers=watched.servers)
        admin.create_partitions({watched.settings.topic: 9})
        admin.close()
        problem = f"{watched.settings.topic} has 9 partitions, but Spark has only "
        until(lambda: any(text.startswith(problem) for text in problems(watched)))
        assert any(record.getMessage().startswith(problem) for record in caplog.records)
    finally:
        query.stop()
        delivery.close()
