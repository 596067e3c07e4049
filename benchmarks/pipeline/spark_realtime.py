"""Spark's real-time mode (``trigger(realTime=...)``) on the path of `realtime`.

Topic, records, sink and the work of a task are ours; source, trigger and the way to Python are
Spark's. By default, the mode refuses all operators that run Python except ``foreach``, so each
`Peer` either gives latency and throughput, or the error of the attempt. Ours runs in the same
session.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StreamingQuery

from benchmarks.pipeline import latency, realtime, stream
from benchmarks.pipeline.makers import compile_tables
from benchmarks.pipeline.throughput import MAIN, OURS
from benchmarks.pipeline.world import World
from benchmarks.support.results import Lines
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream import spark_stream
from stackcast.jobs.adapters.wire import open_sink, sink_options
from stackcast.udfs.delivery.task import Task
from stackcast.udfs.messages.sequence import Topic

NAME = "event to wire, Spark's real-time mode"
#: Duration of a batch: the shortest that Spark permits by default.
BATCH_SECONDS = 5
#: Rate of `latency`, in records per second, and time of a measurement in seconds.
RATE, WARM_UP, SECONDS = 2_000, 5.0, 20.0
#: Records of a topic that is read as fast as possible.
RECORDS = 400_000
#: Without it, Spark refuses the operators of Python.
UNCHECKED = {"spark.sql.streaming.realTimeMode.allowlistCheck": "false"}
ONE_RECORD = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}


@dataclass(frozen=True)
class Delivery:
    """The work of a task of ours, for workers of Spark.

    Attributes:
        plan: broadcast plan.
        stacks: broadcast header stacks.
        settings: settings of topic and sink.
    """

    plan: Any
    stacks: Any
    settings: Settings

    def open(self) -> Callable[[pa.RecordBatch], None]:
        """Return a function that sends what hosts subscribed to of records."""
        sink = open_sink(sink_options(self.settings))
        task = Task(self.plan.value, self.stacks, Topic(self.settings.topic), 0, {})

        def deliver(batch: pa.RecordBatch) -> None:
            if batch.num_rows:
                frames = task.add(batch)
                sink.send(frames.data, frames.offsets)

        return deliver


class ForeachRow:
    """A writer for ``foreach``, which gets each record as a row."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def open(self, partition: int, epoch: int) -> bool:
        """Open the sink of a task."""
        self._deliver = self._delivery.open()
        return True

    def process(self, row: Row) -> None:
        """Deliver a record."""
        self._deliver(
            pa.RecordBatch.from_pydict(
                {
                    "partition": pa.array([row.partition], pa.int32()),
                    "offset": pa.array([row.offset], pa.int64()),
                    "value": pa.array([bytes(row.value)], pa.binary()),
                }
            )
        )

    def close(self, error: Exception | None) -> None:
        """Nothing to do: a sink sends at once, and its worker ends with the task."""


