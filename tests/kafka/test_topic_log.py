"""Waits and derived answers of `TopicLog`, with a cluster in memory and a virtual clock."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import pytest
from memory_kafka import MemoryKafka
from virtual_time import VirtualTime

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka import admin_errors
from stackcast.jobs.adapters.kafka.admin import NO_EPOCH
from stackcast.jobs.adapters.kafka.java_admin import JavaAdmin
from stackcast.jobs.adapters.kafka.open_admin import open_admin
from stackcast.jobs.adapters.kafka.python_admin import PythonAdmin
from stackcast.jobs.adapters.kafka.topic_log import PACKET, TopicLog
from stackcast.udfs.errors import KafkaError

pytestmark = pytest.mark.unit

SERVERS = {"bootstrap.servers": "k:9092"}
SECOND = 1_000_000


@pytest.fixture
def kafka() -> MemoryKafka:
    cluster = MemoryKafka()
    cluster.create("itch", 2)
    for second in (1, 2, 4):
        cluster.publish("itch", 0, b"x", second * SECOND)
    return cluster


def log_of(kafka: MemoryKafka, clock: VirtualTime | None = None, **more: str) -> TopicLog:
    settings = Settings(kafka=SERVERS | more, topic="itch", wait_seconds=60)
    return TopicLog(kafka, settings, clock or VirtualTime())


def test_a_wait_ends_when_the_broker_answers(kafka: MemoryKafka) -> None:
    clock = VirtualTime()
    kafka.failure = admin_errors.no_broker("k:9092")

    def start_broker() -> None:
        clock.sleep(12)
        kafka.failure = None

    clock.start("broker", start_broker)
    log_of(kafka, clock).wait()
    assert clock.monotonic() == 15


def test_a_wait_for_a_broker_that_does_not_answer_ends_after_the_configured_time(
    kafka: MemoryKafka,
) -> None:
    clock = VirtualTime()
    kafka.failure = admin_errors.no_broker("k:9092")
    with pytest.raises(KafkaError, match="BROKER_UNREACHABLE"):
        log_of(kafka, clock).wait()
    assert clock.monotonic() == 60


@pytest.mark.parametrize(
    "refusal",
    [
        admin_errors.tls_refused("k:9092", "expired"),
        admin_errors.login_refused("k:9092", "wrong password"),
        admin_errors.not_allowed("k:9092", "itch", "no rights"),
        admin_errors.bad_option("k:9092", "unknown option"),
    ],
    ids=lambda error: error.what,
)
def test_a_refusal_and_a_stop_end_the_wait_at_once(kafka: MemoryKafka, refusal: KafkaError) -> None:
    clock = VirtualTime()
    kafka.failure = refusal
    with pytest.raises(KafkaError, match=refusal.code):
        log_of(kafka, clock).wait()
    kafka.failure = admin_errors.no_broker("k:9092")
    with pytest.raises(KafkaError, match="BROKER_UNREACHABLE"):
        log_of(kafka, clock).wait(lambda: True)
    assert clock.monotonic() == 0


def test_offsets_of_the_topic_follow_from_its_log(kafka: MemoryKafka) -> None:
    kafka.delete_records("itch", 0, 1)
    log = log_of(kafka)
    assert log.end_offsets() == {0: 3, 1: 0}
    assert log.spans() == {0: (1, 3), 1: (0, 0)}
    assert log.offsets_at(dt.datetime.fromtimestamp(3, dt.UTC)) == {0: 2, 1: 0}
    assert log.unreadable_times() == {}
    kafka.publish("itch", 1, b"x", 1 << 64)
    assert log.unreadable_times() == {1: 0}


def test_an_open_transaction_holds_back_a_stream_of_committed_records(kafka: MemoryKafka) -> None:
    kafka.open_transaction("itch", 0)
    kafka.publish("itch", 0, b"x", 5 * SECOND)
    assert log_of(kafka).held_back() == {}
    committed = log_of(kafka, **{"isolation.level": "read_committed"})
    assert committed.held_back() == {0: (3, 4)}


def test_a_truncation_is_found_by_the_epochs_of_leaders(kafka: MemoryKafka) -> None:
    log = log_of(kafka)
    read = {0: (3, log.leader_epochs()[0]), 1: (7, NO_EPOCH)}
    assert log.truncated(read) == {}
    kafka.elect("itch", 0, 2)
    assert log.truncated(read) == {0: 2}
    assert log.leader_epochs() == {0: 1, 1: 0}


def test_the_expected_size_of_a_record_is_that_of_a_packet_or_of_the_topic(
    kafka: MemoryKafka,
) -> None:
    log = log_of(kafka)
    assert log.usual_record() == PACKET
    kafka.create("itch", 1, max_message_bytes="9000000")
    assert log.usual_record() == 9_000_000
    kafka.failure = admin_errors.not_allowed("k:9092", "itch", "no rights")
    assert log.usual_record() == PACKET


def test_a_topic_for_dead_letters_that_cannot_be_created_is_logged(
    kafka: MemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_of(kafka)
    log.ensure("dead", "dead letters")
    assert kafka.log("dead", 0).end == 0
    kafka.failure = admin_errors.not_allowed("k:9092", "other", "no rights")
    log.ensure("other", "dead letters")
    assert "cannot create topic other for dead letters: KAFKA.NOT_ALLOWED" in caplog.text


@pytest.mark.parametrize(
    ("options", "client"),
    [
        ({}, PythonAdmin),
        ({"security.protocol": "SSL", "ssl.truststore.type": "PEM"}, PythonAdmin),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/etc/ca.jks"}, JavaAdmin),
        ({"ssl.keystore.location": "/etc/me.p12", "ssl.keystore.type": "PKCS12"}, JavaAdmin),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, JavaAdmin),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, JavaAdmin),
        ({"interceptor.classes": "x.Interceptor"}, JavaAdmin),
    ],
)
def test_the_java_client_is_used_for_options_that_kafka_python_does_not_have(
    options: dict[str, str], client: type
) -> None:
    spark = SimpleNamespace(_jvm=None)
    assert type(open_admin(spark, SERVERS | options)) is client
