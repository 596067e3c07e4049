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
    "test_embedded": 470,
    "test_realtime": 470,
    "test_table_faults": 470,
    "test_rerequest": 290,
    "test_itch_stream": 270,
    "test_attribute_stream": 260,
    "test_refresh_switches": 230,
    "test_retune": 210,
    "test_kills": 180,
    "test_checkpoints": 140,
    "test_kill_network": 120,
    "test_tables": 110,
    "test_switches_match": 110,
    "test_sql_job": 100,
    "test_restarts": 80,
    "test_lab": 70,
    "test_history": 50,
    "test_stream_metrics": 50,
    "test_edits": 45,
    "test_attribute_network_refresh": 36,
    "test_switch_command": 33,
    "test_table_versions": 31,
    "test_lab_network": 28,
    "test_fetch": 27,
    "test_sql_explanation": 26,
    "test_broker": 24,
    "test_encoding_properties": 22,
    "test_attribute_input": 22,
    "test_processes": 21,
    "test_conjunctions": 21,
    "test_receive_command": 20,
    "test_journal_tables": 19,
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
