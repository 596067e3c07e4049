"""The metrics of a real stream agree with its ledger, and its health with its broker."""

from __future__ import annotations

import datetime as dt
import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaProducer
from ports import free_port
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from waiting import until

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.stream import health as stream_health
from stackcast.jobs.adapters.stream import watch
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.lab.traffic.packets import groups
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up.broker import Broker
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.network.rows import network_to_rows
from stackcast.udfs.network.topology import fabric

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
MESSAGES = list(TradingSession(messages=3_000, seed=3, symbols=20))
PACKETS = [build_packet(b"SOURCE0001", 1, g) for g in groups(MESSAGES, seed=3)]
DAMAGED = [b"", PACKETS[0][:-3], PACKETS[1][:7], PACKETS[2] + b"xx", b""]
REASONS = {
    "empty_record": 2,
    "truncated_message": 1,
    "truncated_header": 1,
    "trailing_bytes": 1,
}
RULES = {
    "high": ("h1", "price > 200"),
    "both": ("h1", "trade.price > 20 : fwd(h1, h4)"),
    "side": ("h2", 'buy_sell == "B" and shares >= 300'),
    "typo": ("h1", "prise > 3"),
    "open": ("h1", "price > 3 and (shares < 2"),
}
COUNTED = ("packets", "messages", "frames")


@pytest.fixture
def settings(tables: Tables, broker: Broker, tmp_path: Path) -> Settings:
    for name, rows in network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "none:1")).items():
        tables.append(name, rows)
    updated_at = dt.datetime.now(dt.UTC)
    rows = [
        {"id": name, "subscriber": host, "format": "itch", "filter": text, "enabled": True}
        | {"updated_by": "test", "updated_at": updated_at}
        for name, (host, text) in RULES.items()
    ]
    tables.append("subscriptions", rows)
    port = free_port()
    settings = Settings(
        tables=tables.location,
        checkpoint=str(tmp_path / "checkpoint"),
        topic="itch.metrics",
        dead_letter_topic="itch.metrics.dead",
        sink="pcap",
        pcap_path=str(tmp_path / "frames"),
        wait_seconds=120,
        latency="microbatch",
        metrics_port=port,
        metrics_host="127.0.0.1",
        kafka={"bootstrap.servers": broker.bootstrap_servers},
    )
    ensure_topic(broker.bootstrap_servers, settings.topic, 2)
    ensure_topic(broker.bootstrap_servers, settings.dead_letter_topic, 1)
    return settings


def publish(settings: Settings, packets: list[bytes]) -> None:
    with KafkaProducer(
        bootstrap_servers=settings.kafka["bootstrap.servers"], acks="all"
    ) as producer:
        for number, packet in enumerate(packets):
            producer.send(settings.topic, packet, partition=number % 2)


