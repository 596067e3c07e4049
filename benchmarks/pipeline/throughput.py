"""Records a second of the whole path against those that Spark hands to Python at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.pipeline import stream
from benchmarks.pipeline.workload import Packets
from benchmarks.pipeline.world import POOL, World
from benchmarks.support.results import Lines

FLOOR = 0.75


@dataclass(frozen=True)
class Case:
    """One topic. messages: fewest and most a record; records: in all, the ``WARM`` part warms up.

    runs: of each stream, in turn.
    """

    name: str
    messages: tuple[int, int]
    share: float
    records: int
    runs: int

    def packets(self, world: World) -> Packets:
        return Packets.make(world.rules, POOL, self.messages, self.share)


#: Until then workers work out the header stacks of all receiver sets, which is not done again.
WARM = 0.6
#: Counting with Spark's connector as it is, without the fetch sizes of conf/.
PLAIN = "mapInArrow, Kafka's own fetch sizes"
#: Bytes of a frame where nobody counts them.
TUNNELLED = 200
CASES = (
    Case("5 % match", (1, 35), 0.05, 4_000_000, 2),
    Case("0.5 % match", (1, 35), 0.005, 2_400_000, 1),
    Case("100 % match", (1, 35), 1.0, 800_000, 1),
    Case("5 % match, 35 messages a packet", (35, 35), 0.05, 1_600_000, 1),
    Case("5 % match, single-message records", (1, 1), 0.05, 8_000_000, 1),
)
MAIN = CASES[0]


def run(world: World, lines: Lines) -> None:
    """All cases; the main one in turn, best of its runs."""
    for case in CASES:
        measure(world, lines, case)


def measure(world: World, lines: Lines, case: Case) -> None:
    """One case: ours, and both ways of counting, in turn; the best of each."""
    records = case.records // 8 if world.quick else case.records
    runs = 1 if world.quick else case.runs
    trigger = records_a_batch(records)
    packets = case.packets(world)
    topic = world.topic(packets, records)
    best: dict[str, float] = {}
    frames, size = 0.0, TUNNELLED
    for number in range(runs):
        for name in ("stackcast", "mapInArrow", "foreachBatch", PLAIN):
            kafka = {"kafka": {"bootstrap.servers": world.servers}} if name == PLAIN else {}
            settings = world.settings(topic, max_offsets_per_trigger=trigger, **kafka)
            if name == "stackcast":
                drained = stream.ours(world, settings, records)
                frames = drained.frames / drained.records
                size = drained.frame_bytes // max(1, drained.frames) or size
            else:
                foreach = name == "foreachBatch"
                drained = stream.through_python(world, settings, records, foreach)
            rate = drained.rate(round(WARM * records))
            best[name] = max(rate, best.get(name, 0.0))
            lines.say(
                "run",
                case=case.name,
                stream=name,
                run=number,
                records_per_second=rate,
                batches=len(drained.batches),
            )
    ours = best["stackcast"]
    a_packet = packets.messages / packets.count
    values: dict[str, Any] = {
        "case": case.name,
        "records": records,
        "bytes_a_record": len(packets.data) / packets.count,
        "messages_a_record": a_packet,
        "records_per_second": ours,
        "messages_per_second": ours * a_packet,
        "frames_per_second": ours * frames,
        "mapInArrow_per_second": best["mapInArrow"],
        "foreachBatch_per_second": best["foreachBatch"],
        "plain_per_second": best[PLAIN],
        "ratio": ours / best["mapInArrow"],
        "ratio_plain": ours / best[PLAIN],
        "ratio_foreachBatch": ours / best["foreachBatch"],
        "wire": world.wire.kind,
    }
    lines.say("throughput", **values)
    if case is MAIN:
        world.highest = ours
        for base, key in (("mapInArrow", "ratio"), (PLAIN, "ratio_plain")):
            lines.floor(f"throughput to {base}, 5 % match", values[key], FLOOR, "x", least=True)
    for processes in (1, 2):
        limit = world.wire.limit(size, 1 if world.quick else 2, processes)
        if limit is None:
            lines.say("sendmmsg in C", why="there is no cc to compile it")
            break
        lines.say(
            "sendmmsg in C",
            case=case.name,
            processes=processes,
            bytes=size,
            frames_per_second=limit,
            ours=ours * frames / limit,
        )


def records_a_batch(records: int) -> int:
    """Most records of a micro-batch, of a topic of so many: five batches at least."""
    return max(1_000, min(160_000, records // 5))


def highest(world: World) -> float:
    """Returns the highest rate of the main case in this run; a short drain if none was seen yet."""
    if world.highest is None:
        records = MAIN.records // (16 if world.quick else 4)
        topic = world.topic(MAIN.packets(world), records)
        settings = world.settings(topic, max_offsets_per_trigger=records_a_batch(records))
        drained = stream.ours(world, settings, records)
        world.highest = drained.rate(round(WARM * records))
    return world.highest
