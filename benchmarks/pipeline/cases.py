"""Other workloads and numbers of partitions, as in `throughput`, each way a turn; where all match,
two processes of sendmmsg in C before and after ours."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.pipeline import stream
from benchmarks.pipeline.makers import Makers
from benchmarks.pipeline.program import SINKS
from benchmarks.pipeline.throughput import (
    FROZEN,
    JAVA,
    MAIN,
    OURS,
    SILENT,
    WARM,
    Case,
    compare,
    rotate,
    say,
    warm,
)
from benchmarks.pipeline.ways import Topic, Way
from benchmarks.pipeline.wire import Wire
from benchmarks.pipeline.world import World
from benchmarks.support.results import Lines

FULL = Case("100 % match", (1, 35), 1.0, 2_000_000)
CASES = (
    FULL,
    Case("all types, Zipf", None, 0.0, 5_000_000),
    Case("5 % match, zstd", (1, 35), 0.05, 4_000_000, zstd=True),
    Case("5 % match, 1 partition", (1, 35), 0.05, 4_000_000, partitions=1),
    Case("5 % match, 4 partitions", (1, 35), 0.05, 4_000_000, partitions=4),
)
#: What ours is at least, in frames a second.
SENDMMSG_FLOOR = 0.8
#: Seconds of a turn.
TURN = 12.0


def run(world: World, lines: Lines) -> None:
    """Ways get warm on the main workload."""
    makers = Makers(world)
    scale = 0.2 if world.quick else 1.0
    with ExitStack() as open_ways:
        ways = {n: open_ways.enter_context(makers.way(n)) for n in (OURS, FROZEN, JAVA)}
        compare(world, lines, makers, [way for name, way in ways.items() if name not in SILENT])
        topic = MAIN.topic(world)
        warm(world, lines, ways.values(), topic, WARM * scale, 8)
        world.forget(topic.name)
        for case in CASES:
            topic = case.topic(world)
            rotate(lines, case.name, list(ways.values()), topic, 1, TURN * scale)
            if case is FULL:
                full(world, lines, ways[OURS], topic, TURN * scale)
            world.forget(topic.name)


def full(world: World, lines: Lines, ours: Way, topic: Topic, seconds: float) -> None:
    """Ours by each sink, beside C."""
    size = 0
    if world.wire is not world.tunnel:
        for sink in SINKS:
            size = beside_sendmmsg(lines, ours, topic, world.wire, sink, size, seconds)
    # Nobody counts bytes in a tunnel; frames are the same.
    beside_sendmmsg(lines, ours, topic, world.tunnel, "udp", size, seconds)


def beside_sendmmsg(
    lines: Lines,
    ours: Way,
    topic: Topic,
    wire: Wire,
    sink: str,
    size: int,
    seconds: float,
) -> int:
    """Frames a second of ours between two runs of two processes that do nothing but send them.

    size: bytes of a frame, 0 where they are to be counted. Returns it.
    """
    if not size:
        turn = ours.turn(topic, 1.0, sink, wire)
        size = turn.frame_bytes // turn.frames or stream.TUNNELLED
    before = wire.limit(size, seconds / 3, 2)
    turn = ours.turn(topic, seconds, sink, wire)
    after = wire.limit(size, seconds / 3, 2)
    if before is None or after is None:
        lines.say("sendmmsg in C", why="there is no cc to compile it")
        return size
    frames, limit = turn.frames / turn.seconds, (before + after) / 2
    lines.say("sendmmsg in C", wire=sink, bytes=size, frames_per_second=limit, ours=frames / limit)
    say(lines, f"{FULL.name}, {sink}", OURS, [turn])
    lines.floor(
        f"frames, 100 % match, to sendmmsg in C, {sink}",
        frames / limit,
        SENDMMSG_FLOOR,
        "x",
        least=True,
    )
    return size
