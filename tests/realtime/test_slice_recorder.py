"""Slices are recorded in their order, while the next ones run."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from virtual_time import VirtualTime

from stackcast.jobs.adapters.stream.slice_recorder import RECORD_DELAY, SliceRecorder
from stackcast.udfs.errors import StreamError

pytestmark = pytest.mark.unit

#: Seconds in which a slice is recorded.
SECONDS = 0.5


class Stream:
    """A recorder in virtual time, whose record of the slices in `failing` fails."""

    def __init__(self, *failing: int) -> None:
        self.time = VirtualTime()
        self.events: list[tuple[str, int]] = []
        self.reports: list[Any] = []
        self._failing = failing
        progress: Any = SimpleNamespace(plan=self._note("plan"), done=self._note("commit"))
        batches: Any = SimpleNamespace(record=self._record)
        metrics: Any = SimpleNamespace(recorded=lambda *_: None)
        reports: Any = SimpleNamespace(recorded=self.reports.append)
        self.recorder = SliceRecorder(batches, progress, reports, metrics, self.time)
        self.recorder.start_after(6)

    def _note(self, step: str) -> Any:
        return lambda number, *_: self.events.append((step, number))

    def _record(self, result: Any) -> None:
        if result.batch_id in self._failing:
            raise StreamError("FAILED", "disk full")
        self.time.sleep(SECONDS)
        self.events.append(("record", result.batch_id))

    def submit(self, *numbers: int) -> None:
        for number in numbers:
            result: Any = SimpleNamespace(batch_id=number, started=0, seconds=1.0, report=None)
            self.recorder.submit(result, {0: number}, {"deliver": 1.0})


def steps(*numbers: int) -> list[tuple[str, int]]:
    return [(step, number) for number in numbers for step in ("plan", "record", "commit")]


def test_slices_are_planned_recorded_and_committed_one_after_the_other() -> None:
    stream = Stream()
    stream.submit(7, 8)
    stream.recorder.await_records(1)
    assert stream.events[:3] == steps(7)
    stream.recorder.await_records(0)
    assert stream.events == steps(7, 8)
    assert [report.number for report in stream.reports] == [7, 8]
    assert stream.reports[0].stages == {"deliver": 1.0, "record": SECONDS}
    stream.recorder.close()


def test_a_record_waits_for_the_next_slice_only_if_nothing_waits_for_it() -> None:
    stream = Stream()
    stream.submit(7)
    stream.time.sleep(RECORD_DELAY / 2)
    assert not stream.events
    stream.recorder.await_records(0)
    assert stream.time.monotonic() == pytest.approx(RECORD_DELAY / 2 + SECONDS)
    stream.submit(8)
    stream.time.sleep(RECORD_DELAY + SECONDS + 0.01)
    assert stream.events == steps(7, 8)
    stream.recorder.close()


def test_after_a_slice_that_could_not_be_recorded_no_other_is_recorded() -> None:
    stream = Stream(8)
    stream.submit(7, 8, 9)
    with pytest.raises(StreamError, match="disk full"):
        stream.recorder.await_records(0)
    stream.recorder.close()
    assert stream.events == [*steps(7), ("plan", 8)]


@pytest.mark.parametrize(("running_seconds", "is_complete"), [(2.0, True), (0.3, False)])
def test_the_wait_for_records_ends_with_the_running_slice(
    running_seconds: float, is_complete: bool
) -> None:
    stream = Stream()
    running: Future[None] = stream.time.start("tasks", lambda: stream.time.sleep(running_seconds))
    stream.submit(7)
    assert stream.recorder.complete_before(running) == is_complete
    assert stream.time.monotonic() == pytest.approx(RECORD_DELAY + SECONDS if is_complete else 0.3)
    stream.recorder.close()
