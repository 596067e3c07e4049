"""Peak memory of a run: the summed PSS of its processes, sampled once per second.

PSS counts a page that several processes share once in total, so the sum is what the run takes from
the machine. A process belongs to the run if its environment has the run's mark, whichever process
started it.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

MARK = "STACKCAST_TEST_RUN"
PERIOD_S = 1.0


class Sampler:
    """Samples the memory of all processes of a run in a thread.

    Attributes:
        peak: the largest sum so far, bytes.
        running: the tests that run now.
        at_peak: the tests that ran when the sum was largest.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self.peak = 0
        self.running: set[str] = set()
        self.at_peak: list[str] = []
        self._proc = proc
        self._mark = f"{MARK}={uuid.uuid4().hex}".encode()
        self._belongs: dict[tuple[str, str], bool] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory sampler", daemon=True)

    def start(self) -> None:
        """Mark this process's environment for its children, and start to sample."""
        name, _, value = self._mark.decode().partition("=")
        os.environ[name] = value
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample, and end the thread."""
        self._ending.set()
        self._thread.join()

    def sample(self) -> int:
        """Return the summed PSS of the run's processes, bytes."""
        return sum(map(_pss, self._processes()))

    def _run(self) -> None:
        while True:
            total = self.sample()
            if total > self.peak:
                self.peak, self.at_peak = total, sorted(self.running.copy())
            if self._ending.wait(PERIOD_S):
                return

    def _processes(self) -> Iterator[Path]:
        before, self._belongs = self._belongs, {}
        for folder in self._proc.iterdir():
            if not folder.name.isdigit():
                continue
            try:
                # A process id may be reused, but not with the same start time (field 22).
                key = folder.name, (folder / "stat").read_text().rpartition(")")[2].split()[19]
                if key not in before:
                    before[key] = self._mark in (folder / "environ").read_bytes()
            except OSError:
                continue
            self._belongs[key] = before[key]
            if before[key] or folder.name == str(os.getpid()):
                yield folder


def _pss(folder: Path) -> int:
    """Return the PSS of a process, bytes; 0 if it has ended."""
    try:
        for line in (folder / "smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0


class Plugin:
    """Prints the peak, and the tests that ran then, at the end of a run."""

    def __init__(self) -> None:
        self._sampler = Sampler()
        self._sampler.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._sampler.running.add(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._sampler.running.discard(nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._sampler.stop()
        tests = ", ".join(self._sampler.at_peak) or "no test"
        terminalreporter.write_line(
            f"Peak memory: {self._sampler.peak / 1e9:.1f} GB (PSS), while {tests} ran."
        )


def configure(config: pytest.Config) -> None:
    """Sample in the process that the user started, where several processes run the tests."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Plugin(), "memory")