def scrape(settings: Settings) -> dict[tuple[str, ...], float]:
    """Return the samples that Prometheus reads, by their names and the values of their labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{settings.metrics_port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def health(settings: Settings) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{settings.metrics_port}/health") as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def await_health(settings: Settings, condition: Callable[[int, dict], bool]) -> dict:
    """Wait until /health fulfils a condition on status and content, and return its content."""
    answers: list[tuple[int, dict]] = []
    until(lambda: condition(*(answers.append(health(settings)) or answers[-1])))
    return answers[-1][1]


def is_idle(code: int, content: dict) -> bool:
    """Return True if all records have been delivered, and no batch is in progress."""
    return code == 200 and content["lag"] == 0 and content["running_batch"] is None


def test_metrics_agree_with_the_ledger_and_health_with_the_broker(
    spark: SparkSession,
    tables: Tables,
    broker: Broker,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
):
    # Shorter intervals than in a deployment.
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(stream_health, "BROKER_SECONDS", 3.0)
    publish(settings, [*PACKETS, *DAMAGED])
    lifecycle = Lifecycle()
    query, delivery = start(spark, settings, lifecycle)
    try:
        everything = len(PACKETS) + len(DAMAGED)
        until(lambda: scrape(settings)["stackcast_packets_total",] == everything)
        content = await_health(settings, is_idle)
        first = scrape(settings)
        assert content["status"] in ("ok", "degraded") and not content["problems"]
        assert content["broker_reachable"] and content["sink_ok"]
        assert content["refused_versions"] is None
        assert content["last_batch"] == first["stackcast_last_batch_id",] >= 0
        assert content["lag_by_partition"] == {"0": 0, "1": 0}

        # A second job with the same port does not start, and this one continues.
        with pytest.raises(SettingsError) as error:
            start(spark, settings, Lifecycle())
        assert error.value.code == "SETTINGS.PORT_TAKEN"

        # The broker is killed with SIGKILL, and started again with the same files and port.
        broker.kill()
        content = await_health(settings, lambda code, _: code == 503)
        assert content["status"] == "unhealthy" and not content["broker_reachable"]
        assert any("broker" in problem for problem in content["problems"])
        # The last request to the broker may end later than the change of health.
        until(lambda: not scrape(settings)["stackcast_broker_reachable",])
        assert scrape(settings)["stackcast_healthy",] == 0
        broker.revive(200)
        await_health(settings, lambda code, _: code == 200)
        publish(settings, PACKETS)
        everything += len(PACKETS)
        until(lambda: scrape(settings)["stackcast_packets_total",] == everything)
        await_health(settings, is_idle)
        # The last look at the offsets may have been before the end of the batch.
        margin = "stackcast_retention_margin_records"
        until(lambda: sum(scrape(settings)[margin, p] for p in "01") == everything)
        last = scrape(settings)
        # Progress reports count records that bypassed Spark's source.
        until(lambda: sum(report.numInputRows for report in query.recentProgress) == everything)
    finally:
        lifecycle.stopping.set()
        lifecycle.run(query, finished=lambda: True)
        delivery.close()

    # The server has ended with the job.
    with pytest.raises(OSError):
        scrape(settings)

    ledger = sorted(tables.rows("egress_ledger"), key=lambda row: row["batch_id"])
    for name in COUNTED:
        assert last[f"stackcast_{name}_total",] == sum(row[name] for row in ledger) > 0
    assert last["stackcast_matched_messages_total",] == sum(row["matched"] for row in ledger) > 0
    assert last["stackcast_frame_bytes_total",] == sum(row["bytes"] for row in ledger)
    assert last["stackcast_batches_total",] == len(ledger)
    assert last["stackcast_last_batch_id",] == ledger[-1]["batch_id"]
    assert last["stackcast_batch_seconds_count",] == len(ledger)
    assert last["stackcast_batch_stage_seconds_count", "deliver"] == len(ledger)

    by_reason = {
        key[1]: value for key, value in last.items() if key[0] == "stackcast_dead_letters_total"
    }
    assert {reason: count for reason, count in by_reason.items() if count} == REASONS
    assert sum(by_reason.values()) == sum(row["dead_letters"] for row in ledger)

    rejected = Counter(row["code"] for row in tables.rows("rejected_subscriptions"))
    assert sum(rejected.values()) == 2
    assert {
        key[1]: value for key, value in last.items() if key[0] == "stackcast_rejected_rules"
    } == rejected
    assert last["stackcast_rules",] == len(RULES) - 2

    versions = dict(ledger[-1]["versions"])
    assert {
        key[1]: value for key, value in last.items() if key[0] == "stackcast_table_version"
    } == versions

    # Without multicast, each host would get each datagram in its own Ethernet frame.
    unicast = sum(
        len(row["receivers"]) * (row["datagram_bytes"] + 14 * row["notifications"])
        for row in tables.rows("publication_statistics")
    )
    assert last["stackcast_unicast_bytes_total",] == unicast > 0
    assert last["stackcast_lag_records", "0"] == last["stackcast_lag_records", "1"] == 0
    ends = {p["partition"]: p["until_offset"] for row in ledger for p in row["partitions"]}
    for partition, end in ends.items():
        # Kafka has deleted no record.
        assert last["stackcast_retention_margin_records", str(partition)] == end
