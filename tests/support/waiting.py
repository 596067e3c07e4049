"""Wait for a condition in another thread, process or switch."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Running(Protocol):
    """A process and its output so far."""

    process: subprocess.Popen
    output: str


def until(holds: Callable[[], object], *running: Running, seconds: float = 600) -> None:
    """Wait until a condition is true; fails when one of the programs ends, or after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not holds():
        words = "".join(program.output[-4000:] for program in running)
        assert all(program.process.poll() is None for program in running), words
        assert time.monotonic() < deadline, words or f"waited for {seconds:g} s"
        time.sleep(0.05)


def still_runs(pid: int) -> bool:
    """Whether a process runs; an ended process that was not waited for does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
