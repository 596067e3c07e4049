"""Child processes that never outlive their parent.

Two independent nets: the kernel sends SIGTERM to the child when the parent dies
(``PR_SET_PDEATHSIG``), and the child's standard input is a pipe that only the parent holds, so
that a child which watches it sees its end. Ctrl-C goes to every process of a terminal; children
ignore it, because the parent decides in which order things end.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any

from stackcast.udfs.errors import LabError

_LOG_LINES = 12
_TIED = files("stackcast.lab.up").joinpath("tied.py").read_text(encoding="utf-8")


def start_tied(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Starts a child that is tied to this process; options: those of ``subprocess.Popen``.

    ``stdin`` is a pipe: keep ``child.stdin`` open as long as the child is to live. The kernel
    watches the *thread* that starts the child: start children from a thread that lives as long as
    they are needed, best the main one.

    Raises FileNotFoundError where there is no such program.
    """
    program = shutil.which(command[0])
    if program is None:
        raise FileNotFoundError(f"program {command[0]!r} was not found")
    # No preexec_fn: Python would run in the fork of this process, drop what other threads had there
    # and with it Py4J's connections, which shuts them down for this process, too.
    before = (sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()))
    return subprocess.Popen([*before, program, *command[1:]], stdin=subprocess.PIPE, **options)


def stop_process(child: subprocess.Popen[Any], timeout: float) -> None:
    """Ends ``child`` and waits until it is gone: end of its input and SIGTERM, then SIGKILL.

    Parameters
    ----------
    timeout: seconds that it gets to end by itself before it is killed.
    """
    try:
        if child.stdin:
            child.stdin.close()
    except OSError:
        pass  # unwritten input of a child that is gone already
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        except BaseException:  # cut short: it ends all the same
            child.kill()
            child.wait()
            raise
    if child.stdout:
        child.stdout.close()


class Child:
    """A child process that speaks lines: it says one line when it is ready, then answers lines.

    A context manager: ``with Child(...) as child: child.start(30)``. Standard error goes to
    ``log``. Errors: ``LabError`` ``CHILD_FAILED`` (it ended, with the last lines of its log) and
    ``CHILD_SILENT`` (nothing came in time).
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._arguments = [str(each) for each in arguments]
        self._log = Path(log)
        self._env = dict(env) if env is not None else None
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        # Lines that are still to come: more than one after a question that was given up.
        self._owed = 0

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Process id, None while it does not run."""
        return self._process.pid if self._process else None

    def alive(self) -> bool:
        """True while the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float) -> str:
        """Starts the process; returns its first line, which says that it is ready."""
        self.begin()
        return self.ready(timeout)

    def begin(self) -> None:
        """Starts the process, and does not wait for it: `ready` does."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._unread, self._owed = b"", 1
        with self._log.open("wb") as log:
            self._process = start_tied(
                self._arguments, stdout=subprocess.PIPE, stderr=log, env=self._env
            )

    def ready(self, timeout: float) -> str:
        """Returns the first line of a process that was begun."""
        try:
            return self._line(timeout)
        except BaseException:
            self.stop()
            raise

    def ask(self, line: str, timeout: float) -> str:
        """Writes one line to the child and returns the line that it answers.

        Answers to questions that were given up as ``CHILD_SILENT`` are passed over.
        """
        if self._process is None or self._process.stdin is None:
            raise LabError("CHILD_FAILED", f"{self.name} is not running: start it first")
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failed() from None
        self._owed += 1
        return self._line(timeout)

    def stop(self, timeout: float = 5) -> None:
        """Ends the process and waits until it is gone. Does nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            stop_process(process, timeout)

    def _line(self, timeout: float) -> str:
        """The last of the lines that are owed."""
        assert self._process is not None and self._process.stdout is not None
        output = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout
        while self._owed:
            while b"\n" not in self._unread:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([output], [], [], left)[0]:
                    raise LabError(
                        "CHILD_SILENT",
                        f"{self.name} did not respond within {timeout:g} s; see {self._log}",
                        name=self.name,
                    )
                # Past Popen's own buffer, or select could wait for what was read already.
                piece = os.read(output, 65536)
                if not piece:
                    raise self._failed()
                self._unread += piece
            line, _, self._unread = self._unread.partition(b"\n")
            self._owed -= 1
        return line.decode()

    def _failed(self) -> LabError:
        status = None
        if self._process is not None:
            try:
                status = self._process.wait(1)
            except subprocess.TimeoutExpired:
                status = None  # it closed its output and runs on
        lines: list[str] = []
        if self._log.exists():
            lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        said = "\n  ".join(lines) or "(nothing)"
        return LabError(
            "CHILD_FAILED",
            f"{self.name} ended with exit code {status}. Last lines of {self._log}:\n  {said}",
            name=self.name,
            status=status,
        )
