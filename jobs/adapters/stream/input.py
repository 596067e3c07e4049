"""The records of a batch on their way to the workers: fetched by tasks or by Spark's connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from stackcast.jobs.adapters.kafka.client import NO_EPOCH, Range, Reached, client_of, runs_again
from stackcast.jobs.adapters.kafka.options import FetchOptions
from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine
from stackcast.jobs.adapters.stream.tasks import packed, unpacked
from stackcast.udfs.columns import Source
from stackcast.udfs.delivery.told import Telling
from stackcast.udfs.errors import StreamError
from stackcast.udfs.messages.buffers import Batch

Work = Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]


class Records(Protocol):
    """The records of a batch, before any task has them."""

    #: By partition, the epoch of the leader from which it was read; complete after `through`.
    epochs: dict[int, int]

    def planned(self, epochs: Mapping[int, int]) -> None:
        """Notes by partition the epoch of the leader when the batch was planned."""

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        """Has tasks do work on them: ``work`` returns it, by the function with which a task makes
        the records of what it is given. Returns the rows that it yields, of that schema."""


@dataclass
class ByConnector:
    """Records that Spark's connector reads, which says nothing about leaders."""

    records: DataFrame
    epochs: dict[int, int] = field(default_factory=dict)

    def planned(self, epochs: Mapping[int, int]) -> None:
        """Has no use for them."""

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        return self.records.mapInArrow(work(iter), from_arrow_schema(schema)).toArrow()


@dataclass
class ByTasks:
    """Ranges of offsets, each of which a task fetches itself."""

    spark: SparkSession
    options: FetchOptions
    ranges: Sequence[Range]
    epochs: dict[int, int] = field(default_factory=dict)

    def planned(self, epochs: Mapping[int, int]) -> None:
        self.ranges = [
            each._replace(epoch=epochs.get(each.partition, NO_EPOCH)) for each in self.ranges
        ]

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        options, ranges = self.options, self.ranges

        reached: dict[int, Reached] = {}

        def fetch(numbers: Iterator[int]) -> Iterator[Batch]:
            for number in numbers:
                reached[number] = Reached(ranges[number].first)
                client = client_of(options)
                yield from client.batches(ranges[number], reached[number], runs_again())

        run = work(fetch)

        def task(number: int) -> tuple[bytes, Reached]:
            rows = packed(run(iter([number])), schema)
            return rows, reached[number]

        done = SparkEngine(self.spark).run(task, len(ranges))
        for wanted, (_, read) in zip(ranges, done, strict=True):
            if read.lost:
                raise lost_task(wanted.topic, wanted.partition)
            known = self.epochs.get(wanted.partition, NO_EPOCH)
            self.epochs[wanted.partition] = max(read.epoch, known)
        return unpacked((rows for rows, _ in done), schema)


def lost_task(topic: str, *partitions: int) -> StreamError:
    """Returns the error for tasks that cannot be run again."""
    which = ", ".join(map(str, sorted(partitions)))
    return StreamError(
        "TASK_LOST",
        f"a task that read partition {which} of {topic} was lost, and it is unknown how many "
        "records it had read: start the stream again, which then sends all records again that "
        "are not in the ledger",
    )


@dataclass
class Quiet:
    """Partitions of which no records are read: their tasks have summaries to send. telling: that of
    the tasks."""

    spark: SparkSession
    partitions: Sequence[int]
    telling: Telling
    epochs: dict[int, int] = field(default_factory=dict)

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        partitions, telling = self.partitions, self.telling

        def nothing(numbers: Iterator[int]) -> Iterator[Batch]:
            for number in numbers:
                telling.reads(partitions[number])
            yield from ()

        run = work(nothing)

        def task(number: int) -> bytes:
            return packed(run(iter([number])), schema)

        return unpacked(SparkEngine(self.spark).run(task, len(partitions)), schema)


def records_of(batch: DataFrame, options: FetchOptions | None) -> ByConnector | ByTasks:
    """Returns the records of a micro-batch of Spark's Kafka source.

    Args:
        batch: micro-batch. If tasks fetch the records, Spark's source only plans it.
        options: options by which tasks fetch; None if Spark's connector reads.
    """
    if options is None:
        return ByConnector(batch)
    return ByTasks(batch.sparkSession, options, _ranges(batch))


def _ranges(records: DataFrame) -> list[Range]:
    """Returns the ranges of a micro-batch, a task's work each.

    Spark gives them to no public name: they are in the partitions of the records that it has
    planned already, and planning them once more would cost ten milliseconds.
    """
    partitions = records._jdf.queryExecution().logical().rdd().partitions()
    found = []
    for number in range(len(partitions)):
        span = partitions[number].inputPartition().get().offsetRange()
        place = span.topicPartition()
        found.append(Range(place.topic(), place.partition(), span.fromOffset(), span.untilOffset()))
    return found
