"""Frames a second of the software switch on one core."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from virtual_trees_cases import datagram, entries_of, modelled, random_tables, stack_frame

from benchmarks.compile import say
from benchmarks.p4.passes import COUNTS, Curve
from benchmarks.support.measuring import side_by_side
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE, SwitchTables
from stackcast.udfs.switches.stack_entries import LABELS_A_PASS

FRAMES = 1000
RUNS = 7
FLOOR = 3000
"""Frames of 8 labels a second that are asked of the software switch, on one core."""
PAYLOAD = 100
STACKS = (8, 24, 40)
"""Labels of the frames that are sent through programs of other numbers of labels a pass."""

Frame = tuple[int, tuple[int, ...], bytes]
"""Ingress port, labels, datagram."""
Work = Callable[[], int]
"""Gives the copies that came out."""


class Measured:
    """Work on frames beside a yardstick in the same run: the forwarding model in plain Python.

    The yardstick knows nothing of P4: it makes the same copies by a loop written for them.
    """

    def __init__(self, tables: SwitchTables, frames: Sequence[Frame]) -> None:
        self.tables = tables
        self.frames = frames
        self.copies = self._plain()
        self._all_plain: list[float] = []

    @property
    def plain_a_second(self) -> float:
        """Frames a second of the yardstick, over all that was measured beside it."""
        return len(self.frames) / statistics.median(self._all_plain)

    def __call__(self, name: str, work: Work, **more: Any) -> float:
        """The time of ``work`` in times of the yardstick: the median of runs, each beside one."""
        made: list[int] = []
        plain, seconds, ratio = side_by_side(self._plain, lambda: made.append(work()), RUNS)
        assert set(made) == {self.copies}, "copies are missing, or there are too many"
        self._all_plain += plain
        median = statistics.median(seconds)
        a_second = len(self.frames) / median
        say(
            name,
            frames=len(self.frames),
            copies_a_frame=self.copies / len(self.frames),
            frames_a_second=round(a_second),
            copies_a_second=round(self.copies / median),
            to="the forwarding model in plain Python",
            ratio=ratio,
            **more,
            **(
                {"floor": FLOOR, "ratio_to_floor": a_second / FLOOR}
                if len(self.frames[0][1]) == 8
                else {}
            ),
        )
        return ratio

    def _plain(self) -> int:
        tables = self.tables
        return sum(len(modelled(tables, port, labels, ip)) for port, labels, ip in self.frames)


def switch_tables(ports: int) -> SwitchTables:
    """Returns trees 1 to 32 of few and many ports, a hop and a stop a port (from 101), some host
    ports. Stacks may come in by any.
    """
    every = frozenset(range(1, ports + 1))
    return replace(random_tables(Random(f"tables of {ports}"), ports), sources=every)


def different_frames(tables: SwitchTables, ports: int, labels: int, seed: str) -> list[Frame]:
    """Returns frames that differ in their labels and in their datagrams, and all make a copy.

    A tree, a hop and a stop of this switch; all others are labels of other switches.
    """
    random = Random(f"frames {seed}")
    made: dict[tuple[int, ...], Frame] = {}
    while len(made) < FRAMES:
        own = [
            NARROW.label(TREE, random.choice(sorted(tables.trees))),
            NARROW.label(HOP, random.choice(sorted(tables.hops))),
            NARROW.label(STOP, random.choice(sorted(tables.stops))),
        ]
        kinds = random.choices((TREE, HOP, STOP), k=labels - 3)
        stack = own + [NARROW.label(kind, random.randint(1000, 16383)) for kind in kinds]
        random.shuffle(stack)
        port = random.randint(1, ports)
        behind = datagram(random.randbytes(PAYLOAD))
        if tuple(stack) not in made and modelled(tables, port, stack, behind):
            made[tuple(stack)] = port, tuple(stack), behind
    return list(made.values())


def speeds(programs: Mapping[int, bytes]) -> dict[str, Curve]:
    """Measures the shipped program, then all; curves are frames a second against labels a pass.

    A core's speed changes within minutes, so curves have the ratios of measurements to a yardstick
    run beside each, times the yardstick's frames a second over all of them.
    """
    shipped = programs[LABELS_A_PASS]
    tables = switch_tables(8)
    _off_and_on(shipped, tables)
    for labels in (1, 8, 24, 64):
        frames = different_frames(tables, 8, labels, "passes") if labels > 2 else _hops(tables)
        name = f"{labels} label{'s' * (labels > 1)}, cache off"
        _uncached(Measured(tables, frames), shipped, LABELS_A_PASS, 8, name)
    wide = switch_tables(40)
    measured = Measured(wide, different_frames(wide, 40, 8, "wide"))
    _uncached(measured, shipped, LABELS_A_PASS, 40, "8 labels, 40 ports, cache off")
    curves: dict[str, Curve] = {}
    for labels in STACKS:
        measured = Measured(tables, different_frames(tables, 8, labels, "curve"))
        name = f"{labels} labels, by labels a pass"
        ratios = [
            (count, _uncached(measured, programs[count], count, 8, name))
            for count in COUNTS
            if count in programs
        ]
        curves[f"frames of {labels} labels"] = [
            (count, measured.plain_a_second / ratio) for count, ratio in ratios
        ]
    return curves


def _hops(tables: SwitchTables) -> list[Frame]:
    """Frames of one label: a hop."""
    random = Random("hops")
    links = [(1, hop) for hop, port in sorted(tables.hops.items()) if port != 1]
    return [
        (port, (NARROW.label(HOP, hop),), datagram(random.randbytes(PAYLOAD)))
        for port, hop in random.choices(links, k=FRAMES)
    ]


def _uncached(measured: Measured, program: bytes, count: int, ports: int, name: str) -> float:
    """The time that the switch takes without its flow cache, in times of the yardstick."""
    tables, frames = measured.tables, measured.frames
    switch = _switch(program, count, tables, ports, cached=False)
    assert switch.cache is None
    _check(switch, tables, frames)
    before = switch.passes
    work = _through(switch, frames)
    work()
    return measured(
        f"software switch, {name}",
        work,
        labels_a_pass=count,
        passes_a_frame=(switch.passes - before) / len(frames),
    )


def _off_and_on(program: bytes, tables: SwitchTables) -> None:
    """The same frames of 8 labels without the flow cache, with it and never in it, and from it."""
    frames = different_frames(tables, 8, 8, "cache")
    measured = Measured(tables, frames)
    switch = _switch(program, LABELS_A_PASS, tables, 8, cached=False)
    assert switch.cache is None
    _check(switch, tables, frames)
    measured("software switch, cache off", _through(switch, frames))

    switch = _switch(program, LABELS_A_PASS, tables, 8, cached=True)
    cache = switch.cache
    assert cache is not None
    _check(switch, tables, frames)
    through = _through(switch, frames)

    def anew() -> int:
        cache.clear()
        return through()

    hits = cache.hits
    anew()
    share = (cache.hits - hits) / len(frames)
    measured("software switch, every frame new to the cache", anew, hits_a_frame=share)
    assert cache.hits == hits, "frames that should all differ were found in the cache"

    # Other datagrams behind the same labels, so that only what the parser looked at is the same.
    random = Random("others")
    others = [(port, labels, datagram(random.randbytes(PAYLOAD))) for port, labels, _ in frames]
    _check(switch, tables, others)
    hits = cache.hits
    again = _through(switch, others)
    again()
    share = (cache.hits - hits) / len(others)
    assert share == 1
    Measured(tables, others)("software switch, cached", again, hits_a_frame=share)


def _switch(
    program: bytes, count: int, tables: SwitchTables, ports: int, cached: bool
) -> SimpleSwitch:
    switch = SimpleSwitch(cached=cached)
    switch.load(program)
    switch.apply({entry.key: entry for entry in entries_of(tables, ports, count)})
    return switch


def _check(switch: SimpleSwitch, tables: SwitchTables, frames: Sequence[Frame]) -> None:
    for port, labels, behind in frames:
        copies = sorted(switch.process(port, stack_frame(labels, behind)))
        assert copies == modelled(tables, port, labels, behind)


def _through(switch: SimpleSwitch, frames: Sequence[Frame]) -> Work:
    sent = [(port, stack_frame(labels, behind)) for port, labels, behind in frames]
    process = switch.process

    def work() -> int:
        return sum(len(process(port, frame)) for port, frame in sent)

    return work
