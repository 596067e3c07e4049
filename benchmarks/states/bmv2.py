"""Bytes a rule (STARE IV-A, Table III) of BMv2's ``simple_switch``, by its resident bytes.

Entries and registers are written by the ``simple_switch_CLI`` that is installed beside it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from p4_products import products

from benchmarks.states.memory import PROGRAMS, RULES, RUNS, STEP, TEXT, half
from benchmarks.support.results import Lines
from stackcast.lab.up.broker import free_ports

REGISTERS = ("subscribers", "earlier", "generation", "heard", "informed", "began")
START_S = 60.0


def run(switch: Path, runs: int = 4 * RUNS) -> None:
    """Measures both programs; ``switch``: of BMv2, with its CLI beside it."""
    lines = Lines("states", "bmv2")
    for kind, grow in (("registers", _registers), ("table", _table)):
        slopes = [float(np.polyfit(*zip(*grow(switch), strict=True), 1)[0]) for _ in range(runs)]
        lines.say(
            "bmv2", kind=kind, bytes=float(np.mean(slopes)), half=half(slopes), text=TEXT[kind]
        )


def _registers(switch: Path) -> Iterator[tuple[int, int]]:
    """Room for so many states, all of it written, and resident bytes; of a process each."""
    program = json.loads(_config("registers"))
    for room in range(2 * STEP, RULES + 1, 2 * STEP):
        for register in program["register_arrays"]:
            register["size"] = room + 1
        with _running(switch, json.dumps(program)) as (pid, port):
            written = [
                f"register_write ingress.states.{name} {state} {1 << 31}"
                for name in REGISTERS
                for state in range(1, room + 1)
            ]
            _command(switch, port, written)
            yield room, _resident(pid)


def _table(switch: Path) -> Iterator[tuple[int, int]]:
    """Rows, and resident bytes, of one process."""
    with _running(switch, _config("table")) as (pid, port):
        for first in range(1, RULES + 1, STEP):
            rows = range(first, min(first + STEP, RULES + 1))
            _command(
                switch,
                port,
                [f"table_add ingress.states.state ingress.states.send {n} => 1" for n in rows],
            )
            yield rows[-1], _resident(pid)


def _config(kind: str) -> str:
    return products(PROGRAMS[kind])[1].read_text()


@contextmanager
def _running(switch: Path, program: str) -> Iterator[tuple[int, int]]:
    """Yields its process and the port of its tables."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.json")
        path.write_text(program)
        (port,) = free_ports(1)
        process = subprocess.Popen(
            [switch, "--thrift-port", str(port), path], stdout=subprocess.DEVNULL
        )
        try:
            _await(port)
            yield process.pid, port
        finally:
            process.kill()
            process.wait()


def _await(port: int) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _command(switch: Path, port: int, commands: Sequence[str]) -> None:
    done = subprocess.run(
        [switch.parent / "simple_switch_CLI", "--thrift-port", str(port)],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Error" not in done.stdout and "Invalid" not in done.stdout, done.stdout[-1000:]


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
