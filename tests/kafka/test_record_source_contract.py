"""Readers of real brokers and of memory return the same records."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from memory_kafka import MemoryKafka
from memory_source import MemorySource
from virtual_time import VirtualTime

from stackcast.jobs.adapters.kafka.client import Fetcher
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.jobs.adapters.kafka.ranges import FetchProgress, Range
from stackcast.jobs.adapters.kafka.record_source import RecordReader
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.udfs.errors import KafkaError
from stackcast.udfs.messages.buffers import Batch

TIME = 1_600_000_000_000
"""Milliseconds since 1970 of the first record."""


class Topic(NamedTuple):
    """A topic of one partition, and its reader.

    Attributes:
        name: name of the topic.
        reader: reader of its records.
        threads: threads of the test.
        publish: appends records with these values, each a millisecond later.
    """

    name: str
    reader: RecordReader
    threads: Threads
    publish: Callable[[list[bytes]], None]


@pytest.fixture(
    params=[
        pytest.param("broker", marks=pytest.mark.integration),
        pytest.param("memory", marks=pytest.mark.unit),
    ]
)
def topic(request: pytest.FixtureRequest) -> Iterator[Topic]:
    if request.param == "memory":
        yield _in_memory()
        return
    servers, name = request.getfixturevalue("broker").bootstrap_servers, f"t-{uuid.uuid4().hex}"
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        admin.create_topics([NewTopic(name, 1, 1)])
    options = fetch_options({"bootstrap.servers": servers})
    with (
        closing(KafkaProducer(bootstrap_servers=servers)) as producer,
        closing(Fetcher(replace(options, patience=600.0))) as reader,
    ):

        def publish(values: list[bytes]) -> None:
            for number, value in enumerate(values):
                producer.send(name, value, partition=0, timestamp_ms=TIME + number)
            producer.flush()

        yield Topic(name, reader, SYSTEM_THREADS, publish)


def _in_memory() -> Topic:
    kafka, time = MemoryKafka(), VirtualTime()
    kafka.create("t")

    def publish(values: list[bytes]) -> None:
        for number, value in enumerate(values):
            kafka.publish("t", 0, value, 1000 * (TIME + number))

    return Topic("t", MemorySource(kafka, time), time, publish)


def rows(batches: Iterator[Batch]) -> list[tuple[int, int, bytes]]:
    """Return offset, time in milliseconds and value of each record."""
    result = []
    for batch in batches:
        assert not batch.partition.any()
        content = batch.content.tobytes()
        values = [content[a:b] for a, b in pairwise(batch.borders.tolist())]
        columns = zip(batch.offset.tolist(), batch.time.tolist(), values, strict=True)
        result += [(offset, time // 1000, value) for offset, time, value in columns]
    return result


VALUES = [b"%d" % number * number for number in range(20)]
EXPECTED = [(number, TIME + number, value) for number, value in enumerate(VALUES)]


@pytest.mark.parametrize(("first", "until"), [(0, 20), (0, 1), (7, 15), (19, 20), (7, 7)])
def test_a_range_has_exactly_its_records(topic: Topic, first: int, until: int) -> None:
    topic.publish(VALUES)
    progress = FetchProgress(first)
    wanted = Range(topic.name, 0, first, until)
    assert rows(topic.reader.batches(wanted, progress)) == EXPECTED[first:until]
    # A batch of Kafka may continue after the range.
    assert progress.offset >= until and not progress.lost


def test_a_followed_range_ends_with_its_last_record(topic: Topic) -> None:
    topic.publish(VALUES)
    progress = FetchProgress(3)
    wanted = Range(topic.name, 0, 3, 12)
    assert rows(topic.reader.follow(wanted, 60.0, False, progress)) == EXPECTED[3:12]
    assert progress.offset == 12 and progress.epoch >= 0


def test_records_that_arrive_while_a_range_is_followed_are_in_it(topic: Topic) -> None:
    topic.publish(VALUES[:5])
    progress = FetchProgress(0)
    wanted = Range(topic.name, 0, 0, 20)
    reading = topic.threads.start(
        "reader", lambda: rows(topic.reader.follow(wanted, 600.0, False, progress))
    )
    topic.threads.clock.sleep(0.05)
    topic.publish(VALUES[5:])
    assert [value for _, _, value in reading.result()] == VALUES


def test_without_records_a_followed_range_ends_after_its_time(topic: Topic) -> None:
    topic.publish(VALUES[:2])
    clock, progress = topic.threads.clock, FetchProgress(0)
    begin = clock.monotonic()
    wanted = Range(topic.name, 0, 0, 20)
    assert rows(topic.reader.follow(wanted, 0.3, False, progress)) == EXPECTED[:2]
    assert progress.offset == 2 and clock.monotonic() - begin >= 0.29


@pytest.mark.unit
def test_a_reader_in_memory_reports_a_truncated_log() -> None:
    # tests/stream/test_truncated_log.py does it with two brokers.
    kafka, time = MemoryKafka(), VirtualTime()
    kafka.create("t")
    for value in VALUES:
        kafka.publish("t", 0, value, TIME)
    kafka.elect("t", 0, end=10)
    reader, progress = MemorySource(kafka, time), FetchProgress(15, epoch=0)
    with pytest.raises(KafkaError) as error:
        rows(reader.follow(Range("t", 0, 15, 20, 0), 1.0, False, progress))
    assert (error.value.what, error.value.fields["end"]) == ("LOG_TRUNCATED", 10)
    for _ in range(9):
        kafka.publish("t", 0, b"new", TIME)
    # Its end is behind the offset again, but its records are others.
    with pytest.raises(KafkaError) as error:
        rows(reader.follow(Range("t", 0, 15, 20, 0), 1.0, False, progress))
    assert (error.value.what, error.value.fields["end"]) == ("LOG_TRUNCATED", 10)
