"""A job in its own process, which stops (SIGSTOP) before a step.

    python tests/support/stopping_job.py MODULE:NAME FILE jobs/JOB.py [ARGUMENT ...]

The job stops before it calls the function NAME of MODULE if FILE exists, and removes FILE.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crash_world import Program
from paths import ROOT, SUPPORT
from waiting import until


class StoppingJob:
    """The process of a job, and the file that stops it.

    Args:
        folder: folder of the file and of the output.
        step: ``MODULE:NAME`` of the function.
        job: file of the job in ``jobs``.
        arguments: arguments of the job.
        conf: Spark properties.
    """

    def __init__(
        self, folder: Path, step: str, job: str, *arguments: str, conf: Mapping[str, object]
    ) -> None:
        self._file = folder / "stop-here"
        properties = {"spark.master": "local[1]", "spark.driver.memory": "1g"} | dict(conf)
        options = " ".join(f"--conf {shlex.quote(f'{k}={v}')}" for k, v in properties.items())
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
        """Make the job stop at the step."""
        self._file.touch()

    def wait_until_stopped(self) -> None:
        state = Path(f"/proc/{self.program.process.pid}/stat")
        # The state follows the name, which is in brackets.
        until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", self.program)

    def go_on(self) -> None:
        self.program.process.send_signal(signal.SIGCONT)


def _stops(name: str, file: Path) -> None:
    module_name, _, path = name.partition(":")
    *owners, last = path.split(".")
    owner: Any = importlib.import_module(module_name)
    for name_of_owner in owners:
        owner = getattr(owner, name_of_owner)
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
