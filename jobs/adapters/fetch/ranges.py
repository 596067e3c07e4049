"""A micro-batch whose records Spark's connector plans, and whose tasks fetch them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from jobs.adapters.fetch.client import Range, client_of
from jobs.adapters.fetch.options import FetchOptions
from udfs.columns import Source


def planned(records: DataFrame) -> list[Range]:
    """Returns the ranges that a micro-batch of Spark's Kafka source has, a task's work each.

    Nothing is read. Spark gives them to no public name: they are in the partitions of its plan.
    """
    partitions = records._jdf.queryExecution().toRdd().partitions()
    found = []
    for number in range(len(partitions)):
        span = partitions[number].inputPartition().get().offsetRange()
        place = span.topicPartition()
        found.append(Range(place.topic(), place.partition(), span.fromOffset(), span.untilOffset()))
    return found


def tasks(records: DataFrame, ranges: Sequence[Range]) -> DataFrame:
    """Returns a DataFrame of as many tasks as there are ranges, for `fetching`."""
    count = max(1, len(ranges))
    return records.sparkSession.range(0, count, 1, count)


def fetching(ranges: Sequence[Range], options: FetchOptions) -> Source:
    """Returns a function for a task of `tasks`, from its numbers to the records of these ranges."""

    def fetched(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                if number < len(ranges):
                    yield from client_of(options).batches(ranges[number])

    return fetched
