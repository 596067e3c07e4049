"""A stream ends if a task was lost and it is unknown how far it had read."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from virtual_time import VirtualTime

from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH, FetchProgress, Range
from stackcast.jobs.adapters.kafka.slices import SliceSpec, TaskProgress
from stackcast.jobs.adapters.stream.batch_recorder import Start
from stackcast.jobs.adapters.stream.input import ByTasks
from stackcast.jobs.adapters.stream.slices import Slice, Slices
from stackcast.udfs.delivery.deliver import REPORT
from stackcast.udfs.errors import StreamError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("ahead", "read"),
    [
        pytest.param(True, TaskProgress(offset=20, first=15), id="its successor began elsewhere"),
        pytest.param(
            True, TaskProgress(lost=True), id="an earlier try of its successor may have sent"
        ),
        pytest.param(
            False, TaskProgress(offset=20, first=13, lost=True), id="another broker leads now"
        ),
    ],
)
def test_what_overlaps_is_not_recorded(ahead: bool, read: TaskProgress) -> None:
    stream = Slices.__new__(Slices)
    stream._clock = VirtualTime()
    stream._offsets = {3: 13}
    results: Future[list[tuple[bytes, TaskProgress]]] = Future()
    results.set_result([(b"", read)])
    spec = SliceSpec("run", 2, [Range("topic", 3, 0, 99)], 1.0, 10 if ahead else None)
    start = Start.now(stream._clock)
    running = Slice(7, None, {}, spec, False, results, start)  # type: ignore[arg-type]
    with pytest.raises(
        StreamError, match=r"STREAM.TASK_LOST: .*partition 3 of topic was lost.*start"
    ):
        stream._end(running, None)
    assert stream._offsets == {3: 13}


def test_a_batch_with_a_lost_task_ends_and_its_tasks_know_the_leader() -> None:
    """A task that runs again compares its leader with that of the plan."""
    ranges = [Range("topic", 3, 0, 9), Range("topic", 4, 0, 9)]
    done = [(b"", FetchProgress(9, epoch=7)), (b"", FetchProgress(2, epoch=8, lost=True))]
    engine = SimpleNamespace(run=lambda *_: done)
    records = ByTasks(engine, None, ranges)  # type: ignore[arg-type]
    records.planned({3: 7})
    assert [each.epoch for each in records.ranges] == [7, NO_EPOCH]
    with pytest.raises(
        StreamError, match=r"STREAM.TASK_LOST: .*partition 4 of topic was lost.*start"
    ):
        records.through(lambda _: iter, REPORT)
