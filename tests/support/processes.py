"""How many processes run the tests, and in which order they take them (pytest-xdist).

A good part of the integration tests' time is waiting: for JVMs, brokers, time-outs. Three
processes keep two cores busy meanwhile; each takes whole files, since what a file makes once (a
lab, tables, a broker) it makes for all of its tests.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import PurePath
from typing import Any

import pytest

#: Each may hold a Spark of its own, and start another: 2 to 4 GB.
PROCESSES = 3

#: Files of tests that take longest, by name, with about so many seconds. Who begins with these does
#: not wait for one at the end while the others have nothing left to do.
SLOWEST = {
    "test_table_faults": 290,
    "test_embedded": 270,
    "test_slices": 120,
    "test_rerequest": 120,
    "test_kills": 140,
    "test_tutorial": 150,
    "test_standalone_cluster": 240,
    "test_attribute_stream": 110,
    "test_sql_job": 99,
    "test_tables": 95,
    "test_itch_stream": 95,
    "test_state_kills": 90,
    "test_state_jobs": 80,
    "test_doc_runs": 60,
    "test_kill_network": 72,
    "test_lab_network": 70,
    "test_several_by_hand": 70,
    "test_retune": 68,
    "test_retune_service": 75,
    "test_refresh_switches": 67,
    "test_lab": 57,
    "test_restarts": 56,
    "test_fetch": 47,
    "test_edits": 47,
    "test_paused_driver": 46,
    "test_reliable_network": 46,
    "test_reliable_events": 46,
    "test_stored_route_encoder": 45,
    "test_state_programs_agree": 40,
    "test_checkpoints": 44,
    "test_switches_match": 37,
    "test_switch_command": 37,
    "test_history": 37,
    "test_filter_fuzz": 36,
    "test_encoding_properties": 30,
    "test_sql_explanation": 29,
    "test_stream_metrics": 28,
    "test_broker": 25,
    "test_standard_streams": 24,
    "test_receive_command": 24,
    "test_filter_proof": 24,
}
#: Any other.
SECONDS = 4


def seconds(file: str) -> float:
    """About how long a file of tests takes."""
    return SLOWEST.get(PurePath(file).stem, SECONDS)


def several_files(config: pytest.Config) -> bool:
    """Whether all tests, a folder of them or more than one file are asked for."""
    files = {argument.partition("::")[0] for argument in config.args}
    return len(files) > 1 or any((config.invocation_params.dir / name).is_dir() for name in files)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Choose that many processes where nothing else is asked for, before xdist looks for a choice.

    The processes come by here too. Tests chosen by -k or --lf are few; who looks on, with a
    debugger or at output as it comes, needs one process.
    """
    option = config.option
    if config.pluginmanager.hasplugin("xdist") and not hasattr(config, "workerinput"):
        asked = [config.getoption(name, False) for name in ("usepdb", "trace", "keyword", "lf")]
        one = any(asked) or option.capture == "no"
        if option.numprocesses is None and not one and several_files(config):
            option.numprocesses = PROCESSES
        if option.numprocesses and option.dist == "no":
            option.dist = "loadfile"
            # It would begin with the files of most tests, which are not those that take longest.
            option.loadscopereorder = False
    return (yield)


def slowest_first(items: list[pytest.Item]) -> None:
    """Put files in the order in which processes should take them: in place, files stay whole."""

    def rank(item: pytest.Item) -> tuple[float, bool]:
        return -seconds(str(item.path)), item.get_closest_marker("integration") is None

    items.sort(key=rank)
