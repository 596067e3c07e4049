"""A job in a process of its own, which stands still (SIGSTOP) before a step that it is told.

    python tests/support/stopping_job.py MODULE:NAME FILE jobs/JOB.py [ARGUMENT ...]

It stops where it is about to call what NAME is in MODULE, if FILE is there then, and removes that.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crash_world import Program
from paths import ROOT, SUPPORT


class StoppingJob:
    """Such a process, and its file. conf: of Spark."""

    def __init__(
        self, folder: Path, step: str, job: str, *arguments: str, conf: Mapping[str, object]
    ) -> None:
        self._file = folder / "stop-here"
        own = {"spark.master": "local[1]", "spark.driver.memory": "1g"} | dict(conf)
        options = " ".join(f"--conf {shlex.quote(f'{k}={v}')}" for k, v in own.items())
        self.program = Program(
            folder,
            str(SUPPORT / "stopping_job.py"),
            step,
            str(self._file),
            str(ROOT / "jobs" / job),
            *arguments,
            PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell",
        )

    def stop_at_step(self) -> None:
        """From now on it stops at the step."""
        self._file.touch()

    def wait_until_stopped(self, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        state = Path(f"/proc/{self.program.process.pid}/stat")
        # The state comes behind the name, which is in brackets.
        while state.read_text().rpartition(")")[2].split()[0] != "T":
            assert self.program.process.poll() is None, self.program.output[-4000:]
            assert time.monotonic() < deadline, self.program.output[-4000:]
            time.sleep(0.05)

    def go_on(self) -> None:
        self.program.process.send_signal(signal.SIGCONT)


def _stops(name: str, file: Path) -> None:
    module_name, _, path = name.partition(":")
    *owners, last = path.split(".")
    owner: Any = importlib.import_module(module_name)
    for each in owners:
        owner = getattr(owner, each)
    step = getattr(owner, last)

    @functools.wraps(step)
    def stopping(*arguments: Any, **named: Any) -> Any:
        if file.exists():
            file.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return step(*arguments, **named)

    setattr(owner, last, stopping)


if __name__ == "__main__":
    _stops(sys.argv[1], Path(sys.argv[2]))
    sys.argv = sys.argv[3:]
    runpy.run_path(sys.argv[0], run_name="__main__")
