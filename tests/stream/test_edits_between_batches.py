"""Edits between batches become live at once; during a batch they wait for its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import VirtualTime

from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.plan_keeper import PlanKeeper
from stackcast.udfs.errors import FilterError

pytestmark = pytest.mark.unit


class Plans:
    """Makes plans of versions, and raises an error for versions that cannot be used."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.bad: set[int] = set()

    def make(self, versions: dict[str, int]) -> Any:
        if versions["subscriptions"] in self.bad:
            raise FilterError("TOO_LARGE", "more rows than there may be")
        self.versions.append(versions["subscriptions"])
        return SimpleNamespace(versions=versions, plan=None)

    def stacks(self, compilation: Any) -> None:
        pass

    def with_known(self, compilation: Any) -> Any:
        return compilation


class Tables:
    """Versions of the tables."""

    def __init__(self) -> None:
        self.newest = 1

    def poll(self) -> dict[str, int]:
        return {"subscriptions": self.newest}

    current = poll

    def make_durable(self, name: str, version: int) -> None:
        pass


class Stream:
    """The plans of a stream in a virtual time."""

    def __init__(self) -> None:
        self.time, self.tables, self.plans = VirtualTime(), Tables(), Plans()
        self.metrics = StreamMetrics()
        parts: Any = self.tables, self.tables, self.tables, self.plans, None, {}
        self.keeper = PlanKeeper(*parts, self.time, self.metrics)
        self.keeper.take_newest()

    def pending(self) -> float:
        """Seconds for which newer tables have been waiting."""
        return self.metrics.status.pending_for(self.time.monotonic())

    def activate_newest(self) -> None:
        assert self.keeper.current_plan is not None
        self.keeper.activate(self.keeper.current_plan)


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_an_edit_waits_as_long_as_a_batch_runs_and_is_live_before_the_next(stream: Stream) -> None:
    keeper, tables, plans = stream.keeper, stream.tables, stream.plans
    keeper.look()
    assert (plans.versions, stream.pending()) == ([1], 0)
    tables.newest = 2
    with keeper.exclusive:
        keeper.look()
        stream.time.sleep(3)
        keeper.look()
        # It has been waiting since it was seen first.
        assert (plans.versions, stream.pending()) == ([1], 3)
    keeper.look()
    assert (plans.versions, stream.pending()) == ([1, 2], 0)
    # An edit that cannot be used is reported, and waits for nothing.
    plans.bad.add(3)
    tables.newest = 3
    keeper.look()
    keeper.look()
    assert stream.metrics.status.refused_versions == {"subscriptions": 3}
    assert (plans.versions, stream.pending()) == ([1, 2], 0)
    tables.newest = 4
    keeper.look()
    assert stream.metrics.status.refused_versions is None and plans.versions == [1, 2, 4]


def test_a_plan_that_a_batch_has_made_in_the_meantime_is_not_made_again(stream: Stream) -> None:
    stream.tables.newest = 2
    with stream.keeper.exclusive:
        stream.keeper.look()
        stream.keeper.take_newest()
    stream.keeper.look()
    assert stream.plans.versions == [1, 2] and stream.pending() == 0


def test_in_real_time_one_plan_at_most_waits_for_its_slice(stream: Stream) -> None:
    stream.activate_newest()
    for newest in (2, 3):
        stream.tables.newest = newest
        stream.keeper.look()
        stream.time.sleep(1)
    # Workers may still use the plan before it, and a third one would destroy that.
    assert stream.plans.versions == [1, 2] and stream.pending() > 0
    stream.activate_newest()
    stream.keeper.look()
    assert stream.plans.versions == [1, 2, 3] and stream.pending() == 0
