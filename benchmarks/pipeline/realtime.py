"""From an event's time to its frame in real time, by the job as a process of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from benchmarks.pipeline import latency
from benchmarks.pipeline.latency import feed, quantiles
from benchmarks.pipeline.receiver import FrameReceiver
from benchmarks.pipeline.throughput import MAIN
from benchmarks.pipeline.world import PARTITIONS, Job, World
from benchmarks.support.results import Lines

#: Records a second, and the floors of p50 and p99, milliseconds.
RATES = {2_000: (3.0, 15.0), 10_000: (4.0, 25.0), 30_000: (6.0, 50.0)}
SECONDS, WARM_UP = 20.0, 5.0
#: Records a second and seconds until the JVMs of broker and job have compiled what they do.
STEADY = 10_000, 45.0
#: Seconds to the first frame, kernels to be compiled included.
PATIENCE = 600.0


def run(world: World, lines: Lines) -> None:
    """Each rate after the other through one job; 5 % of messages match."""
    packets = MAIN.packets(world)
    scale = 0.5 if world.quick else 1.0
    topic = world.empty_topic()
    settings = world.settings(topic, starting_offsets="latest", latency="realtime")
    # Real time takes a slot for each partition, all the time.
    slots = {"spark.master": f"local[{PARTITIONS + 2},4]"}
    with (
        world.receiver(settings.port) as receiver,
        Job(settings, world.fresh("realtime.log"), spark=slots) as job,
    ):
        await_first(world, topic, receiver, job.check)
        feed(world, topic, packets, STEADY[0], STEADY[1] * scale)
        for rate, floors in RATES.items():
            feed(world, topic, packets, rate, WARM_UP * scale)
            fed = feed(world, topic, packets, rate, SECONDS * scale)
            time.sleep(2)
            job.check()
            seen = quantiles(receiver.taken(), fed.began, fed.ended)
            figures = seen | latency.tools(fed, receiver)
            lines.say("event to wire, real-time", records_per_second=rate, **figures)
            for name, floor in zip(("p50", "p99"), floors, strict=True):
                what = f"{name}, real time, {rate:,} records/s"
                lines.floor(what, seen[f"{name}_ms"], floor, "ms")


def await_first(
    world: World, topic: str, receiver: FrameReceiver, check: Callable[[], None]
) -> None:
    """Feed a few records until a frame arrives.

    Args:
        world: world of the benchmark.
        topic: topic to feed.
        receiver: far end of the wire.
        check: raises the error of the program if it has ended.

    Raises:
        TimeoutError: no frame arrived within `PATIENCE`.
    """
    matching = latency.full_match(world)
    arrived = threading.Event()

    def little() -> None:
        while not arrived.is_set():
            feed(world, topic, matching, 10, 2)

    feeder = threading.Thread(target=little, daemon=True)
    feeder.start()
    deadline = time.monotonic() + PATIENCE
    try:
        while not len(receiver.taken()):
            check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no frame within {PATIENCE:g} s")
            time.sleep(0.2)
    finally:
        arrived.set()
        feeder.join()
