"""The records of a batch on their way to the workers: fetched by tasks or by Spark's connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from jobs.adapters.app.settings import PREFIX, Settings
from jobs.adapters.fetch.client import Range, client_of
from jobs.adapters.fetch.options import FetchOptions, fetch_options
from jobs.adapters.stream.tasks import packed, run_tasks, unpacked
from udfs.columns import Source
from udfs.delivery.told import Telling
from udfs.errors import KafkaError
from udfs.messages.buffers import Batch

Work = Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]


def fetch_of(settings: Settings) -> FetchOptions | str:
    """Returns the options by which tasks fetch records themselves, or why Spark's connector
    does."""
    why = f"{PREFIX}fetch says so"
    if settings.fetch == "tasks":
        try:
            return fetch_options(settings.kafka, settings.publisher_header)
        except KafkaError as error:
            why = error.message
    return f"records are read by Spark's Kafka connector: {why}"


class Records(Protocol):
    """The records of a batch, before any task has them."""

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        """Has tasks do work on them: ``work`` returns it, by the function with which a task makes
        the records of what it is given. Returns the rows that it yields, of that schema."""


class ByConnector(NamedTuple):
    """Records that Spark's connector reads."""

    records: DataFrame

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        return self.records.mapInArrow(work(iter), from_arrow_schema(schema)).toArrow()


class ByTasks(NamedTuple):
    """Ranges of offsets, each of which a task fetches itself."""

    spark: SparkSession
    options: FetchOptions
    ranges: Sequence[Range]

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        options, ranges = self.options, self.ranges

        def fetch(numbers: Iterator[int]) -> Iterator[Batch]:
            for number in numbers:
                yield from client_of(options).batches(ranges[number])

        return _each(self.spark, work(fetch), len(ranges), schema)


class Quiet(NamedTuple):
    """Partitions of which no records are read: their tasks have summaries to send. telling: that of
    the tasks."""

    spark: SparkSession
    partitions: Sequence[int]
    telling: Telling

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        partitions, telling = self.partitions, self.telling

        def nothing(numbers: Iterator[int]) -> Iterator[Batch]:
            for number in numbers:
                telling.reads(partitions[number])
            yield from ()

        return _each(self.spark, work(nothing), len(partitions), schema)


def _each(spark: SparkSession, run: Work, count: int, schema: pa.Schema) -> pa.Table:
    """Has a task run for each number below ``count``; returns what they yield."""

    def task(number: int) -> bytes:
        return packed(run(iter([number])), schema)

    return unpacked(run_tasks(spark, task, count), schema)


def records_of(batch: DataFrame, options: FetchOptions | None) -> Records:
    """Returns the records of a micro-batch of Spark's Kafka source, which only plans it where there
    are options by which tasks fetch."""
    if options is None:
        return ByConnector(batch)
    return ByTasks(batch.sparkSession, options, _planned(batch))


def _planned(records: DataFrame) -> list[Range]:
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
