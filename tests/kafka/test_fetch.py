"""Tasks fetch the records of a real broker."""

from __future__ import annotations

import random
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from secured_broker import SecuredBroker

from stackcast.jobs.adapters.kafka import client
from stackcast.jobs.adapters.kafka.client import Fetcher
from stackcast.jobs.adapters.kafka.options import FetchOptions, fetch_options
from stackcast.jobs.adapters.kafka.ranges import FetchProgress, Range
from stackcast.lab.up.broker import Broker, default_class_path
from stackcast.udfs.errors import KafkaError

pytestmark = pytest.mark.integration

#: Limits waits, so that a test that hangs ends.
WAIT_S = 600.0
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


def topic_of(broker: Broker, **config: str) -> str:
    """A new topic of one partition."""
    name = f"fetch-{uuid.uuid4().hex}"
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    configs = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, 1, topic_configs=configs)])
    admin.close()
    return name


@pytest.fixture
def fetcher(broker: Broker) -> Iterator[Fetcher]:
    client_ = Fetcher(options(broker))
    yield client_
    client_.close()


def options(broker: Broker, **more: str) -> FetchOptions:
    small = {"bootstrap.servers": broker.bootstrap_servers, "max.partition.fetch.bytes": "20000"}
    return replace(fetch_options(small | more), patience=WAIT_S)


def rows(fetcher: Fetcher, topic: str, first: int, until: int) -> list[tuple[int, int, bytes]]:
    """Returns offset, time in milliseconds and value of each record."""
    records = []
    for batch in fetcher.batches(Range(topic, 0, first, until)):
        assert not batch.partition.any()
        content = batch.content.tobytes()
        values = [content[a:b] for a, b in pairwise(batch.borders.tolist())]
        columns = batch.offset.tolist(), batch.time.tolist(), values
        records += [(o, t // 1000, v) for o, t, v in zip(*columns, strict=True)]
    return records


@pytest.mark.parametrize("codec", CODECS)
def test_any_range_is_complete_and_in_order_with_each_compression(broker, fetcher, codec):
    topic = topic_of(broker, compression_type=codec)
    chance = random.Random(codec)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=3)
    expected = []
    for number in range(3000):
        value = bytes([number % 251]) * chance.choice((0, 1, 40, 700))
        time = 1_600_000_000_000 + chance.randrange(1 << 33)
        expected.append((number, time, value))
        content = None if number % 97 == 0 and not value else value
        producer.send(topic, content, key=b"k", partition=0, timestamp_ms=time)
        if number % 500 == 0:
            producer.flush()
    producer.close()
    assert rows(fetcher, topic, 0, 3000) == expected
    for first, until in ((0, 1), (1, 2), (499, 1502), (2999, 3000), (7, 7)):
        assert rows(fetcher, topic, first, until) == expected[first:until]


def test_a_followed_range_has_records_as_they_are_sent_until_its_time_is_over(broker, fetcher):
    topic = topic_of(broker)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

    def send() -> None:
        for number in range(40):
            producer.send(topic, b"%d" % number, partition=0).get()
            time.sleep(0.01)

    def offsets(source: Iterator[Any]) -> list[int]:
        return [offset for batch in source for offset in batch.offset.tolist()]

    reached, parts = FetchProgress(0), []
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        # Each range starts where the range before ended.
        while reached.offset < 40:
            began = reached.offset
            parts.append(offsets(fetcher.follow(Range(topic, 0, began, 99), 0.1, False, reached)))
            assert reached.offset == began + len(parts[-1])
        sending.result()
    assert [offset for part in parts for offset in part] == list(range(40))
    assert len(parts) > 2 and not reached.failure
    # Records beyond the range are left out. A second attempt reads all records, even if it is late.
    assert offsets(fetcher.follow(Range(topic, 0, 3, 7), 9.0, False, FetchProgress(3))) == [
        3,
        4,
        5,
        6,
    ]
    assert offsets(fetcher.follow(Range(topic, 0, 3, 99), -1.0, False, FetchProgress(3))) == []
    assert offsets(fetcher.follow(Range(topic, 0, 3, 99), -1.0, True, FetchProgress(3))) == [
        *range(3, 40)
    ]
    with pytest.raises(KafkaError, match=r"KAFKA.OFFSET_GONE"):
        list(fetcher.follow(Range(topic, 0, 50, 99), 1.0, False, FetchProgress(50)))
    producer.close()
    # A range can end within a batch of Kafka's.
    together = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=200)
    for number in range(9):
        together.send(topic, b"%d" % number, partition=0)
    together.close()
    reached = FetchProgress(40)
    assert offsets(fetcher.follow(Range(topic, 0, 40, 44), 9.0, False, reached)) == [*range(40, 44)]
    assert reached.offset == 44