def with_map_in_arrow(records: DataFrame, delivery: Delivery) -> Any:
    """Deliver in ``mapInArrow``, whose result is empty, to Kafka."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        deliver = delivery.open()
        for batch in batches:
            deliver(batch)
            yield pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})

    servers = delivery.settings.kafka["bootstrap.servers"]
    return (
        records.mapInArrow(run, "value binary")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", delivery.settings.dead_letter_topic)
    )


def with_foreach(records: DataFrame, delivery: Delivery) -> Any:
    """Deliver in a Python writer of ``foreach``."""
    return records.writeStream.foreach(ForeachRow(delivery))


def with_foreach_batch(records: DataFrame, delivery: Delivery) -> Any:
    """Deliver in ``foreachBatch``, as our micro-batches do."""

    def process(batch: DataFrame, _: int) -> None:
        raise AssertionError("Spark refuses this sink before the first batch")

    return records.writeStream.foreachBatch(process)


@dataclass(frozen=True)
class Peer:
    """A way to run Python in Spark's real-time mode.

    Attributes:
        name: name in the results.
        writer: returns a ``DataStreamWriter`` for records and the work on them.
        properties: Spark properties of the session.
    """

    name: str
    writer: Callable[[DataFrame, Delivery], Any]
    properties: Mapping[str, str] = field(default_factory=dict)


PEERS = (
    Peer("foreachBatch", with_foreach_batch),
    Peer("foreachBatch, operators not checked", with_foreach_batch, UNCHECKED),
    Peer("mapInArrow", with_map_in_arrow),
    Peer("mapInArrow, operators not checked", with_map_in_arrow, UNCHECKED),
    Peer(
        "mapInArrow, operators not checked, one record per Arrow batch",
        with_map_in_arrow,
        UNCHECKED | ONE_RECORD,
    ),
    Peer("foreach", with_foreach),
)


class MeasuredStream(NamedTuple):
    """A stream that runs.

    Attributes:
        done: returns how many records of the topic it has processed.
        check: raises its error if it has failed.
    """

    done: Callable[[], int]
    check: Callable[[], None]


#: Starts a stream with these settings for a block.
Opener = Callable[[Settings], AbstractContextManager[MeasuredStream]]


def run(world: World, lines: Lines) -> None:
    """Measure ours and each peer in one Spark session, or print the error of the attempt."""
    plan, stacks = compile_tables(world, world.settings("none"))
    context = world.spark.sparkContext
    broadcast = context.broadcast(plan), context.broadcast(stacks)
    openers: dict[str, Opener] = {OURS: partial(stackcast, world)}
    openers |= {peer.name: partial(spark_query, world, peer, *broadcast) for peer in PEERS}
    for name, opener in openers.items():
        try:
            figures = measure(world, opener)
        except Exception as error:
            lines.say(NAME, program=name, why=" ".join(str(error).split())[:700])
        else:
            lines.say(NAME, program=name, records_per_second=RATE, **figures)


def measure(world: World, opener: Opener) -> latency.Figures:
    """Return quantiles of latency, and the rate at which a full topic is read.

    Raises:
        Exception: the error of the stream.
    """
    scale = 0.5 if world.quick else 1.0
    packets = MAIN.packets(world)
    settings = _settings(world, world.empty_topic(), "latest")
    with world.receiver(settings.port) as receiver, opener(settings) as running:
        realtime.await_first(world, settings.topic, receiver, running.check)
        latency.feed(world, settings.topic, packets, RATE, WARM_UP * scale)
        fed = latency.feed(world, settings.topic, packets, RATE, SECONDS * scale)
        wait(running, sum(Topics(world.spark, settings).end_offsets().values()))
        figures = latency.quantiles(receiver.taken(), fed.began, fed.ended)
    return figures | {"highest_rate": throughput(world, opener)}


def throughput(world: World, opener: Opener) -> float:
    """Return records per second of a full topic, from its first frame to its last one."""
    records = RECORDS // 8 if world.quick else RECORDS
    settings = _settings(world, world.topic(MAIN.packets(world), records), "earliest")
    with world.receiver(settings.port) as receiver, opener(settings) as running:
        wait(running, records)
        arrived = receiver.taken()[:, 1]
    return records / float(np.ptp(arrived) / 1e9)


def wait(running: MeasuredStream, records: int) -> None:
    """Wait until a stream has processed this number of records.

    Raises:
        TimeoutError: it takes too long.
        Exception: the error of the stream.
    """
    deadline = time.monotonic() + realtime.PATIENCE
    while (done := running.done()) < records:
        running.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{done} of {records} records after {realtime.PATIENCE:g} s")
        time.sleep(stream.LOOK)


def _settings(world: World, topic: str, offsets: str) -> Settings:
    dead_letters = world.empty_topic(1)
    return world.settings(topic, starting_offsets=offsets, dead_letter_topic=dead_letters)


@contextmanager
def stackcast(world: World, settings: Settings) -> Iterator[MeasuredStream]:
    """Run our stream in real time during a block."""
    settings = dataclasses.replace(settings, latency="realtime")
    query, delivery = spark_stream.start(world.spark, settings, Lifecycle())
    try:
        yield MeasuredStream(lambda: sum(delivery.processed.values()), partial(check, query))
    finally:
        query.stop()
        delivery.close()


@contextmanager
def spark_query(
    world: World, peer: Peer, plan: Any, stacks: Any, settings: Settings
) -> Iterator[MeasuredStream]:
    """Run a query of a peer during a block."""
    records = Topics(world.spark, settings).stream()
    query: StreamingQuery | None = None
    for name, value in peer.properties.items():
        world.spark.conf.set(name, value)
    try:
        query = (
            peer.writer(records, Delivery(plan, stacks, settings))
            .outputMode("update")
            .option("checkpointLocation", settings.checkpoint)
            .trigger(realTime=f"{BATCH_SECONDS} seconds")
            .start()
        )
        yield MeasuredStream(partial(_committed, query), partial(check, query))
    finally:
        if query is not None:
            query.stop()
        for name in peer.properties:
            world.spark.conf.unset(name)


def _committed(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return 0 if progress is None else stream.committed(progress.json)


def check(query: Failable) -> None:
    """Raise the error of a stream that has failed."""
    if (error := query.exception()) is not None:
        raise error


class Failable(Protocol):
    """A stream that can fail."""

    def exception(self) -> BaseException | None:
        """Return the error of the stream, if it has failed."""
