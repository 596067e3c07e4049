"""How many processes run the tests, and in which order they take them (pytest-xdist).

A good part of the integration tests' time is waiting: for JVMs, brokers, time-outs. Three
processes keep two cores busy meanwhile; each takes whole files, since what a file makes once (a
lab, tables, a broker) it makes for all of its tests.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

#: Each may hold a Spark of its own, and start another: 2 to 4 GB.
PROCESSES = 3

#: Files of tests that take longest, by name. Who begins with these does not wait for one at the
#: end while the other process has nothing left to do.
SLOWEST = (
    "test_embedded",
    "test_kills",
    "test_kill_network",
    "test_table_faults",
    "test_attribute_stream",
    "test_rerequest",
    "test_checkpoints",
    "test_realtime",
    "test_attribute_network_refresh",
    "test_itch_stream",
    "test_switches_match",
    "test_retune",
    "test_refresh_switches",
    "test_sql_job",
    "test_journal_tables",
    "test_stream_metrics",
    "test_tables",
)


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
    ranks = {name: rank for rank, name in enumerate(SLOWEST)}

    def rank(item: pytest.Item) -> tuple[int, bool]:
        path = Path(item.path)
        return ranks.get(path.stem, len(ranks)), item.get_closest_marker("integration") is None

    items.sort(key=rank)
