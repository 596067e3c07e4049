"""Streams over a topic until it is drained: ours, and what Spark takes to hand bytes to Python."""

from __future__ import annotations

import datetime as dt
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.pipeline.world import World
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream import spark_stream

#: Seconds without any progress after which a stream is given up.
PATIENCE = 180
#: Seconds between two polls of its progress.
LOOK = 0.25
#: Bytes of a frame where nobody counts them.
TUNNELLED = 200
Pass = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class BatchFigures:
    """One micro-batch as Spark reports it: when it began (s since 1970), how long it took, rows."""

    began: float
    seconds: float
    rows: int


@dataclass(frozen=True)
class Drained:
    """A drained topic. frames, frame_bytes: that went out for all its records."""

    batches: Sequence[BatchFigures]
    frames: int = 0
    frame_bytes: int = 0

    @property
    def records(self) -> int:
        return sum(batch.rows for batch in self.batches)

    def rate(self, warm: int) -> float:
        """Returns records a second, from the first batch after ``warm`` records to the end of the
        last.
        """
        seen = 0
        for number, batch in enumerate(self.batches):
            if seen >= warm:
                measured = self.batches[number:]
                ended = measured[-1].began + measured[-1].seconds
                return sum(each.rows for each in measured) / (ended - batch.began)
            seen += batch.rows
        raise ValueError(f"{seen} records are no more than the {warm} to warm up with")

    def batch_seconds(self) -> float:
        """Median of the batches but the first."""
        return statistics.median(batch.seconds for batch in self.batches[1:])


def batches_of(reports: Sequence[str]) -> list[BatchFigures]:
    """From Spark's reports of progress, JSON, those of batches with rows."""
    found: dict[int, BatchFigures] = {}
    for text in reports:
        report = json.loads(text)
        # Where tasks fetch, Spark counts no rows.
        source = report["sources"][0]
        rows = _offsets(source["endOffset"]) - _offsets(source["startOffset"])
        if rows:
            began = dt.datetime.fromisoformat(report["timestamp"]).timestamp()
            seconds = report["durationMs"]["triggerExecution"] / 1000
            found[report["batchId"]] = BatchFigures(began, seconds, rows)
    return [batch for _, batch in sorted(found.items())]


def watch(query: StreamingQuery, records: int) -> Callable[[], bool]:
    """Returns a function that says whether the query has committed ``records`` of a topic new with
    it.
    """
    last = [time.monotonic(), 0.0]

    def done() -> bool:
        # Not often, as it takes of the same cores.
        time.sleep(LOOK)
        report = query.lastProgress
        seen = 0 if report is None else committed(report.json)
        if seen != last[1]:
            last[:] = time.monotonic(), seen
        if time.monotonic() - last[0] > PATIENCE:
            raise TimeoutError(f"{seen} of {records} records in, and no progress for {PATIENCE} s")
        return seen >= records

    return done


def committed(report: str) -> int:
    """Sum of the offsets up to which a report of progress, JSON, says that a topic was read."""
    return _offsets(json.loads(report)["sources"][0]["endOffset"])


def ended(report: Mapping[str, Any]) -> float:
    """When the batch of a report of progress ended, seconds since 1970."""
    began = dt.datetime.fromisoformat(report["timestamp"]).timestamp()
    return began + report["durationMs"]["triggerExecution"] / 1000


def _offsets(offsets: Mapping[str, Mapping[str, int]] | None) -> int:
    return sum(sum(partitions.values()) for partitions in (offsets or {}).values())


def _reports(query: StreamingQuery) -> list[str]:
    return [report.json for report in query.recentProgress]


def wait(query: StreamingQuery, records: int) -> None:
    """Until the query has committed ``records``; raises what it fails with."""
    done = watch(query, records)
    while not done():
        if (error := query.exception()) is not None:
            raise error


def ours(world: World, settings: Settings, records: int) -> Drained:
    """Drains the topic by the stream of the main job."""
    wire = world.wire
    before = wire.sent(), wire.sent_bytes()
    lifecycle = Lifecycle()
    query, delivery = spark_stream.start(world.spark, settings, lifecycle)
    try:
        lifecycle.run(query, watch(query, records))
    finally:
        delivery.close()
    frames, frame_bytes = wire.sent() - before[0], wire.sent_bytes() - before[1]
    return Drained(batches_of(_reports(query)), frames, frame_bytes)


def start_pass(
    spark: SparkSession, settings: Settings, work: Pass, schema: str, foreach: bool
) -> StreamingQuery:
    """Starts a stream of one ``mapInArrow``, in ``foreachBatch`` as ours, or without."""
    records = Topics(spark, settings).stream(most=settings.max_offsets_per_trigger)
    if foreach:

        def process(batch: DataFrame, _: int) -> None:
            batch.mapInArrow(work, schema).toArrow()

        writer: Any = records.writeStream.foreachBatch(process)
    else:
        writer = records.mapInArrow(work, schema).writeStream.format("noop")
    query: StreamingQuery = (
        writer.option("checkpointLocation", settings.checkpoint)
        .trigger(processingTime=settings.trigger)
        .start()
    )
    return query


def counting(frozen: bool) -> Pass:
    """Counts; ``frozen``: what a worker has imported is kept from its collection of garbage."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"records": pa.array([records], pa.int64())})
        if frozen and not gc.get_freeze_count():
            gc.collect()
            gc.freeze()

    return run
