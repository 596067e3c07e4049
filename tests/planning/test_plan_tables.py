"""Tables that explain a plan are of the newest one, however fast plans come."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.adapters.planning.plan_tables import PlanTables

pytestmark = pytest.mark.unit


class SlowTables:
    """Tables whose writes wait until they may go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.began = threading.Event()
        self.written: list[tuple[str, Any]] = []

    def overwrite(self, name: str, rows: Any) -> None:
        self.began.set()
        assert self.go_on.wait(60)
        self.written.append((name, rows))


class Compilation:
    """As much of a plan as is written."""

    announced = ()
    rejections = ()
    plan = SimpleNamespace(specification=None)

    def __init__(self, number: int) -> None:
        self.number = number
        self.versions: dict[str, int] = {}

    def filter_rows(self) -> tuple[Any, Any]:
        return self.number, self.number

    def rejection_rows(self) -> Any:
        return self.number


def test_plans_that_were_replaced_before_they_were_written_are_given_up():
    tables = SlowTables()
    made = PlanTables(tables, "feed1")  # type: ignore[arg-type]
    made._no_matches = made._no_warnings = True
    made.submit(Compilation(0), [], None)  # type: ignore[arg-type]
    assert tables.began.wait(60)
    for number in range(1, 50):
        made.submit(Compilation(number), [], None)  # type: ignore[arg-type]
    tables.go_on.set()
    made.close()
    names = ["rejected_subscriptions", "filter_entries", "filter_leaves"]
    assert tables.written == [(name, number) for number in (0, 49) for name in names]
