"""Edits are seen beside batches: they wait while one runs, and are taken up when none does."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import VirtualTime

from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.udfs.errors import FilterError

pytestmark = pytest.mark.unit


class Plans:
    """Makes a plan of any versions; of those that cannot be used it raises."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.bad: set[int] = set()

    def make(self, versions: dict[str, int]) -> Any:
        if versions["subscriptions"] in self.bad:
            raise FilterError("TOO_LARGE", "more rows than there may be")
        self.made.append(versions["subscriptions"])
        return SimpleNamespace(versions=versions, plan=None)

    def stacks(self, compilation: Any) -> None:
        pass

    def with_known(self, compilation: Any) -> Any:
        return compilation


class Tables:
    def __init__(self) -> None:
        self.newest = 1

    def poll(self) -> dict[str, int]:
        return {"subscriptions": self.newest}


def delivery(plans: Plans, tables: Tables) -> Any:
    """As much of a stream as follows the tables."""
    made: Any = BatchDelivery.__new__(BatchDelivery)
    made._looks, made._plans, made.metrics = tables, plans, StreamMetrics()
    made._turn, made.live, made._refused = threading.Lock(), None, None
    made.taken = made._replaced = None
    made._tables = SimpleNamespace(make_durable=lambda name, version: None)
    made.engine = VirtualTime()
    made._plan_at(tables.poll())
    return made


def test_an_edit_waits_as_long_as_a_batch_runs_and_is_live_before_the_next() -> None:
    plans, tables = Plans(), Tables()
    made = delivery(plans, tables)

    def pending() -> float:
        return made.metrics.pending_for(time.monotonic())

    made._look()
    assert (plans.made, pending()) == ([1], 0)
    tables.newest = 2
    with made._turn:
        made._look()
        since = pending()
        time.sleep(0.01)
        made._look()
        # From when it was seen first.
        assert plans.made == [1] and pending() > since
    made._look()
    assert (plans.made, pending()) == ([1, 2], 0)
    # One that cannot be used is told, and waits for nothing.
    plans.bad.add(3)
    tables.newest = 3
    made._look()
    made._look()
    assert made.metrics.refused_versions == {"subscriptions": 3}
    assert (plans.made, pending()) == ([1, 2], 0)
    tables.newest = 4
    made._look()
    assert made.metrics.refused_versions is None and plans.made == [1, 2, 4]


def test_an_edit_that_a_batch_took_up_meanwhile_is_not_made_again() -> None:
    plans, tables = Plans(), Tables()
    made = delivery(plans, tables)
    tables.newest = 2
    with made._turn:
        made._look()
        made._take_up(tables.poll())
    made._look()
    assert plans.made == [1, 2] and made.metrics.pending_for(time.monotonic()) == 0


def test_beside_slices_one_plan_at_most_waits_for_its_slice() -> None:
    plans, tables = Plans(), Tables()
    made = delivery(plans, tables)
    made.taken = made.live
    for newest in (2, 3):
        tables.newest = newest
        made._look()
    # Workers may still use the plan before it: a third would take that from them.
    assert plans.made == [1, 2] and made.metrics.pending_for(time.monotonic()) > 0
    made.taken = made.live
    made._look()
    assert plans.made == [1, 2, 3] and made.metrics.pending_for(time.monotonic()) == 0
