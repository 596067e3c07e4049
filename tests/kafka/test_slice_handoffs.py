"""Each task of a partition continues exactly where the task before has stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stackcast.jobs.adapters.kafka.file_handoffs import FileHandoffs
from stackcast.jobs.adapters.kafka.ranges import FetchProgress, Range
from stackcast.jobs.adapters.kafka.slices import SliceSpec, TaskProgress, follow
from stackcast.udfs.delivery.summary_progress import (
    SummaryAssignment,
    SummaryChannel,
    SummaryProgress,
)

pytestmark = pytest.mark.unit

RANGE = Range("topic", 3, 10, 1000)


class Partition:
    """A source of records: it returns one batch, and waits until a slice is over."""

    def __init__(self) -> None:
        self.over: dict[int, threading.Event] = {}
        self.asked: list[tuple[int, int, bool]] = []
        self.again = False

    def reader(self) -> Partition:
        return self

    def runs_again(self) -> bool:
        return self.again

    def follow(
        self, wanted: Range, seconds: float, again: bool, reached: FetchProgress
    ) -> Iterator[SimpleNamespace]:
        self.asked.append((wanted.first, wanted.until, again))
        over = self.over.setdefault(wanted.first, threading.Event())
        # Two records, and an offset that a transaction took.
        yield SimpleNamespace(offset=np.arange(wanted.first, min(wanted.first + 2, wanted.until)))
        reached.offset = min(wanted.first + 3, wanted.until)
        if not again:
            over.wait(600)


class LastOffset:
    """A sender of summaries, whose progress is that of the last record."""

    def __init__(self, offsets: list[int], channel: SummaryChannel) -> None:
        self._offsets, self._channel = offsets, channel

    def progress_after(self, partition: int) -> SummaryProgress | None:
        if self._offsets:
            return SummaryProgress(self._offsets[-1] + 1, 7, {}, {})
        return self._channel.before(partition)


@pytest.fixture
def partition() -> Partition:
    return Partition()


Start = Callable[..., Future[list[int]]]


@pytest.fixture
def started(partition: Partition, tmp_path: Path) -> Iterator[Start]:
    handoffs = FileHandoffs(lambda: str(tmp_path))
    with ThreadPoolExecutor(8) as pool:

        def start(
            spec: SliceSpec, progress: TaskProgress, channel: SummaryChannel | None = None
        ) -> Future[list[int]]:
            channel = channel or new_channel()

            def work() -> list[int]:
                batches, offsets = follow(partition, handoffs, spec, 0, progress, channel), []
                channel.connect(LastOffset(offsets, channel))
                for batch in batches:
                    offsets += batch.offset.tolist()
                return offsets

            return pool.submit(work)

        yield start


def new_channel() -> SummaryChannel:
    return SummaryChannel(SummaryAssignment({}))


def spec(number: int, ahead: bool, share: int = 100) -> SliceSpec:
    return SliceSpec("run", number, [RANGE], 1.0, share if ahead else None)


def reads(partition: Partition, first: int) -> threading.Event:
    end = time.monotonic() + 600
    while first not in partition.over:
        assert time.monotonic() < end
        time.sleep(0.001)
    return partition.over[first]


def test_a_task_waits_for_the_one_before_and_continues_where_that_has_stopped(
    partition: Partition, started: Start
) -> None:
    progress = [TaskProgress() for _ in range(3)]
    channels = new_channel(), new_channel()
    first = started(spec(1, False), progress[0])
    over = reads(partition, 10)
    second = started(spec(2, True), progress[1], channels[0])
    time.sleep(0.05)
    assert not second.done() and partition.asked == [(10, 1000, False)]
    over.set()
    assert first.result(600) == [10, 11]
    over = reads(partition, 13)
    # It reads no more than its share, even if the pin allows more.
    third = started(spec(3, True, share=1), progress[2], channels[1])
    over.set()
    assert second.result(600) == [13, 14]
    reads(partition, 16).set()
    assert third.result(600) == [16]
    assert partition.asked[1:] == [(13, 113, False), (16, 17, False)]
    assert [(each.first, each.offset) for each in progress] == [(10, 13), (13, 16), (16, 17)]
    # The summary progress comes from the task before, and does not exceed its last record.
    before = [channel.before(3) for channel in channels]
    assert before == [SummaryProgress(12, 7, {}, {}), SummaryProgress(15, 7, {}, {})]
    assert all(channel.claimed == {3} for channel in channels)


def test_no_task_continues_from_one_that_has_died_or_was_never_here(
    partition: Partition, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = TaskProgress()
    assert started(spec(2, True), progress).result(600) == []
    assert (progress.first, progress.lost) == (None, False)

    def dies(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(offset=np.arange(10, 12))
        raise OSError("died")

    with monkeypatch.context() as patch:
        patch.setattr(partition, "follow", dies)
        with pytest.raises(OSError, match="died"):
            started(spec(5, False), TaskProgress()).result(600)
    progress = TaskProgress()
    assert started(spec(6, True), progress).result(600) == []
    assert (progress.first, progress.lost) == (None, False)
    # An earlier attempt may have known, and may have sent records.
    partition.again = True
    progress = TaskProgress()
    assert started(spec(6, True), progress).result(600) == []
    assert (progress.first, progress.lost) == (None, True)


def test_a_second_attempt_ends_where_the_next_task_has_begun(
    partition: Partition, started: Start
) -> None:
    first = started(spec(1, False), TaskProgress())
    reads(partition, 10).set()
    assert first.result(600) == [10, 11]
    partition.again, progress = True, TaskProgress()
    assert started(spec(1, False), progress).result(600) == [10, 11]
    assert partition.asked[-1] == (10, 13, True) and progress.offset == 13


def test_files_of_slices_that_have_ended_are_removed(
    partition: Partition, started: Start, tmp_path: Path
) -> None:
    for number, first in enumerate((10, 13, 16, 19), 1):
        task = started(spec(number, number > 1), TaskProgress())
        reads(partition, first).set()
        task.result(600)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "stackcast-run-3-3",
        "stackcast-run-3-4",
    ]
