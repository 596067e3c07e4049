"""Which switches the job writes again while it follows, and when it lets go of one."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from jobs import refresh_switches
from udfs.errors import NetworkError

pytestmark = pytest.mark.unit


class Away:
    """A refresher whose switches answer or not, as the test says; it remembers what was asked."""

    def __init__(self, switches: dict[str, bool]) -> None:
        self.switches = switches
        self.version = 1
        self.derived_from = {"switches": 1, "links": 1}
        self.fits = True
        self.asked: list[set[str]] = []

    def edit(self, table: str = "switches") -> None:
        self.current = self.derived_from | {table: self.derived_from[table] + 1}

    current: dict[str, int] | None = None

    def stale(self) -> bool:
        return self.current is not None and self.current != self.derived_from

    def derive(self) -> int:
        assert self.current is not None
        self.derived_from = self.current
        if not self.fits:
            raise NetworkError("DISCONNECTED", "in two parts")
        return self.version

    def refresh(self, _version: int, only: set[str] | None, wait: bool) -> list[dict[str, object]]:
        assert not wait
        self.asked.append(set(self.switches) if only is None else only)
        return [
            {"switch": name, "in_step": answers}
            for name, answers in self.switches.items()
            if only is None or name in only
        ]


def follow(refresher: Away, monkeypatch: pytest.MonkeyPatch, *steps, behind=()) -> None:
    """Follow with one look after each step, and no change in the feed."""
    monkeypatch.setattr(refresh_switches, "POLL_SECONDS", 0)
    monkeypatch.setattr(refresh_switches, "RETRY_SECONDS", 0)
    lifecycle = MagicMock()

    def run(_query, finished):
        for step in steps:
            step()
            assert not finished()

    lifecycle.run = run
    refresh_switches.follow(MagicMock(), refresher, lifecycle, 1, behind)


def test_switches_are_written_again_when_an_address_changes(monkeypatch):
    refresher = Away({"a": True, "b": True})
    follow(refresher, monkeypatch, lambda: None, refresher.edit, lambda: None)
    assert refresher.asked == [{"a", "b"}]


def test_an_edit_of_other_tables_is_left_to_the_change_feed(monkeypatch):
    refresher = Away({"a": True, "b": True})
    follow(refresher, monkeypatch, lambda: refresher.edit("links"), lambda: None)
    assert refresher.asked == []


def test_a_new_address_is_not_forgotten_while_the_tables_do_not_fit(monkeypatch):
    refresher = Away({"a": True})

    def move_amid_nonsense():
        refresher.fits = False
        refresher.edit()

    def mend():
        refresher.fits = True
        refresher.edit("links")

    follow(refresher, monkeypatch, move_amid_nonsense, mend, lambda: None)
    assert refresher.asked == [{"a"}]


def test_a_switch_that_is_away_is_tried_again_until_it_answers_or_is_no_switch_any_more(
    monkeypatch,
):
    refresher = Away({"a": True, "b": False, "c": False})

    def answer():
        refresher.switches["b"] = True

    def remove():
        del refresher.switches["c"]

    nothing = lambda: None  # noqa: E731
    follow(refresher, monkeypatch, nothing, answer, remove, nothing, nothing, behind=["b", "c"])
    assert refresher.asked == [{"b", "c"}, {"b", "c"}, {"c"}]
