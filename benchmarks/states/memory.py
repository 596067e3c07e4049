"""Bytes a rule (STARE IV-A, Table III, Fig. 8): what a switch's process grows by.

    python -m benchmarks.states.memory registers|table

prints the process's resident bytes as rules come, one process a run, as `run` starts them.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
from p4_products import products

from benchmarks.support.results import Lines
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.states.frames import pack_frame
from stackcast.udfs.states.messages import MessageKind, StateHeader, group_of
from stackcast.udfs.switches.ports import port_groups
from stackcast.udfs.switches.state_entries import publishing_port, spanning, state_row

#: As many as the registers have room for; state 0 is none.
RULES = 2047
STEP = 178
RUNS = 5
SWITCHES = 16
"""In one process, each with the same rules: one alone finds room in what its start left free."""
PROGRAMS = {"registers": "state_replication", "table": "state_replication_table"}
#: Of STARE's Table III; Open vSwitch and BMv2 were theirs.
TEXT = {"registers": 119, "table": 184, "OpenFlow": 586}
#: Bits per state, by sizes.p4. Registers: ports of this generation and of the one before, and its
#: number; links with a register in a period, and its number. A row: key and mask; the text counts
#: 32 and 32.
BITS = {"registers": 64 + 64 + 32 + 64 + 32, "table": 22 + 64}
_HOST = 0x0A000001


def run(runs: int = RUNS) -> None:
    """Measures both variants."""
    lines = Lines("states", "memory")
    for kind in PROGRAMS:
        seen = [_in_a_process(kind) for _ in range(runs)]
        rules = [at for at, _ in seen[0]]
        grown = np.array([[size - points[0][1] for _, size in points] for points in seen])
        slopes = [float(np.polyfit(rules, each, 1)[0]) for each in grown]
        for at, sizes in zip(rules, grown.T, strict=True):
            lines.say("memory", kind=kind, rules=at, grown=float(sizes.mean()), half=half(sizes))
        lines.say(
            "rule",
            kind=kind,
            bytes=statistics.mean(slopes),
            half=half(slopes),
            runs=runs,
            bits=BITS[kind],
            text=TEXT[kind],
        )


def half(values) -> float:
    """Half of the 95 % confidence interval of a mean."""
    return 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _in_a_process(kind: str) -> list[tuple[int, float]]:
    command = [sys.executable, "-m", "benchmarks.states.memory", kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [tuple(point) for point in json.loads(done.stdout)]


def _config(kind: str) -> bytes:
    return products(PROGRAMS[kind])[1].read_bytes()


def _switch(config: bytes) -> SimpleSwitch:
    switch = SimpleSwitch()
    switch.load(config)
    entries = [
        *port_groups("s", [1, 2]),
        publishing_port("s", 1, _HOST),
        spanning("s", [2], [1]),
    ]
    switch.apply({entry.key: entry for entry in entries})
    return switch


def _grow(kind: str) -> Iterator[tuple[int, float]]:
    """Rules, and resident bytes a switch."""
    if kind == "registers":
        yield from _registers()
        return
    switches = [_switch(_config(kind)) for _ in range(SWITCHES)]
    for state in range(1, RULES + 1):
        for switch in switches:
            entry = state_row("s", state, 0b01)
            switch.apply({entry.key: entry})
        if (state - 1) % STEP == 0:
            gc.collect()
            # What the first of a kind needs is no cost of a rule.
            yield state - 1, _resident() / SWITCHES


def _registers() -> Iterator[tuple[int, float]]:
    """Registers are there from the start, so a rule costs what room for one more state does: of
    switches with room for so many, all of it used."""
    program = json.loads(_config("registers"))
    kept = []
    for room in (1, *range(2 * STEP, RULES + 1, 2 * STEP)):
        for register in program["register_arrays"]:
            register["size"] = room + 1
        config = json.dumps(program).encode()
        # What the first switch of a program needs, they share.
        kept.append(_switch(config))
        gc.collect()
        before = _resident()
        for _ in range(SWITCHES):
            kept.append(_switch(config))
            for state in range(1, room + 1):
                _register(kept[-1], state)
        gc.collect()
        yield room, (_resident() - before) / SWITCHES


def _register(switch: SimpleSwitch, state: int) -> None:
    group = group_of(MessageKind.REGISTER, state)
    copies = switch.process(1, pack_frame(_HOST, group, StateHeader(1, state).pack()))
    assert len(copies) == 2, "a register goes on by the link, and is acknowledged"


def _resident() -> int:
    """What is free goes back to the system first, or rules would find room in it."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - of the kernel
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(json.dumps(list(_grow(sys.argv[1]))))
