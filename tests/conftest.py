"""Hooks of the test run: its tiers, processes, examples, memory and progress.

The fixtures that all tests share are in `shared_fixtures`.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import examples
import jvm
import memory
import processes
import progress
import pytest
import tiers

pytest_cmdline_main = processes.pytest_cmdline_main
pytest_xdist_make_scheduler = processes.pytest_xdist_make_scheduler
pytest_sessionfinish = tiers.send_to_controller
pytest_ignore_collect = tiers.pytest_ignore_collect
no_servers = tiers.no_servers

jvm.set_up()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose tests and examples before other plugins read the options."""
    for part in (tiers, examples, memory, progress):
        part.configure(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Import the shared fixtures, unless this process only starts those that run tests.

    What is imported and collected stays until the end. It is kept out of garbage collection, which
    would otherwise take a fifth of the processor time of unit tests, and two fifths of collection.
    """
    config = session.config
    gc.disable()
    try:
        if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
            config.pluginmanager.import_plugin("shared_fixtures")
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)
    parser.addoption(
        "--seed",
        metavar="N",
        type=int,
        help="repeat a run of tests that draw, by the seed it printed",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of the run, and order their files."""
    tiers.select(config, items)
    if hasattr(config, "workerinput"):
        processes.slowest_first(items, tiers.runs_long(config))
