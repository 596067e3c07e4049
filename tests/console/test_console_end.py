"""A console that ends during a trial of a retuning logs no error."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.console import trees

pytestmark = pytest.mark.unit


def tried(monkeypatch: pytest.MonkeyPatch, ended: bool) -> dict[str, Any]:
    """Returns the proposal of a trial whose Spark ends in the middle of it."""

    def gone(*_: object) -> None:
        raise RuntimeError("the gateway is gone")

    monkeypatch.setattr(trees, "Planner", gone)
    reading: Any = SimpleNamespace(tables=None)
    unused: Any = None
    view = trees.TreesView(reading, Settings(), unused, unused)
    if ended:
        view.end()
    view.propose()
    for thread in threading.enumerate():
        if thread.name == "retuning":
            thread.join(600)
    return view.proposal()


def test_a_trial_that_fails_is_reported_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert "the gateway is gone" in tried(monkeypatch, ended=False)["error"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_an_error_of_a_trial_at_the_end_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried(monkeypatch, ended=True)
    assert caplog.records == []


def test_a_requested_end_leaves_no_traceback() -> None:
    """Py4J logs one on the root logger."""
    output = subprocess.run(
        [
            sys.executable,
            "-c",
            "import logging; from stackcast.jobs.adapters.app.logs import set_up; set_up()\n"
            "from stackcast.udfs.stop_request import StopAsked\n"
            "for end in KeyboardInterrupt, StopAsked:\n"
            "    try: raise end\n"
            "    except end: logging.exception('while sending a command')\n"
            "try:\n"
            "    try: raise KeyboardInterrupt\n"
            "    except KeyboardInterrupt: raise BrokenPipeError\n"
            "except OSError: logging.exception('while shutting down a connection')\n"
            "logging.warning('and this')",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "Traceback" not in output and "and this" in output
