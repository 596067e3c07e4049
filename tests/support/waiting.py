"""Waiting for what happens elsewhere: in another thread, process or switch."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Protocol


class Running(Protocol):
    """A process, and what it has said so far."""

    process: subprocess.Popen
    output: str


def until(holds: Callable[[], object], *running: Running, seconds: float = 600) -> None:
    """Returns once something holds; fails after that time, or when one of the programs ends."""
    deadline = time.monotonic() + seconds
    while not holds():
        words = "".join(program.output[-4000:] for program in running)
        assert all(program.process.poll() is None for program in running), words
        assert time.monotonic() < deadline, words or f"waited for {seconds:g} s"
        time.sleep(0.05)