class LosingSocket:
    """A socket that loses its connection after a number of bytes, or of requests."""

    def __init__(self, wrapped: socket.socket, bytes_left: int, requests_left: int) -> None:
        self.wrapped = wrapped
        self.bytes_left, self.requests_left = bytes_left, requests_left

    def recv_into(self, buffer: memoryview) -> int:
        got = self.wrapped.recv_into(buffer[: max(1, min(len(buffer), self.bytes_left))])
        self.bytes_left -= got
        if self.bytes_left <= 0:
            raise ConnectionResetError("lost")
        return got

    def sendall(self, content: bytes) -> None:
        self.requests_left -= 1
        if self.requests_left < 0:
            raise BrokenPipeError("lost")
        self.wrapped.sendall(content)

    def close(self) -> None:
        self.wrapped.close()


def test_no_record_is_lost_or_doubled_wherever_connections_are_lost(broker, fetcher, monkeypatch):
    topic = topic_of(broker)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=3)
    for number in range(600):
        producer.send(topic, b"%d" % number * 60, partition=0)
        if number % 10 == 0:
            producer.flush()
    producer.close()
    expected = rows(fetcher, topic, 3, 597)
    assert [offset for offset, _, _ in expected] == list(range(3, 597))
    chance = random.Random(1)
    sockets: list[LosingSocket] = []
    connect = client._Connection.__init__

    def losing(connection: Any, *arguments: Any) -> None:
        connect(connection, *arguments)
        limits = (chance.randrange(1, 90_000), 99) if chance.random() < 0.7 else (1 << 30, 2)
        sockets.append(LosingSocket(connection._socket, *limits))
        connection._socket = sockets[-1]

    monkeypatch.setattr(client._Connection, "__init__", losing)
    monkeypatch.setattr(client, "_WAITS", (0.0,))
    for _ in range(6):
        lossy = Fetcher(options(broker))
        assert rows(lossy, topic, 3, 597) == expected
        lossy.close()
    assert len(sockets) > 12


def test_a_reader_that_stops_early_does_not_affect_later_readers(broker, fetcher):
    topic = topic_of(broker)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(300):
        producer.send(topic, b"%d" % number * 200, partition=0).get()
    producer.close()
    first = fetcher.batches(Range(topic, 0, 0, 300))
    count = len(next(first))
    # A second reader uses the same connection, on which the broker still answers the first one.
    assert [offset for offset, _, _ in rows(fetcher, topic, 40, 300)] == list(range(40, 300))
    assert count + sum(len(batch) for batch in first) == 300
    next(fetcher.batches(Range(topic, 0, 0, 300)))
    assert [offset for offset, _, _ in rows(fetcher, topic, 7, 9)] == [7, 8]


def test_a_task_with_an_outdated_leader_asks_again_and_loses_no_record(broker, fetcher):
    topic = topic_of(broker)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(300):
        producer.send(topic, b"%d" % number * 200, partition=0)
    producer.close()
    batches = fetcher.batches(Range(topic, 0, 0, 300))
    offsets = next(batches).offset.tolist()
    # The broker refuses requests with another term of leadership than its own.
    ((place, (node, epoch)),) = fetcher._leaders.items()
    fetcher._leaders[place] = node, epoch + 1
    offsets += [offset for batch in batches for offset in batch.offset.tolist()]
    assert offsets == list(range(300))
    assert fetcher._leaders[place] == (node, epoch)


