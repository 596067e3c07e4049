"""What a micro-batch costs by where its ranges of offsets come from, before any record is fetched.

Ours has Spark's Kafka source plan them, reads them from its plan (no public name), and gives them
to tasks. The public way is a Python data source, whose tasks would fetch and yield no more than
reports (Spark 4.2: admission by `latestOffset(start, limit)`). Tasks do nothing in both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from benchmarks.pipeline.throughput import MAIN
from benchmarks.pipeline.world import PARTITIONS, World
from benchmarks.support.results import Lines
from stackcast.jobs.adapters.kafka.broker_source import BrokerSource
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine
from stackcast.jobs.adapters.stream.input import ByTasks
from stackcast.jobs.adapters.stream.spark_input import records_of

#: Records of a batch, batches that are not looked at, and those that are.
BATCH, WARM, BATCHES, ROUNDS = 200, 20, 100, 2
STEPS = ("latestOffset", "queryPlanning", "addBatch", "triggerExecution")
PATIENCE = 600.0
_LAST = BATCH * (WARM + BATCHES)


class Ranges(DataSource):
    """Offsets of PARTITIONS partitions that end at _LAST records, a report for each range."""

    @classmethod
    def name(cls) -> str:
        return "ranges"

    def schema(self) -> str:
        return "first long, end long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return RangeReader()


class RangeReader(DataSourceStreamReader):
    def initialOffset(self) -> dict:  # noqa: N802 - Spark's name
        return {str(p): 0 for p in range(PARTITIONS)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(BATCH)

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:  # noqa: N802 - Spark's name
        last = _LAST // PARTITIONS
        if isinstance(limit, ReadAllAvailable):
            return dict.fromkeys(start, last)
        return {p: min(last, at + BATCH // PARTITIONS) for p, at in start.items()}

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        return [InputPartition((start[p], end[p])) for p in start if end[p] > start[p]]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        yield partition.value


def run(world: World, lines: Lines) -> None:
    """Milliseconds of a batch each way, by Spark's own count; the median of all but the first."""
    spark = world.spark
    spark.dataSource.register(Ranges)
    topic = world.topic(MAIN.packets(world), _LAST)
    kafka = {"kafka.bootstrap.servers": world.servers, "subscribe": topic}
    kafka |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH)}
    source = BrokerSource(fetch_options({"bootstrap.servers": world.servers}))
    engine = SparkEngine(spark)
    seen: list[tuple[int, int]] = []

    def ours(batch: DataFrame, _: int) -> None:
        records = records_of(batch, engine, source)
        assert isinstance(records, ByTasks)
        ranges = [(r.first, r.until) for r in records.ranges]
        seen.extend(engine.run(ranges.__getitem__, len(ranges)))

    def theirs(batch: DataFrame, _: int) -> None:
        seen.extend((row.first, row.end) for row in batch.collect())

    ways: dict[str, tuple[DataFrame, Callable[[DataFrame, int], None]]] = {
        "ranges from the plan of Spark's Kafka source": (
            spark.readStream.format("kafka").options(**kafka).load(),
            ours,
        ),
        "a Python data source": (spark.readStream.format("ranges").load(), theirs),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (frame, work) in ways.items():
            seen.clear()
            taken = batches(world, frame, work)
            if sum(end - first for first, end in seen) != _LAST:
                raise ValueError(f"{name}: {len(seen)} ranges that are not all records")
            found[name].append(taken["triggerExecution"])
            lines.say("batch", way=name, **{f"{step}_ms": ms for step, ms in taken.items()})
    plan, public = (statistics.median(each) for each in found.values())
    lines.say("public to plan", ratio=public / plan, milliseconds=public - plan)


def batches(
    world: World, frame: DataFrame, work: Callable[[DataFrame, int], None]
) -> dict[str, float]:
    """Returns milliseconds of a batch by STEPS."""
    place = str(world.fresh("checkpoint"))
    kept: list[dict[str, int]] = []
    query = frame.writeStream.foreachBatch(work).option("checkpointLocation", place).start()
    deadline, known = time.monotonic() + PATIENCE, -1
    while len(kept) < WARM + BATCHES:
        for progress in query.recentProgress:
            if progress.batchId > known and "addBatch" in progress.durationMs:
                known = progress.batchId
                kept.append(dict(progress.durationMs))
        if query.exception() is not None or time.monotonic() > deadline:
            raise TimeoutError(f"{len(kept)} batches: {query.exception()}")
        time.sleep(0.2)
    query.stop()
    late = kept[WARM:]
    return {step: statistics.median(each.get(step, 0) for each in late) for step in STEPS}
