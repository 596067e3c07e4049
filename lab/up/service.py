"""A program that serves a lab: it starts after the lab, and ends before it.

The program prints lines of JSON: ``{"stage": TEXT}`` for each step of its start, and then
``{"ready": true}``. It ends in order on SIGTERM. Its standard error, and anything that it prints
otherwise, go to its log.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stackcast.lab.up.process import start_tied, stop_process
from stackcast.udfs.errors import LabError

#: Time that a service gets to end in order, seconds.
_STOP_S = 20.0
#: Lines of the log that an error quotes.
_LOG_LINES = 12
STARTING, READY, ENDED = "starting", "ready", "ended"


class Service:
    """A service of a lab.

    Args:
        command: the program and its arguments.
        log: file for its output.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = list(command)
        self._log = Path(log)
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._stage, self._ready = "", False

    def begin(self) -> None:
        """Start the program, from a thread that lives as long as it."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = start_tied(self._command, stdout=subprocess.PIPE, stderr=log)

    def status(self) -> dict[str, Any]:
        """Return ``state``, ``stage``, ``pid``, ``code`` (exit code) and ``log`` as they are now.

        The state is `STARTING` at first, then `READY`, and `ENDED` once the program has ended by
        itself. Before `begin`, it is `STARTING`.
        """
        code = None
        if self._process is not None:
            self._read()
            code = self._process.poll()
        state = READY if self._ready else STARTING
        return {
            "state": state if code is None else ENDED,
            "stage": self._stage,
            "pid": None if self._process is None else self._process.pid,
            "code": code,
            "log": str(self._log),
        }

    def stop(self) -> None:
        """End the program and wait until it is gone. Do nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            stop_process(process, _STOP_S)

    def _read(self) -> None:
        """Take what the program has printed since the last look."""
        assert self._process is not None and self._process.stdout is not None
        output = self._process.stdout.fileno()
        while select.select([output], [], [], 0)[0]:
            piece = os.read(output, 65536)
            if not piece:
                break
            self._unread += piece
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        if isinstance(values, dict) and ("stage" in values or "ready" in values):
            self._stage = str(values.get("stage", self._stage))
            self._ready = bool(values.get("ready", self._ready))
        else:
            with self._log.open("ab") as log:
                log.write(line + b"\n")


def ended(name: str, status: dict[str, Any]) -> LabError:
    """Return the error for a service that has ended by itself, with the last lines of its log.

    Args:
        name: name of the service.
        status: its `Service.status`.
    """
    log = Path(status["log"])
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    text = "\n  ".join(lines[-_LOG_LINES:]) or "(nothing)"
    return LabError(
        "SERVICE_ENDED",
        f"the {name} of the lab ended with exit code {status['code']}, {_when(status)}. Last lines "
        f"of {log}:\n  {text}",
        name=name,
        code=status["code"],
    )


def _when(status: dict[str, Any]) -> str:
    """Return how far a service came, in words."""
    stage = status["stage"]
    return f"during this step of its start: {stage}" if stage else "before it started to serve"
