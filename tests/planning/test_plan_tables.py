"""Tables that explain a plan are of the newest one, however fast plans come."""

from __future__ import annotations

import datetime as dt
import threading
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from waiting import until

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.planning.live_subscriptions import LiveSubscriptions
from stackcast.jobs.adapters.planning.plan_tables import ATTEMPTS, PlanTables
from stackcast.jobs.adapters.tables.tables import LIVE
from stackcast.udfs.errors import TableError
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.unit


class SlowTables:
    """Tables of which one is written only when it may be."""

    def __init__(self, slow: str) -> None:
        self.slow = slow
        self.go_on = threading.Event()
        self.began = threading.Event()
        self.written: dict[str, list[Any]] = {}
        #: The version that a table was last written for, once it may be written again.
        self.ready: dict[str, int] = {}

    def rows(self, name: str) -> list[Any]:
        return []

    def prepare_overwrite(self, name: str) -> None:
        if name == LIVE:
            self.ready[name] = self.written[name][-1]["since_version"][0].as_py()

    def overwrite(self, name: str, rows: Any) -> None:
        if name == self.slow:
            self.began.set()
            assert self.go_on.wait(600)
        self.written.setdefault(name, []).append(rows)


class Compilation:
    """As much of a plan as is written."""

    announced = ()
    rejections = ()

    def __init__(self, number: int, specification: Specification) -> None:
        self.number = number
        self.plan = SimpleNamespace(specification=specification)
        self.versions = {"subscriptions": number}

    def filter_rows(self) -> tuple[Any, Any]:
        return self.number, self.number

    def rejection_rows(self) -> Any:
        return [self.number]


def submit(to: PlanTables, itch: Specification, *numbers: int) -> None:
    """Plans with one subscription, which is another one in each."""
    for number in numbers:
        rows = [Subscription("a", "h1", f"price > {number}")]
        to.submit(Compilation(number, itch), rows, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("slow", ["rejected_subscriptions", "live_subscriptions", "filter_entries"])
def test_what_became_of_a_rule_waits_for_no_other_table(slow, itch):
    tables = SlowTables(slow)
    made = PlanTables(tables, "feed1")  # type: ignore[arg-type]
    submit(made, itch, 0)
    assert tables.began.wait(600)
    submit(made, itch, 1)

    def last(name: str) -> Any:
        return tables.written.get(name, [None])[-1]

    if slow != "rejected_subscriptions":
        until(lambda: last("rejected_subscriptions") == [1])
    if slow != "live_subscriptions":
        until(lambda: (rows := last(LIVE)) and rows["filter"].to_pylist() == ["price > 1"])
    assert slow not in tables.written
    tables.go_on.set()
    made.close()


def test_plans_that_were_replaced_before_they_were_written_are_given_up(itch):
    tables = SlowTables("filter_entries")
    made = PlanTables(tables, "feed1")  # type: ignore[arg-type]
    submit(made, itch, 0)
    assert tables.began.wait(600)
    submit(made, itch, *range(1, 50))
    # It is handed on behind the table of live ones, and this is made ready again after that.
    until(lambda: tables.ready.get(LIVE) == 49)
    tables.go_on.set()
    made.close()
    assert tables.written["filter_entries"] == [0, 49]
    assert tables.written["filter_leaves"] == [0, 49]
    assert tables.written["rejected_subscriptions"][-1] == [49]


class Contended(SlowTables):
    """Tables of which some cannot be written for some times."""

    def __init__(self, error: Exception, **left: int) -> None:
        super().__init__("")
        self.error, self.left = error, left

    def overwrite(self, name: str, rows: Any) -> None:
        self.left[name] = self.left.get(name, 0) - 1
        if self.left[name] >= 0:
            raise self.error
        super().overwrite(name, rows)


def test_a_table_that_another_stream_writes_at_that_moment_is_written_again(itch, caplog):
    tables = Contended(
        StorageError("the table has changed", conflict=True), live_subscriptions=2, filter_leaves=99
    )
    to = PlanTables(tables, "feed1")  # type: ignore[arg-type]
    submit(to, itch, 1)
    until(lambda: "matches" in tables.left or "filter_leaves could not" in caplog.text)
    to.close()
    assert len(tables.written[LIVE]) == len(tables.written["filter_entries"]) == 1
    # Not for ever, and others do not wait for it.
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("table filter_leaves could not be written for the plan of")
    assert tables.left["filter_leaves"] == 99 - ATTEMPTS


def test_only_conflicts_are_tried_again_whatever_an_error_says(itch, caplog):
    error = TableError("REFUSED", "/data/CONCURRENT/filter_leaves: the disk is full")
    tables = Contended(error, filter_leaves=99)
    to = PlanTables(tables, "feed1")  # type: ignore[arg-type]
    submit(to, itch, 1)
    until(lambda: "matches" in tables.left or "filter_leaves could not" in caplog.text)
    to.close()
    assert tables.left["filter_leaves"] == 98


class HeldTable:
    """A table `live_subscriptions` that outlasts who writes it."""

    def __init__(self) -> None:
        self.held: list[dict[str, Any]] = []
        self.writes = 0

    def rows(self, name: str) -> list[dict[str, Any]]:
        assert name == "live_subscriptions"
        return self.held

    def overwrite(self, name: str, rows: pa.Table) -> None:
        assert name == "live_subscriptions"
        self.held = rows.to_pylist()
        self.writes += 1

    @property
    def since(self) -> dict[str, tuple[int, int]]:
        """Version and minute since which each rule is live."""
        return {row["id"]: (row["since_version"], row["since"].minute) for row in self.held}


def test_a_rule_is_live_since_the_plan_that_first_had_it_as_it_is_now():
    tables = HeldTable()
    a, b = Subscription("a", "h1", "price > 1"), Subscription("b", "h2", "price > 2")
    other_b = b._replace(filter="price > 3")

    def live(*plans: tuple[int, list[Subscription]], of: LiveSubscriptions) -> None:
        for version, rules in plans:
            at = dt.datetime(2026, 1, 1, 0, version, tzinfo=dt.UTC)
            of.take(rules, version, at)
        of.write()

    one = LiveSubscriptions(tables)  # type: ignore[arg-type]
    live((1, [a]), of=one)
    assert tables.since == {"a": (1, 1)}
    live((2, [a]), of=one)
    assert tables.since == {"a": (1, 1)}
    # Plans that are not written count, too.
    live((3, [a, b]), (4, [a, b]), of=one)
    assert tables.since == {"a": (1, 1), "b": (3, 3)}
    live((5, [a, other_b]), (6, [a, b]), of=one)
    assert tables.since == {"a": (1, 1), "b": (6, 6)}
    assert {row["subscriptions_version"] for row in tables.held} == {6}
    writes = tables.writes
    live((6, [a, b]), of=one)
    assert tables.writes == writes
    # Another subscriber, or none, is another rule; a start anew knows what is there.
    again = LiveSubscriptions(tables)  # type: ignore[arg-type]
    live((7, [a._replace(subscriber="h3"), b]), of=again)
    assert tables.since == {"a": (7, 7), "b": (6, 6)}
