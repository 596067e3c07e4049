"""Other workloads and numbers of partitions, as in `throughput`; where all match, two processes of
sendmmsg in C before and after each turn of ours."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from itertools import pairwise

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
#: Seconds of a turn, and how many each way has.
TURN, ROUNDS = 12.0, 3


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
            rotate(lines, case.name, list(ways.values()), topic, ROUNDS, TURN * scale)
            if case is FULL:
                full(world, lines, ways[OURS], topic, TURN * scale)
            world.forget(topic.name)


def full(world: World, lines: Lines, ours: Way, topic: Topic, seconds: float) -> None:
    """Ours by each sink, beside C."""
    wires = [(world.tunnel, "udp")]
    if world.wire is not world.tunnel:
        wires += [(world.wire, sink) for sink in SINKS]
        turn = ours.turn(topic, 1.0, SINKS[0], world.wire)
        size = turn.frame_bytes // turn.frames
    else:
        # Nobody counts bytes in a tunnel.
        size = stream.TUNNELLED
    for wire, sink in wires:
        beside_sendmmsg(lines, ours, topic, wire, sink, size, seconds)


def beside_sendmmsg(
    lines: Lines, ours: Way, topic: Topic, wire: Wire, sink: str, size: int, seconds: float
) -> None:
    """Frames a second of ours, each turn between two runs of two processes that do nothing but send
    frames of ``size`` bytes."""
    limits, turns = [wire.limit(size, seconds / 3, 2)], []
    for _ in range(ROUNDS):
        turns.append(ours.turn(topic, seconds, sink, wire))
        limits.append(wire.limit(size, seconds / 3, 2))
    known = [limit for limit in limits if limit is not None]
    if len(known) < len(limits):
        lines.say("sendmmsg in C", why="there is no cc to compile it")
        return
    rates = [turn.frames / turn.seconds for turn in turns]
    around = [statistics.mean(pair) for pair in pairwise(known)]
    ratios = [rate / limit for rate, limit in zip(rates, around, strict=True)]
    lines.say(
        "sendmmsg in C",
        wire=sink,
        bytes=size,
        frames_per_second=statistics.median(known),
        ours=statistics.median(rates),
        turns=ratios,
    )
    say(lines, f"{FULL.name}, {sink}", OURS, turns)
    lines.floor(
        f"frames per second relative to sendmmsg in C, 100 % match, {sink}",
        statistics.median(ratios),
        SENDMMSG_FLOOR,
        "x",
        least=True,
    )
