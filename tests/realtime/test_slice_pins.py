"""The pin of a slice with other versions of tables waits for the records of earlier slices."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stackcast.jobs.adapters.checkpoint.pins import Pin
from stackcast.jobs.adapters.stream.slices import Slices

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        # After a crash, all slices that are not recorded are sent again by one pin.
        (2, ["0 slices are not recorded", "slice 7 is pinned"]),
        (1, ["slice 7 is pinned"]),
    ],
    ids=["other versions", "same versions"],
)
def test_a_pin_with_other_versions_is_written_after_all_records(
    version: int, expected: list[str]
) -> None:
    events: list[str] = []
    pins = SimpleNamespace(put=lambda number, pin: events.append(f"slice {number} is pinned"))
    recorder = SimpleNamespace(
        await_records=lambda pending: events.append(f"{pending} slices are not recorded")
    )
    stream = Slices.__new__(Slices)
    stream._delivery = SimpleNamespace(pins=pins)  # type: ignore[assignment]
    stream._recorder = recorder  # type: ignore[assignment]
    stream._last_pin = 6, Pin({"subscriptions": 1}, {}, {}, {})
    stream._write_pin(7, Pin({"subscriptions": version}, {}, {}, {}))
    assert events == expected
