"""Records a second of the whole path and its yardsticks, and seconds of cores that each takes.

Each way is a process of its own (`ways`), started anew, compared with the `oracle`, and run until
its rate is steady. Then ways take turns, in another order in each round, so that what the machine
does meanwhile meets all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.pipeline import processor, stream
from benchmarks.pipeline.makers import Makers
from benchmarks.pipeline.oracle import in_one
from benchmarks.pipeline.program import SINKS
from benchmarks.pipeline.ways import Topic, Turn, Way
from benchmarks.pipeline.wire import Wire
from benchmarks.pipeline.workload import Packets
from benchmarks.pipeline.world import PARTITIONS, POOL, World
from benchmarks.support.results import Lines
from stackcast.lab.traffic.publisher import topic_id
from stackcast.udfs.messages import sequence

#: Ours is in real time where slots suffice, as by default.
OURS, BATCHES, JAVA = "stackcast", "micro-batches", "Java consumer"
#: Counting without any setting of ours, with those of conf/, and with `gc.freeze` too.
PLAIN, COUNTING, FROZEN = "mapInArrow, Spark defaults", "mapInArrow", "mapInArrow, gc.freeze"
CORE = (OURS, BATCHES, PLAIN, COUNTING, FROZEN, JAVA)
#: Ways that send no frames.
SILENT = (PLAIN, COUNTING, FROZEN)
#: What ours is to others at least.
FLOORS = {FROZEN: 1.1, PLAIN: 1.4, JAVA: 0.8}
#: Seconds of a turn, at most, and of one to get warm.
TURN, WARM = 60.0, 15.0


@dataclass(frozen=True)
class Case:
    """One topic. messages: fewest and most a packet, none of them for the mix of all types."""

    name: str
    messages: tuple[int, int] | None
    share: float
    records: int
    partitions: int = PARTITIONS
    zstd: bool = False

    def packets(self, world: World) -> Packets:
        if self.messages is None:
            return Packets.mixed(POOL * 8)
        return Packets.make(world.rules, POOL, self.messages, self.share)

    def topic(self, world: World) -> Topic:
        records = self.records // 10 if world.quick else self.records
        name = world.topic(self.packets(world), records, self.partitions, self.zstd)
        return Topic(name, self.partitions, records)


MAIN = Case("5 % match", (1, 35), 0.05, 8_000_000)


@dataclass(frozen=True)
class OnInterface:
    """Our stream with frames on the interface in place of the tunnel, in the same processes."""

    way: Way
    wire: Wire
    sink: str

    @property
    def name(self) -> str:
        return f"{OURS}, {self.sink.upper()}"

    def turn(self, topic: Topic, seconds: float) -> Turn:
        return self.way.turn(topic, seconds, self.sink, self.wire)


def run(world: World, lines: Lines) -> None:
    """The main workload by rotation."""
    makers = Makers(world)
    scale = 0.2 if world.quick else 1.0
    with ExitStack() as open_ways:
        ways = {name: open_ways.enter_context(makers.way(name)) for name in CORE}
        compare(world, lines, makers, [way for name, way in ways.items() if name not in SILENT])
        topic = MAIN.topic(world)
        warm(world, lines, ways.values(), topic, WARM * scale, 8)
        seconds = world.minutes * 60
        rounds = max(2, round(seconds / TURN))
        taking: list[Way | OnInterface] = list(ways.values())
        if world.wire is not world.tunnel:
            taking += (OnInterface(ways[OURS], world.wire, sink) for sink in SINKS)
        turns = rotate(lines, MAIN.name, taking, topic, rounds, seconds / rounds)
        world.highest = statistics.median(turn.rate for turn in turns[BATCHES])
        for ours in (way.name for way in taking if way.name not in (*SILENT, JAVA)):
            for name in (*FLOORS, COUNTING):
                pairs = zip(turns[ours], turns[name], strict=True)
                ratio = statistics.median(mine.rate / theirs.rate for mine, theirs in pairs)
                # Java reaches no interface.
                if name in FLOORS and (name != JAVA or ours in CORE):
                    what = f"throughput of {ours} relative to {name}"
                    lines.floor(what, ratio, FLOORS[name], "x", least=True)
                ratio = microseconds(turns[name]) / microseconds(turns[ours])
                lines.say("cores", ours=ours, way=name, ratio=ratio)
        world.forget(topic.name)


def compare(world: World, lines: Lines, makers: Makers, ways: Iterable[Way]) -> None:
    """Holds what ways send against the oracle. Raises AssertionError where they differ."""
    for way in ways:
        topic = Topic(
            world.topic(makers.compared, makers.compared.count, PARTITIONS),
            PARTITIONS,
            makers.compared.count,
        )
        with world.capturing() as capture:
            way.once(topic)
            found, count = capture.taken()
        # The stream's sessions depend on the id of the topic; those of the peers do not.
        for number in (topic_id(world.servers, topic.name), ""):
            expected = makers.oracle.digests(
                *(sequence.Topic(topic.name, number), makers.compared),
                *(topic.records, topic.partitions),
            )
            if found == expected:
                break
        lines.say(
            "compared",
            way=way.name,
            records=topic.records,
            frames=count,
            digest=in_one(found),
            oracle=in_one(expected),
            held=found == expected,
        )
        if found != expected:
            raise AssertionError(
                f"{way.name}: {len(expected - found)} of {len(expected)} frames are missing, and "
                f"{len(found - expected)} others came"
            )


def warm(
    world: World, lines: Lines, ways: Iterable[Way], topic: Topic, seconds: float, most: int
) -> None:
    for way in ways:
        rates = way.warm(topic, seconds, 2 if world.quick else most)
        lines.say("warm", way=way.name, records_per_second=rates)


def rotate(
    lines: Lines,
    case: str,
    ways: Sequence[Way | OnInterface],
    topic: Topic,
    rounds: int,
    seconds: float,
) -> dict[str, list[Turn]]:
    """Returns the turns of each way, a round after the other; each round begins with another."""
    turns: dict[str, list[Turn]] = {way.name: [] for way in ways}
    for number in range(rounds):
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            turns[way.name].append(way.turn(topic, seconds))
    for name, found in turns.items():
        say(lines, case, name, found)
    return turns


def say(lines: Lines, case: str, way: str, turns: Sequence[Turn], **more: Any) -> None:
    """Writes what the turns of a way took."""
    rates = [turn.rate for turn in turns]
    records = sum(turn.records for turn in turns)
    cores = processor.added(turn.cores for turn in turns)
    a_record = {name: 1e6 * seconds / records for name, seconds in cores.items()}
    tools = a_record.pop("benchmark", 0.0)
    a_record.pop("kernel: benchmark", None)
    lines.say(
        "way",
        case=case,
        way=way,
        turns=[round(rate) for rate in rates],
        seconds=sum(turn.seconds for turn in turns),
        records_per_second=statistics.median(rates),
        least=min(rates),
        most=max(rates),
        frames_a_record=sum(turn.frames for turn in turns) / records,
        microseconds=processor.in_all(a_record),
        in_kernel=processor.in_kernel(a_record),
        parts={n: v for n, v in a_record.items() if not n.startswith("kernel: ")},
        tools=tools,
        **more,
    )


def microseconds(turns: Sequence[Turn]) -> float:
    """Microseconds of cores a record, without the benchmark's own."""
    cores = processor.added(turn.cores for turn in turns)
    own = cores.get("benchmark", 0.0)
    return 1e6 * (processor.in_all(cores) - own) / sum(turn.records for turn in turns)


def highest(world: World) -> float:
    """Returns the highest rate of the main case in this run; a short drain if none was seen yet."""
    if world.highest is None:
        records = MAIN.records // (40 if world.quick else 8)
        topic = world.topic(MAIN.packets(world), records)
        settings = world.settings(topic, max_offsets_per_trigger=records // 12)
        drained = stream.ours(world, settings, records)
        world.highest = drained.rate(records // 4)
    return world.highest
