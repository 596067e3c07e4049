"""From an event's time, as its producer stamps it, to its frame at the far end of the wire.

Compared with the same stream without matching and sending: a ``mapInArrow`` that only notes when
Python has the event.
"""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.pipeline import processor, producer, stream
from benchmarks.pipeline.receiver import FrameReceiver
from benchmarks.pipeline.throughput import MAIN, highest
from benchmarks.pipeline.workload import HEADER, REFERENCE, Packets, stamps
from benchmarks.pipeline.world import PARTITIONS, POOL, World
from benchmarks.support.results import Lines
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.stream import spark_stream
from stackcast.udfs.messages.buffers import Batch

OURS = "event to wire"
P50_FLOOR = 1.3
#: Seconds of events, and of these the first to warm up with.
SECONDS, WARM_UP = 30.0, 15.0
#: Of the highest rate, and how many runs of each stream.
SHARE, RUNS = 0.5, 2
Figures = dict[str, float]


def run(world: World, lines: Lines) -> None:
    """Ours, the floor as ours runs, and as plain, in turn; of each the run with the least median
    counts."""
    rate = highest(world) * SHARE
    packets = MAIN.packets(world)
    scale = 0.5 if world.quick else 1.0
    best: dict[str, Figures] = {}
    for number in range(1 if world.quick else RUNS):
        for name in (OURS, "event to Python, foreachBatch", "event to Python"):
            topic = world.empty_topic()
            settings = world.settings(topic, starting_offsets="latest")
            if name == OURS:
                seen = to_wire(world, settings, packets, rate, scale)
            else:
                seen = to_python(world, settings, packets, rate, scale, "foreach" in name)
            lines.say("run", what=name, run=number, records_per_second=rate, **seen)
            if name not in best or seen["p50_ms"] < best[name]["p50_ms"]:
                best[name] = seen
    ours = best.pop(OURS)
    for name, floor in best.items():
        ratio = ours["p50_ms"] / floor["p50_ms"]
        lines.floor(f"p50 of {OURS} relative to {name}", ratio, P50_FLOOR, "x")


def quantiles(seen: NDArray[np.int64], begin: int, end: int) -> Figures:
    """Returns quantiles, in ms, of rows (stamp, arrival; ns) stamped in ``begin`` to ``end``.

    Raises ValueError where there are none.
    """
    stamp, arrival = seen[:, 0], seen[:, 1]
    mine = (stamp >= begin) & (stamp < end)
    if not mine.any():
        raise ValueError(f"no event of {(end - begin) / 1e9:g} s arrived; {len(seen)} others did")
    late = (arrival - stamp)[mine] / 1e6
    p50, p99 = np.percentile(late, (50, 99)).tolist()
    return {"events": int(mine.sum()), "p50_ms": p50, "p99_ms": p99, "most_ms": float(late.max())}


class FedRecords(NamedTuple):
    """A feed that ended: from when to when, ns since 1970, how many records, and cores in use."""

    began: int
    ended: int
    records: int
    cores: float


def feed(world: World, topic: str, packets: Packets, rate: float, seconds: float) -> FedRecords:
    """Stamped packets from a process of its own."""
    began = time.time_ns()
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        records, worked = pool.apply(
            producer.paced, (world.servers, topic, packets, PARTITIONS, rate, seconds)
        )
    return FedRecords(began, time.time_ns(), records, worked / seconds)


def to_wire(
    world: World, settings: Settings, packets: Packets, rate: float, scale: float
) -> Figures:
    """Our stream: event to frame."""
    lifecycle = Lifecycle()
    with world.receiver(settings.port) as receiver:
        query, delivery = spark_stream.start(world.spark, settings, lifecycle)
        try:
            fed = _feed_both(world, settings, packets, rate, scale)
            lifecycle.run(query, stream.watch(query, fed.records))
        finally:
            delivery.close()
        figures = quantiles(receiver.taken(), fed.began, fed.ended) | tools(fed, receiver)
    return figures


def tools(fed: FedRecords, receiver: FrameReceiver) -> Figures:
    """Returns the cores that producer and receiver had in use, the latter since it began."""
    spent = processor.in_all(processor.between({}, processor.used({receiver.pid: "receiver"})))
    lived = time.monotonic() - receiver.began
    return {"producer_cores": fed.cores, "receiver_cores": spent / lived}


def to_python(
    world: World, settings: Settings, packets: Packets, rate: float, scale: float, foreach: bool
) -> Figures:
    """Measures the same topic and trigger: event to Python."""
    folder = world.fresh("noted")
    folder.mkdir()
    query = stream.start_pass(world.spark, settings, noting(str(folder)), "records long", foreach)
    try:
        fed = _feed_both(world, settings, packets, rate, scale)
        stream.wait(query, fed.records)
    finally:
        query.stop()
    seen = np.concatenate([np.load(path) for path in sorted(folder.glob("*.npy"))])
    return quantiles(seen, fed.began, fed.ended) | {"producer_cores": fed.cores}


def _feed_both(
    world: World, settings: Settings, packets: Packets, rate: float, scale: float
) -> FedRecords:
    """First until the stream runs warm, then what is measured: that, with the records of both."""
    # Nothing is stamped before the stream knows where "latest" is.
    known = Path(settings.checkpoint, "sources", "0", "0")
    deadline = time.monotonic() + stream.PATIENCE
    while not known.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no stream within {stream.PATIENCE} s")
        time.sleep(0.1)
    topic = settings.topic
    warm = feed(world, topic, packets, rate, WARM_UP * scale)
    fed = feed(world, topic, packets, rate, (SECONDS - WARM_UP) * scale)
    return fed._replace(records=warm.records + fed.records)


def noting(folder: str) -> stream.Pass:
    """Notes when Python has a record, beside the stamp of its first message."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        noted = []
        for batch in batches:
            now = time.time_ns()
            records = Batch.of_arrow(batch)
            stamp = stamps(records.content, records.borders[:-1] + HEADER + REFERENCE)
            noted.append(np.column_stack((stamp, np.full(len(stamp), now))))
        if noted:
            np.save(Path(folder, f"{uuid.uuid4().hex}.npy"), np.concatenate(noted))
        seen = sum(len(each) for each in noted)
        yield pa.RecordBatch.from_pydict({"records": pa.array([seen], pa.int64())})

    return run


def full_match(world: World) -> Packets:
    """Single messages that all match, for those who wait for a frame."""
    return Packets.make(world.rules, POOL, (1, 1), 1.0)
