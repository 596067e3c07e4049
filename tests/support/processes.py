"""How many processes run the tests, and which files each of them takes (pytest-xdist).

Integration tests wait for JVMs, brokers and time-outs for much of their time, and each process that
runs them may hold a Spark session and start a job with another. Two processes take files with
integration tests, those that take longest first. A third process takes files of unit tests, so that
both cores stay busy without the memory of a third Spark. A file stays in one process, because its
tests share what its fixtures start.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path, PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: The last of them takes files of unit tests only.
PROCESSES = 3
#: The name that xdist gives the last process.
UNIT_PROCESS = f"gw{PROCESSES - 1}"

#: Files that take longest, with approximate seconds of their unit and integration tests. A run
#: begins with them, so that no process waits at the end for one of them.
SECONDS = {
    "test_embedded": 150,
    "test_kills": 110,
    "test_table_faults": 60,
    "test_tables": 60,
    "test_refresh_switches": 60,
    "test_rerequest": 55,
    "test_attribute_stream": 55,
    "test_itch_stream": 50,
    "test_state_kills": 45,
    "test_slices": 40,
    "test_retune": 40,
    "test_retune_service": 40,
    "test_sql_job": 30,
    "test_secured_kafka": 30,
    "test_state_jobs": 30,
    "test_lab_network": 27,
    "test_lab": 35,
    "test_broker": 29,
    "test_damaged_files": 30,
    "test_standard_streams": 30,
    "test_backup": 25,
    "test_console_access": 25,
    "test_mobility_command": 45,
    "test_doc_runs": 35,
}
#: Any other file.
DEFAULT_SECONDS = 4

#: Files with tests of the long tier that take more than `LONG_SECONDS`.
LONG = {
    "test_doc_lab": 700,
    "test_kills": 600,
    "test_retune_service": 600,
    "test_standalone_cluster": 450,
    "test_doc_states": 350,
    "test_embedded": 250,
    "test_tutorial": 200,
    "test_state_kills": 150,
}
#: A file with tests of the long tier, and a file with property tests at their full length.
LONG_SECONDS = 40
PROPERTY_SECONDS = 8

_UNIT = re.compile(r"^pytestmark = pytest\.mark\.unit$", re.MULTILINE)


def seconds(file: str) -> float:
    """Return about how long the unit and integration tests of a file take."""
    return SECONDS.get(PurePath(file).stem, DEFAULT_SECONDS)


def long_seconds(file: str, has_long_tests: bool) -> float:
    """Return about how long the long tests of a file take, its property tests included."""
    return LONG.get(PurePath(file).stem, LONG_SECONDS if has_long_tests else PROPERTY_SECONDS)


def several_files(config: pytest.Config) -> bool:
    """Return whether a run takes all tests, a folder of them or more than one file."""
    files = {argument.partition("::")[0] for argument in config.args}
    return len(files) > 1 or any((config.invocation_params.dir / name).is_dir() for name in files)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Choose the number of processes, unless an option does, before xdist reads it.

    xdist's own processes call this hook too. Tests chosen by -k or --lf are few, and a debugger or
    output without capture needs a single process.
    """
    option = config.option
    if config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        options = [config.getoption(name, False) for name in ("usepdb", "trace", "keyword", "lf")]
        single = any(options) or option.capture == "no"
        if option.numprocesses is None and not single and several_files(config):
            # Unit tests wait for nothing, so more processes than cores would gain nothing.
            option.numprocesses = PROCESSES - 1 if option.markexpr == "unit" else PROCESSES
        if option.numprocesses and option.dist == "no":
            option.dist = "loadfile"
            # It would begin with the files that have most tests.
            option.loadscopereorder = False
    return (yield)


class Scheduler(LoadFileScheduling):
    """Gives files to processes in their order; the unit process takes only files of unit tests."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._is_unit: dict[str, bool] = {}

    def _next_file(self, node: WorkerController) -> str | None:
        # With fewer files than processes, xdist ends some of them, whichever start last.
        if node.gateway.id != UNIT_PROCESS or len(self.nodes) < PROCESSES:
            return next(iter(self.workqueue), None)
        return next(filter(self._has_unit_tests, self.workqueue), None)

    def _has_unit_tests(self, file: str) -> bool:
        if file not in self._is_unit:
            text = Path(self.config.rootpath, file).read_text("utf-8")
            self._is_unit[file] = bool(_UNIT.search(text))
        return self._is_unit[file]

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = self._next_file(node)
        if file is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if not node.shutting_down and self._next_file(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler | None:
    """Schedule by file in the order of `slowest_first`, unless another way is asked for."""
    return Scheduler(config, log) if config.option.dist == "loadfile" else None


def slowest_first(items: list[pytest.Item], takes_long_tier: bool) -> None:
    """Sort tests in place by the time that their files take; a file's tests stay together."""
    long = {str(item.path) for item in items if item.get_closest_marker("long")}
    integration = {str(item.path) for item in items if item.get_closest_marker("integration")}

    def rank(item: pytest.Item) -> tuple[float, bool, str]:
        file = str(item.path)
        total = seconds(file) + (long_seconds(file, file in long) if takes_long_tier else 0)
        return -total, file not in integration, file

    items.sort(key=rank)
