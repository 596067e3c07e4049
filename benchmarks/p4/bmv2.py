"""The same frames through the real BMv2, between pairs of virtual interfaces."""

from __future__ import annotations

import os
import select
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from p4_products import products
from real_switch import RealSwitch
from virtual_trees_cases import entries_of, modelled, stack_frame

from benchmarks.compile import say
from benchmarks.p4.speed import Frame, different_frames, switch_tables
from lab.switch.bmv2.simple_switch import SimpleSwitch

PORTS = 8
WINDOW = 16
"""Frames on their way at a time, few enough for the queues of BMv2."""
RUNS = 5
PATIENCE = 3.0
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
