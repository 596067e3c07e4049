"""A slice is pinned to other versions of tables only after all slices before are on record."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from stackcast.jobs.adapters.checkpoint.pins import Pin
from stackcast.jobs.adapters.stream.slices import Slices

pytestmark = pytest.mark.unit


class Recording(Future[None]):
    """The record of a slice, which is complete as soon as it is waited for."""

    def __init__(self, number: int, events: list[str]) -> None:
        super().__init__()
        self._number, self._events = number, events

    def result(self, timeout: Any = None) -> None:
        self._events.append(f"slice {self._number} is on record")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        # A crash sends all slices that are not on record again, by one pin.
        (2, ["slice 5 is on record", "slice 6 is on record", "slice 7 is pinned"]),
        (1, ["slice 7 is pinned"]),
    ],
    ids=["other versions", "same versions"],
)
def test_nothing_leaves_by_other_versions_before_all_else_is_on_record(
    version: int, expected: list[str]
) -> None:
    events: list[str] = []
    pins = SimpleNamespace(put=lambda number, pin: events.append(f"slice {number} is pinned"))
    stream = Slices.__new__(Slices)
    stream._delivery = SimpleNamespace(pins=pins)  # type: ignore[assignment]
    stream._record_now = threading.Event()
    stream._recording = [Recording(5, events), Recording(6, events)]
    stream._last_pin = 6, Pin({"subscriptions": 1}, {}, {}, {})
    stream._write_pin(7, Pin({"subscriptions": version}, {}, {}, {}))
    assert events == expected
