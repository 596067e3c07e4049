"""How many processes run the tests, and which files each of them takes (pytest-xdist).

Tests with Spark wait for JVMs, brokers and time-outs for much of their time. A process that runs
them holds a Spark session and a broker, and starts jobs with their own sessions. Two processes take
files with Spark first, those that take longest first. The third takes only files without, so that
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

PROCESSES = 3
#: The name that xdist gives the last process, which takes no files with Spark.
THIRD = f"gw{PROCESSES - 1}"

#: Files that take longest, with approximate seconds of their unit and integration tests. A run
#: begins with them, so that no process waits at the end for one of them.
SECONDS = {
    "test_kills": 159,
    "test_rerequest": 146,
    "test_receive_host_faults": 138,
    "test_tables": 136,
    "test_itch_stream": 113,
    "test_refresh_switches": 97,
    "test_truncated_log": 90,
    "test_attribute_stream": 90,
    "test_embedded": 85,
    "test_retune": 61,
    "test_stops": 56,
    "test_unusable_tables": 55,
    "test_slices": 55,
    "test_checkpoints": 54,
    "test_writers": 54,
    "test_sql_explanation": 52,
    "test_damaged_files": 51,
    "test_restarts": 49,
    "test_receive_command": 46,
    "test_table_faults": 46,
    "test_history": 45,
    "test_conventions": 44,
    "test_console_views": 43,
    "test_console_access": 42,
    "test_switch_shell": 40,
    "test_sql_job": 40,
    "test_console": 39,
    "test_switch_command": 38,
    "test_switches_match": 33,
    "test_checking": 32,
    "test_standard_streams": 32,
    "test_record_cut_off": 32,
    "test_lab": 32,
    "test_lab_ready": 25,
    "test_tiers": 32,
    "test_state_jobs": 31,
    "test_routes_program": 31,
    "test_processes": 30,
    "test_spark_submit_script": 30,
    "test_silencing": 28,
    "test_state_hosts": 28,
    "test_broker": 28,
    "test_record_times": 27,
    "test_doc_runs": 27,
    "test_secured_kafka": 26,
    "test_stream_metrics": 24,
    "test_lab_network": 22,
    "test_attribute_input": 21,
    "test_states_command": 21,
    "test_one_writer": 21,
    "test_filter_fuzz": 21,
    "test_bmv2_program": 20,
}
#: Any other file.
DEFAULT_SECONDS = 4

#: Files with tests of the long tier that take more than `LONG_SECONDS`.
LONG = {
    "test_doc_lab": 700,
    "test_wheel": 400,
    "test_py_files": 300,
    "test_kills": 1500,
    "test_retune_service": 600,
    "test_shared_kernel_cache": 700,
    "test_standalone_cluster": 450,
    "test_doc_states": 350,
    "test_doc_attributes": 250,
    "test_embedded": 250,
    "test_soak": 400,
    "test_tutorial": 200,
    "test_state_kills": 150,
    "test_program_numbers": 130,
    "test_truncated_batch": 150,
    "test_kill_network": 120,
    "test_mobility_command": 90,
    "test_replay_stops": 75,
    "test_reliable_network": 60,
}
#: Files whose long tests share no fixture, with the seconds of one test. A part takes single tests
#: of them.
DIVIDED = {"test_kills": 180, "test_retune_service": 75, "test_stops": 40}
#: A file with tests of the long tier, and a file with property tests at their full length.
LONG_SECONDS = 40
PROPERTY_SECONDS = 8

_TIER = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.(\w+)", re.MULTILINE)
#: Parameters, classes and helpers of tests that start Spark or a broker in their process.
_SPARK = re.compile(r"\b(SparkSession|Broker|Deployment|World|Tables|embedded_jobs)\b|\bspark[,:)]")


def seconds(file: str) -> float:
    """Return about how long the unit and integration tests of a file take."""
    return SECONDS.get(PurePath(file).stem, DEFAULT_SECONDS)


def long_seconds(file: str, has_long_tests: bool, one_test: bool = False) -> float:
    """Return about how long the long tests of a file take, its property tests included.

    Args:
        file: path of the file.
        has_long_tests: false if the file has only property tests, which are longer in that tier.
        one_test: return the time of one long test of a file in `DIVIDED`.
    """
    stem = PurePath(file).stem
    if one_test:
        return DIVIDED[stem]
    return LONG.get(stem, LONG_SECONDS if has_long_tests else PROPERTY_SECONDS)


def several_files(config: pytest.Config) -> bool:
    """Return whether a run takes all tests, a folder of them or more than one file."""
    files = {argument.partition("::")[0] for argument in config.args}
    return len(files) > 1 or any((config.invocation_params.dir / name).is_dir() for name in files)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Choose the number of processes, unless an option does, before xdist reads it.

    xdist's own processes call this hook too. Tests chosen by -k or --lf are few. A debugger, output
    without capture and the samples of a soak need a single process.
    """
    option = config.option
    if config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        names = ("usepdb", "trace", "keyword", "lf", "--soak")
        single = any(config.getoption(name, False) for name in names) or option.capture == "no"
        if option.numprocesses is None and not single and several_files(config):
            # Unit tests wait for nothing, so more processes than cores would gain nothing.
            option.numprocesses = PROCESSES - 1 if option.markexpr == "unit" else PROCESSES
        if option.numprocesses and option.dist == "no":
            option.dist = "loadfile"
            # It would begin with the files that have most tests.
            option.loadscopereorder = False
    return (yield)


class Scheduler(LoadFileScheduling):
    """Gives files to processes in their order, but none with Spark to the third."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._uses_spark: dict[str, bool] = {}

    def schedule(self) -> None:
        """Assign files to new processes."""
        super().schedule()
        # A process begins its last test only when it has another, or knows that none follows. xdist
        # gives a process that replaces another one a single file.
        for node in self.nodes:
            self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Removes a process that has ended; returns the test during which it ended, if any.

        xdist would run that test again, which may end the next process.
        """
        workload = self.assigned_work[node]
        for tests in workload.values():
            for name, is_done in tests.items():
                if not is_done:
                    tests[name] = True
                    super().remove_node(node)
                    return name
        return super().remove_node(node)

    def _next_file(self, node: WorkerController) -> str | None:
        # With fewer files than processes, xdist ends some of them, whichever start last.
        third = node.gateway.id == THIRD and len(self.nodes) == PROCESSES
        others = (file for file in self.workqueue if self._needs_spark(file) != third)
        return next(others, None if third else next(iter(self.workqueue), None))

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = self._next_file(node)
        if file is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        # A process that has not collected its tests gets files when it has.
        if node not in self.registered_collections:
            return
        if not node.shutting_down and self._next_file(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _needs_spark(self, file: str) -> bool:
        if file not in self._uses_spark:
            text = Path(self.config.rootpath, file).read_text("utf-8")
            tier = _TIER.search(text)
            is_unit = tier is not None and tier[1] == "unit"
            self._uses_spark[file] = bool(_SPARK.search(text)) and not is_unit
        return self._uses_spark[file]


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
