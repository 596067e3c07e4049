"""Which file of tests ended and how far the run is, where several processes run them.

Their dots would say neither: in place of them stands a line for each file that ended::

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

#: In this order; what else there is (xfailed, ...) behind them.
_WORDS = ("failed", "error", "passed", "skipped")


class Files:
    """Counts per file what has ended. seconds: about how long a file takes, by its name."""

    def __init__(
        self,
        seconds: Callable[[str], float],
        write: Callable[[str, bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._write = write
        self._clock = clock
        self._left: dict[str, set[str]] = {}
        self._began: dict[str, float] = {}
        self._seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._failed: defaultdict[str, list[str]] = defaultdict(list)
        self._ended: list[str] = []

    def collected(self, names: Sequence[str]) -> None:
        """All tests, by node id; each process says the same."""
        if not self._left:
            for name in names:
                self._left.setdefault(_file(name), set()).add(name)

    def begun(self, name: str) -> None:
        self._began.setdefault(_file(name), self._clock())

    def told(self, name: str, category: str) -> None:
        """What a report counts as; empty for a part of a test that nobody counts."""
        if category:
            self._seen[_file(name)][category] += 1
        if category in ("failed", "error"):
            self._failed[_file(name)].append(name)

    def ended(self, name: str) -> None:
        """A test is over; with the last one of a file, its line is written."""
        file = _file(name)
        left = self._left.get(file)
        if not left or name not in left:
            return
        left.discard(name)
        if not left:
            self._ended.append(file)
            self._write(self._line(file), bool(self._failed[file]))

    def _line(self, file: str) -> str:
        whole = sum(map(self._seconds, self._left))
        percent = 100 * sum(map(self._seconds, self._ended)) / whole
        seen = self._seen[file]
        words = [*_WORDS, *sorted(seen.keys() - set(_WORDS))]
        counts = ", ".join(f"{seen[word]} {word}" for word in words if seen[word])
        took = self._clock() - self._began.get(file, self._clock())
        running = [PurePath(each).stem for each in self._began if self._left.get(each)]
        beside = f"; running: {', '.join(running)}" if running else ""
        done = f"{len(self._ended)} of {len(self._left)} files{beside}"
        line = f"[{percent:3.0f} %] {file}: {counts} in {took:.0f} s ({done})"
        return "\n".join([line, *(f"        {name}" for name in self._failed[file])])


class Reporter:
    """Tells `Files` what pytest and xdist say, in the process that started the others."""

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
        self._files.begun(nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> Generator[None, tuple[Any, ...], tuple[Any, ...]]:
        """No dot; the summary at the end gets its words."""
        category, letter, word = yield
        if not self._running or not isinstance(report, pytest.TestReport):
            return category, letter, word
        self._files.told(report.nodeid, category)
        return category, "", ""

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Of a process that died, nothing more comes than this.
        if report.when == "???":
            self._files.ended(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._files.ended(nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, Any, Any]:
        self._running = False
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Report by file where several processes run the tests and nobody asks for more or less."""
    several = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if several and config.get_verbosity() == 0:
        config.pluginmanager.register(Reporter(config), "file-progress")


def _file(name: str) -> str:
    return name.partition("::")[0]
