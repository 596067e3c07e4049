"""The same frames through the real BMv2, between pairs of virtual interfaces."""

from __future__ import annotations

import os
import select
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from random import Random

from p4_products import products
from real_switch import RealSwitch
from virtual_trees_cases import datagram, entries_of, modelled, stack_frame

from benchmarks.compile import say
from benchmarks.p4 import text_program
from benchmarks.p4.passes import counted_text, draw, text_arrivals
from benchmarks.p4.speed import Frame, different_frames, switch_tables
from benchmarks.p4.workloads import Workload, ports_of_switch
from stackcast.switch.bmv2.simple_switch import SimpleSwitch

PORTS = 8
WINDOW = 16
"""Frames on their way at a time, few enough for the queues of BMv2."""
RUNS = 5
PATIENCE = 3.0
TEXT_VISITS = 60
"""Visits of each workload whose passes of the text's program are counted in BMv2."""
SETTLED = 0.03
"""Seconds without a pass after which there come no more."""
Sent = Sequence[tuple[int, bytes, int]]
"""Ingress port, frame, copies that must come."""


class Windowed(RealSwitch):
    """A BMv2 that is sent frames before the copies of the last ones are back."""

    def stream(self, frames: Sent) -> int:
        """Returns the copies that came back."""
        by_file = {raw.fileno(): port for port, raw in self._sockets.items()}
        ready = select.epoll()
        for file in by_file:
            ready.register(file, select.EPOLLIN)
        waiting: deque[int] = deque()  # copies that came when each frame is through
        came = due = 0
        for port, frame, copies in frames:
            while len(waiting) >= WINDOW:
                fresh = self._collect(ready, by_file)
                if not fresh:
                    return came
                came += fresh
                while waiting and waiting[0] <= came:
                    waiting.popleft()
            self._sockets[port].send(frame)
            due += copies
            waiting.append(due)
        while came < due:
            fresh = self._collect(ready, by_file)
            if not fresh:
                break
            came += fresh
        ready.close()
        return came

    def _collect(self, ready: select.epoll, by_file: dict[int, int]) -> int:
        found = ready.poll(PATIENCE)
        return sum(len(self._arrived(by_file[file])) for file, _ in found)


def beside(binary: str) -> None:
    """Frames a second of BMv2 on the whole machine, and of the software switch, both in wall time.

    BMv2 has threads of its own, and the sockets at both ends are read and written by this process:
    what is measured is all of it.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    info, program = products("virtual_trees")
    tables = switch_tables(PORTS)
    entries = entries_of(tables, PORTS)
    ours = SimpleSwitch(cached=False)
    ours.load(program.read_bytes())
    ours.apply({entry.key: entry for entry in entries})
    with tempfile.TemporaryDirectory() as folder:
        real = Windowed(binary, Path(folder), PORTS)
        try:
            real.load(info.read_text(), program.read_bytes())
            real.insert(entries)
            for labels in (8, 24, 64):
                frames = different_frames(tables, PORTS, labels, "bmv2")
                sent = []
                for port, stack, behind in frames:
                    frame, wanted = (
                        stack_frame(stack, behind),
                        modelled(tables, port, stack, behind),
                    )
                    assert sorted(real.process(port, frame, len(wanted), 0.0)) == wanted
                    assert sorted(ours.process(port, frame)) == wanted
                    sent.append((port, frame, len(wanted)))
                _report(real, ours, frames, sent, labels)
        finally:
            real.close()


def the_text(binary: str, workloads: Sequence[Workload], info: str, program: bytes) -> None:
    """Reports passes of the text's program in BMv2, at visits that also the software switch has.

    Its copies must be those, bit by bit. Networks with more ports a switch than `PORTS` are left
    out.
    """
    with tempfile.TemporaryDirectory() as folder:
        real = RealSwitch(binary, Path(folder), PORTS)
        try:
            for work in workloads:
                if max(link.port for link in work.network.links) <= PORTS:
                    _text_in(real, work, info, program)
        finally:
            real.close()


def _text_in(real: RealSwitch, work: Workload, info: str, program: bytes) -> None:
    visits = sorted(Random(work.name).sample(draw(work, text_arrivals(work)), TEXT_VISITS))
    in_software = counted_text(work, visits, program)
    behind = datagram()
    seen = {}
    for switch, of_switch in groupby(visits, lambda visit: visit[0]):
        tables = work.tables[switch]
        real.load(info, program)
        real.insert(text_program.entries(tables, ports_of_switch(work.network, switch)))
        before = _passes(real)
        for visit in of_switch:
            _, port, labels = visit
            way = text_program.by_hand(tables, port, labels)
            copies = real.process(port, stack_frame(labels, behind), len(way.copies), 0.0)
            wanted = [(out, stack_frame(left, behind)) for out, left in way.copies]
            assert sorted(copies) == wanted, (work.name, visit)
            after = _passes(real)
            seen[visit] = after - before
            before = after
    assert seen == in_software, work.name
    say(
        "passes, the text, in BMv2",
        stacks=work.name,
        visits=len(visits),
        mean=sum(seen.values()) / len(seen),
        most=max(seen.values()),
        in_the_software_switch=sum(in_software.values()) / len(in_software),
    )


def _passes(real: RealSwitch) -> int:
    """All passes so far, once there come no more: the frame itself is still on its way where its
    copies have left.
    """
    last = -1
    while (now := sum(packets for packets, _ in real.counter(text_program.PASSES))) != last:
        last = now
        time.sleep(SETTLED)
    return now


def _report(
    real: Windowed, ours: SimpleSwitch, frames: Sequence[Frame], sent: Sent, labels: int
) -> None:
    copies = sum(number for _, _, number in sent)
    wall: dict[str, list[float]] = {"ours": [], "real": [], "alone": []}
    came = []
    for _ in range(RUNS):
        began = time.perf_counter()
        assert sum(len(ours.process(port, frame)) for port, frame, _ in sent) == copies
        middle = time.perf_counter()
        came.append(real.stream(sent))
        ended = time.perf_counter()
        for port, frame, number in sent:
            real.process(port, frame, number, 0.0)
        wall["ours"].append(middle - began)
        wall["real"].append(ended - middle)
        wall["alone"].append(time.perf_counter() - ended)
    median = {name: statistics.median(seconds) for name, seconds in wall.items()}
    say(
        f"BMv2, {labels} labels",
        time="wall",
        frames=len(frames),
        copies_a_frame=copies / len(frames),
        frames_a_second=round(len(frames) / median["real"]),
        one_by_one_a_second=round(len(frames) / median["alone"]),
        lost_copies=sum(copies - number for number in came),
        window=WINDOW,
        software_switch_a_second=round(len(frames) / median["ours"]),
        to="software switch, cache off",
        ratio=median["real"] / median["ours"],
    )
