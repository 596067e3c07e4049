"""Processor time of processes by what they are, from /proc, and which descend from which."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

DRIVER = "driver"
_TICK = os.sysconf("SC_CLK_TCK")
#: Threads of a JVM that are told apart, by how their names begin.
_COMPILER, _COLLECTOR = ("C1 ", "C2 ", "Sweeper"), ("GC ", "G1 ")

Cores = dict[str, float]
"""Seconds of a core by component, and again those of them in the kernel, as ``kernel: NAME``."""
Used = dict[tuple[str, int], float]
"""The same by component and process: what a process had used must not count as given back once it
has ended, and Spark's daemon of workers leaves theirs to nobody."""


def used(roots: Mapping[int, str]) -> Used:
    """Returns the seconds that living processes have used, with all that descend from them.

    roots: names by process; what descends from one that is named has that name. Of what descends
    from a `DRIVER`, Spark's JVMs and Python's workers are told apart.
    """
    found: Used = {}

    def add(name: str, user: float, kernel: float) -> None:
        found[name, root] = user + kernel
        found[f"kernel: {name}", root] = kernel

    for root, name in _with_descendants(roots):
        times = _times(Path(f"/proc/{root}/stat"))
        if times is None:
            continue
        user, kernel = times
        command = command_of(root)
        if name != DRIVER:
            add(name, user, kernel)
        elif b"pyspark.daemon" in command or b"pyspark.worker" in command:
            add("Python workers", user, kernel)
        elif b"org.apache.spark" in command:
            for part, prefixes in (("JVM: compiler", _COMPILER), ("JVM: collector", _COLLECTOR)):
                threads = _threads(root, prefixes)
                add(part, *threads)
                user, kernel = user - threads[0], kernel - threads[1]
            add("JVM", user, kernel)
        else:
            add(name, user, kernel)
    return found


def between(before: Used, after: Used) -> Cores:
    """Returns what processes that live in the end used since, by component."""
    spent: Cores = {}
    for (name, process), seconds in after.items():
        since = seconds - before.get((name, process), 0.0)
        spent[name] = spent.get(name, 0.0) + since
    return spent


def added(parts: Iterable[Cores]) -> Cores:
    total: Cores = {}
    for part in parts:
        for name, seconds in part.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def in_all(cores: Cores) -> float:
    return sum(seconds for name, seconds in cores.items() if not name.startswith("kernel: "))


def in_kernel(cores: Cores) -> float:
    return sum(seconds for name, seconds in cores.items() if name.startswith("kernel: "))


def command_of(process: int) -> bytes:
    """Empty where it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(root: int) -> list[int]:
    """Returns a process and all that descend from it."""
    return [process for process, _ in _with_descendants({root: ""})]


def _with_descendants(roots: Mapping[int, str]) -> list[tuple[int, str]]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text("utf-8").rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = list(roots.items())
    for process, name in found:
        found += [(child, name) for child in children.get(process, []) if child not in roots]
    return found


def _times(path: Path) -> tuple[float, float] | None:
    """Returns seconds in user mode and in the kernel."""
    try:
        fields = path.read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) / _TICK, int(fields[12]) / _TICK


def _threads(process: int, prefixes: tuple[str, ...]) -> tuple[float, float]:
    user = kernel = 0.0
    for path in Path(f"/proc/{process}/task").glob("*/stat"):
        try:
            name = path.with_name("comm").read_text("utf-8")
        except OSError:
            continue
        times = _times(path) if name.startswith(prefixes) else None
        if times is not None:
            user, kernel = user + times[0], kernel + times[1]
    return user, kernel
