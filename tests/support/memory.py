"""Peak memory of a run: the summed PSS of its processes, sampled once per second.

PSS counts a page that several processes share once in total, so the sum is what the run takes from
the machine. A process belongs to the run if its environment has the run's mark, whichever process
started it. The kernel needs 30 ms for the PSS of a large process, so a sample reads it again only
if the resident size has changed, or after `MAX_AGE` samples.
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
MAX_AGE = 20
#: Change of the resident size, as a share, from which the PSS is read again.
_CHANGE = 0.02

#: Process id and start time (field 22 of stat): ids are reused, but not with the same start time.
_Key = tuple[str, str]


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
        self._belongs: dict[_Key, bool] = {}
        #: Resident size in pages, PSS in bytes and age in samples, by process.
        self._sizes: dict[_Key, tuple[int, int, int]] = {}
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
        before, self._sizes = self._sizes, {}
        for key, folder in self._processes():
            resident = _resident_pages(folder)
            last_resident, pss, age = before.get(key, (0, 0, MAX_AGE))
            if age >= MAX_AGE or abs(resident - last_resident) > _CHANGE * last_resident:
                last_resident, pss, age = resident, _pss(folder), 0
            self._sizes[key] = last_resident, pss, age + 1
        return sum(pss for _, pss, _ in self._sizes.values())

    def _run(self) -> None:
        while True:
            total = self.sample()
            if total > self.peak:
                self.peak, self.at_peak = total, sorted(self.running.copy())
            if self._ending.wait(PERIOD_S):
                return

    def _processes(self) -> Iterator[tuple[_Key, Path]]:
        before, self._belongs = self._belongs, {}
        for folder in self._proc.iterdir():
            if not folder.name.isdigit():
                continue
            try:
                key = folder.name, (folder / "stat").read_text().rpartition(")")[2].split()[19]
                if key not in before:
                    before[key] = self._mark in (folder / "environ").read_bytes()
            except OSError:
                continue
            self._belongs[key] = before[key]
            if before[key] or folder.name == str(os.getpid()):
                yield key, folder


def _resident_pages(folder: Path) -> int:
    """Return the resident size of a process in pages; 0 if it has ended."""
    try:
        return int((folder / "statm").read_bytes().split()[1])
    except OSError:
        return 0


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
