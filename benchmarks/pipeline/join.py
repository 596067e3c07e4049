"""The same stream with a join of Spark's in place of our matcher.

Decoding and framing are ours: between them Spark joins messages with the steps of each stock's
thresholds, by stock and between prices, as `benchmarks/match.py` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from benchmarks.pipeline.workload import Rules
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.wire import open_sink, sink_options
from stackcast.udfs.delivery.plan import Plan
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.sequence import Topic, session_id
from stackcast.udfs.stacks.frame import build_frames

_EVENT = "partition int, offset long, place int, stock long, price long, content binary"


@dataclass(frozen=True)
class MessagePositions:
    """The places of messages, for `build_frames`."""

    packet: NDArray[np.int32]
    index: NDArray[np.int32]
    start: NDArray[np.int64]
    length: NDArray[np.int32]


def start(
    spark: SparkSession, settings: Settings, plan: Plan, columns: dict[str, Any]
) -> StreamingQuery:
    """Starts the stream; frames go to the settings' sink. columns: of `steps_of`."""
    held = spark.sparkContext.broadcast(plan)
    steps = spark.createDataFrame(pa.table(columns)).cache()
    steps.count()
    options = sink_options(settings)
    topic = Topic(settings.topic)

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            read = held.value.reader.read(Batch.of_arrow(batch))
            found = read.messages
            mine = found.packet
            ends = found.start + found.length
            pieces = [
                read.content[a:b].tobytes()
                for a, b in zip(found.start.tolist(), ends.tolist(), strict=True)
            ]
            yield pa.RecordBatch.from_pydict(
                {
                    "partition": batch.column("partition").to_numpy()[mine],
                    "offset": batch.column("offset").to_numpy()[mine],
                    "place": found.index,
                    "stock": found.values[0].astype(np.int64),
                    "price": found.values[1].astype(np.int64),
                    "content": pa.array(pieces, pa.binary()),
                }
            )

    def framed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sink = open_sink(options)
        sent = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            offset = batch.column("offset").to_numpy()
            packet = np.cumsum(np.diff(offset, prepend=offset[0]) != 0).astype(np.int32)
            content = batch.column("content")
            length = np.array([len(each) for each in content.to_pylist()], np.int32)
            start = np.cumsum(length) - length
            number = int(batch.column("partition")[0].as_py())
            frames = build_frames(
                held.value.headers.templates,
                batch.column("number").to_numpy(),
                MessagePositions(packet, batch.column("place").to_numpy(), start, length),
                np.frombuffer(b"".join(content.to_pylist()), np.uint8),
                sequence_base=offset[np.unique(packet, return_index=True)[1]],
                sessions=np.frombuffer(session_id(topic, number), np.uint8).reshape(1, -1),
                mtu=held.value.mtu,
            )
            sent += sink.send(frames.data, frames.offsets)
        sink.close()
        yield pa.RecordBatch.from_pydict({"frames": pa.array([sent], pa.int64())})

    def process(batch: DataFrame, _: int) -> None:
        events = batch.mapInArrow(decoded, _EVENT).alias("e")
        joined = events.join(
            f.broadcast(steps).alias("s"),
            (f.col("e.stock") == f.col("s.stock"))
            & f.col("e.price").between(f.col("s.low"), f.col("s.high")),
        ).select("partition", "offset", "place", "number", "content")
        joined.mapInArrow(framed, "frames long").toArrow()

    query: StreamingQuery = (
        Topics(spark, settings)
        .stream(most=settings.max_offsets_per_trigger)
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", settings.checkpoint)
        .trigger(processingTime=settings.trigger)
        .start()
    )
    return query


def steps_of(rules: Rules, plan: Plan) -> dict[str, Any]:
    """Columns stock, low, high, number: prices of a stock that reach the same delivery."""
    numbers = {receivers: number for number, receivers in enumerate(plan.matcher.receivers)}
    rows: list[tuple[int, int, int, int]] = []
    for name, (prices, sets) in rules.ladders().items():
        highs = [*prices[1:], (1 << 32) - 1]
        for low, high, receivers in zip(prices, highs, sets[1:], strict=True):
            rows.append((int.from_bytes(name), low + 1, high, numbers[receivers]))
    stock, low, high, number = zip(*rows, strict=True)
    return {
        "stock": np.array(stock, np.int64),
        "low": np.array(low, np.int64),
        "high": np.array(high, np.int64),
        "number": np.array(number, np.int32),
    }
