"""The records of a micro-batch of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from stackcast.jobs.adapters.kafka.ranges import Range
from stackcast.jobs.adapters.kafka.record_source import RecordSource
from stackcast.jobs.adapters.runtime.engine import Engine
from stackcast.jobs.adapters.stream.input import ByTasks
from stackcast.udfs.delivery.deliver import Source, Work, unchanged


@dataclass
class ByConnector:
    """Records that Spark's connector reads, which does not report leaders.

    Attributes:
        records: the records.
        epochs: see `stackcast.jobs.adapters.stream.input.Records`.
    """

    records: DataFrame
    epochs: dict[int, int] = field(default_factory=dict)

    def planned(self, epochs: Mapping[int, int]) -> None:
        """Ignore the leaders, which Spark's connector does not check."""

    def through(self, work: Callable[[Source], Work], schema: pa.Schema) -> pa.Table:
        return self.records.mapInArrow(work(unchanged), from_arrow_schema(schema)).toArrow()


def records_of(
    batch: DataFrame, engine: Engine, source: RecordSource | None
) -> ByConnector | ByTasks:
    """Return the records of a micro-batch.

    Args:
        batch: micro-batch. If tasks fetch the records, Spark's source only plans it.
        engine: runs the tasks.
        source: source from which tasks fetch; None if Spark's connector reads.
    """
    if source is None:
        return ByConnector(batch)
    return ByTasks(engine, source, _ranges(batch))


def _ranges(records: DataFrame) -> list[Range]:
    """Return the ranges of a micro-batch, one per task.

    Spark does not publish them. They are in the partitions of the records that it has already
    planned; to plan them again would take ten milliseconds.
    """
    partitions = records._jdf.queryExecution().logical().rdd().partitions()
    ranges = []
    for number in range(len(partitions)):
        span = partitions[number].inputPartition().get().offsetRange()
        place = span.topicPartition()
        ranges.append(
            Range(place.topic(), place.partition(), span.fromOffset(), span.untilOffset())
        )
    return ranges
