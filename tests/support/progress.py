"""A line for each file of tests that ended, where several processes run them.

Dots would show neither the files nor how far the run is::

    [ 37 %] tests/stream/test_kills.py: 14 passed in 92 s (52 of 180 files; running: test_retune, …)
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Sequence
from pathlib import PurePath
from typing import Any

import processes
import pytest

#: The order of these outcomes in a line; any others follow.
OUTCOMES = ("failed", "error", "passed", "skipped")
#: How many of the slowest tests a run lists at its end.
SLOWEST = 10


class Files:
    """Counts outcomes per file.

    Args:
        seconds: returns about how long a file takes, by its name.
        write: prints a line; its second argument is true if a test of the file failed.
        clock: returns the time, seconds.
    """

    def __init__(
        self,
        seconds: Callable[[str], float],
        write: Callable[[str, bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._write = write
        self._clock = clock
        self._pending: dict[str, set[str]] = {}
        self._started: dict[str, float] = {}
        self._outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._failures: defaultdict[str, list[str]] = defaultdict(list)
        self._ended: list[str] = []

    def collected(self, names: Sequence[str]) -> None:
        """Register all tests by node id; every process reports the same."""
        if not self._pending:
            for name in names:
                self._pending.setdefault(_file(name), set()).add(name)

    def test_started(self, name: str) -> None:
        self._started.setdefault(_file(name), self._clock())

    def test_reported(self, name: str, outcome: str) -> None:
        """Count an outcome; it is empty for a phase of a test that does not count."""
        if outcome:
            self._outcomes[_file(name)][outcome] += 1
        if outcome in ("failed", "error"):
            self._failures[_file(name)].append(name)

    def test_ended(self, name: str) -> None:
        """Print the line of a file when its last test has ended."""
        file = _file(name)
        pending = self._pending.get(file)
        if not pending or name not in pending:
            return
        pending.discard(name)
        if not pending:
            self._ended.append(file)
            self._write(self._line(file), bool(self._failures[file]))

    def _line(self, file: str) -> str:
        total = sum(map(self._seconds, self._pending))
        percent = 100 * sum(map(self._seconds, self._ended)) / total
        outcomes = self._outcomes[file]
        order = [*OUTCOMES, *sorted(outcomes.keys() - set(OUTCOMES))]
        counts = ", ".join(f"{outcomes[name]} {name}" for name in order if outcomes[name])
        duration = self._clock() - self._started.get(file, self._clock())
        names = [PurePath(name).stem for name in self._started if self._pending.get(name)]
        running = f"; running: {', '.join(names)}" if names else ""
        progress = f"{len(self._ended)} of {len(self._pending)} files{running}"
        line = f"[{percent:3.0f} %] {file}: {counts} in {duration:.0f} s ({progress})"
        return "\n".join([line, *(f"        {name}" for name in self._failures[file])])


class Reporter:
    """Passes events of pytest and xdist to `Files`, in the process that started the others."""

    def __init__(self, config: pytest.Config) -> None:
        def write(text: str, failed: bool) -> None:
            terminal = config.pluginmanager.getplugin("terminalreporter")
            terminal.ensure_newline()
            terminal.write_line(text, red=failed)
            # A file or a pipe would show it much later.
            terminal.flush()

        self._files = Files(processes.seconds, write)
        self._running = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._files.collected(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._files.test_started(nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> Generator[None, tuple[Any, ...], tuple[Any, ...]]:
        """Count the outcome, and print no dot; the summary at the end gets its words."""
        category, letter, word = yield
        if not self._running or not isinstance(report, pytest.TestReport):
            return category, letter, word
        self._files.test_reported(report.nodeid, category)
        return category, "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # No other event follows for a process that died.
        if report.when == "???":
            self._files.test_ended(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._files.test_ended(nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, Any, Any]:
        self._running = False
        return (yield)


def configure(config: pytest.Config) -> None:
    """Report by file and list the slowest tests, unless an option asks for more or less."""
    several = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if several and config.get_verbosity() == 0:
        config.pluginmanager.register(Reporter(config), "file-progress")
    if several and config.option.durations is None:
        config.option.durations = SLOWEST


def _file(name: str) -> str:
    return name.partition("::")[0]