def test_aborted_transactions_are_left_out_only_if_that_is_configured(broker):
    topic = topic_of(broker)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic)
    producer.init_transactions()
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for part in range(3):
            producer.send(topic, b"%d.%d" % (number, part), partition=0)
        producer.flush()
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    # Each transaction ends with a marker, which is not a record.
    every, committed = (
        Fetcher(options(broker)),
        Fetcher(options(broker, **{"isolation.level": "read_committed"})),
    )
    records = [(offset, value) for offset, _, value in rows(every, topic, 0, 12)]
    numbers = [(n, k) for n in range(3) for k in range(3)]
    assert records == [(4 * n + k, b"%d.%d" % (n, k)) for n, k in numbers]
    assert [(offset, value) for offset, _, value in rows(committed, topic, 0, 12)] == [
        (4 * n + k, b"%d.%d" % (n, k)) for n, k in numbers if n != 1
    ]
    # A range without records ends.
    assert rows(committed, topic, 3, 8) == []
    every.close()
    committed.close()


def test_records_that_retention_overtook_are_named(broker, fetcher):
    topic = topic_of(broker)
    with_ends = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for _ in range(10):
        with_ends.send(topic, b"x", partition=0)
    with_ends.close()
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.delete_records({TopicPartition(topic, 0): 5})
    admin.close()
    with pytest.raises(KafkaError, match=f"offset 2 of partition 0 of topic {topic} was deleted"):
        rows(fetcher, topic, 2, 10)
    assert [offset for offset, _, _ in rows(fetcher, topic, 5, 10)] == [5, 6, 7, 8, 9]


def test_an_error_names_a_topic_that_does_not_exist(broker):
    impatient = Fetcher(replace(options(broker), patience=0.5))
    with pytest.raises(KafkaError, match=r"KAFKA.BROKER_UNREACHABLE: .* of topic nowhere"):
        rows(impatient, "nowhere", 0, 1)


@pytest.mark.long
def test_readers_wait_for_a_secured_broker_that_dies_and_comes_back(tmp_path):
    with SecuredBroker(default_class_path(), tmp_path).start(WAIT_S) as broker:
        kafka = broker.login()
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        for number in range(800):
            producer.send("t", b"%d" % number * 300, partition=number % 2)
        producer.close()
        ranges = [Range("t", partition, 0, 400) for partition in (0, 1)]
        patient = Fetcher(options(broker, **kafka))
        batches = patient.batches(ranges[0])
        count = len(next(batches))
        impatient = Fetcher(replace(options(broker, **kafka), patience=0.5))
        assert [sum(map(len, impatient.batches(span))) for span in ranges] == [400, 400]
        broker.kill()
        with ThreadPoolExecutor(1) as pool:
            remaining = pool.submit(lambda: sum(map(len, batches)))
            with pytest.raises(KafkaError, match=r"KAFKA.BROKER_UNREACHABLE"):
                next(impatient.batches(ranges[0]))
            # A reader that follows ends in time, with the reason why it has no records.
            reached = FetchProgress(0)
            assert not list(impatient.follow(ranges[0], 0.2, False, reached)) and reached.failure
            with pytest.raises(KafkaError, match=r"KAFKA.BROKER_UNREACHABLE"):
                list(impatient.follow(ranges[0], 0.2, True, reached))
            broker.revive(WAIT_S)
            assert count + remaining.result() == 400
        # The failure of one partition does not affect another one of the same broker.
        assert [sum(map(len, impatient.batches(span))) for span in ranges] == [400, 400]
        patient.close()
        impatient.close()
        # Errors that do not pass end the wait at once.
        for wrong, why in (
            (broker.login(password="q"), "Authentication"),
            (broker.tls(broker.mutual, "client", authority="other"), "CERTIFICATE_VERIFY_FAILED"),
            (broker.tls(broker.expired), "certificate has expired"),
        ):
            stranger = Fetcher(options(broker, **wrong))
            with pytest.raises(KafkaError, match=rf"KAFKA.FETCH_REFUSED: .*{why}"):
                next(stranger.batches(ranges[0]))
