"""A stream reports a cluster that gives it no executor, and does not wait after a stop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.stream.spark_stream import await_executors
from stackcast.udfs.errors import StreamError

pytestmark = pytest.mark.unit

MASTER = "spark://127.0.0.1:7077"


def cluster(slots: int) -> Any:
    """Return a session on a cluster whose executors have that number of slots."""
    manager = SimpleNamespace(defaultResourceProfile=lambda: None)
    context = SimpleNamespace(
        resourceProfileManager=lambda: manager, maxNumConcurrentTasks=lambda _: slots
    )
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master=MASTER, _jsc=SimpleNamespace(sc=lambda: context))
    )


def test_stream_starts_with_one_slot() -> None:
    await_executors(cluster(1), Settings(), Lifecycle())


def test_error_names_the_master_and_the_limit_of_other_applications() -> None:
    with pytest.raises(StreamError, match=rf"STREAM\.NO_EXECUTORS: {MASTER}.*spark\.cores\.max"):
        await_executors(cluster(0), Settings(wait_seconds=0), Lifecycle())


def test_stop_ends_the_wait() -> None:
    lifecycle = Lifecycle()
    lifecycle.stopping.set()
    with pytest.raises(StreamError, match="NO_EXECUTORS"):
        await_executors(cluster(0), Settings(wait_seconds=600), lifecycle)
