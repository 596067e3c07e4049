"""Tasks that read a partition one after the other go on exactly where the one before stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stackcast.jobs.adapters.kafka import client, slices
from stackcast.jobs.adapters.kafka.client import Range, Reached
from stackcast.jobs.adapters.kafka.options import FetchOptions
from stackcast.jobs.adapters.kafka.slices import Read, Turn, follow
from stackcast.udfs.delivery.told import Telling, Told

pytestmark = pytest.mark.unit

RANGE = Range("topic", 3, 10, 1000)


class Partition:
    """A broker's: it gives one record at a time, until a slice is over or the task dies."""

    def __init__(self) -> None:
        self.over: dict[int, threading.Event] = {}
        self.asked: list[tuple[int, int, bool]] = []

    def follow(
        self, wanted: Range, seconds: float, again: bool, reached: Reached
    ) -> Iterator[SimpleNamespace]:
        self.asked.append((wanted.first, wanted.until, again))
        over = self.over.setdefault(wanted.first, threading.Event())
        # Two records, and an offset that a transaction took.
        yield SimpleNamespace(offset=np.arange(wanted.first, min(wanted.first + 2, wanted.until)))
        reached.offset = min(wanted.first + 3, wanted.until)
        if not again:
            over.wait(600)


@pytest.fixture
def partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Partition:
    it = Partition()
    monkeypatch.setattr(slices, "client_of", lambda options: it)
    monkeypatch.setattr(slices.SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    return it


@pytest.fixture
def started() -> Iterator[Callable[..., Future[list[int]]]]:
    with ThreadPoolExecutor(8) as pool:

        def start(turn: Turn, read: Read, telling: Telling | None = None) -> Future[list[int]]:
            options = FetchOptions.__new__(FetchOptions)
            telling = telling or Telling({})

            def work() -> list[int]:
                batches, offsets = follow(options, turn, 0, read, telling), []
                telling.ask(
                    lambda p: Told(offsets[-1] + 1, 7, {}, {}) if offsets else telling.told.get(p)
                )
                for batch in batches:
                    offsets += batch.offset.tolist()
                return offsets

            return pool.submit(work)

        yield start


def turn(number: int, ahead: bool, most: int = 100) -> Turn:
    return Turn("run", number, [RANGE], 1.0, most if ahead else None)


def tried_before(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(attemptNumber=lambda: 1)
    monkeypatch.setattr(client.TaskContext, "get", lambda: context)


def reads(partition: Partition, first: int) -> threading.Event:
    end = time.monotonic() + 600
    while first not in partition.over:
        assert time.monotonic() < end
        time.sleep(0.001)
    return partition.over[first]


def test_a_task_waits_for_the_one_before_and_goes_on_where_that_has_stopped(partition, started):
    one, other, third = Read(), Read(), Read()
    first = started(turn(1, False), one)
    over = reads(partition, 10)
    tellings = Telling({}), Telling({})
    second = started(turn(2, True), other, tellings[0])
    time.sleep(0.05)
    assert not second.done() and partition.asked == [(10, 1000, False)]
    over.set()
    assert first.result(600) == [10, 11]
    over = reads(partition, 13)
    # No more than its share, though the pin allows more.
    end = started(turn(3, True, most=1), third, tellings[1])
    over.set()
    assert second.result(600) == [13, 14]
    reads(partition, 16).set()
    assert end.result(600) == [16]
    assert partition.asked[1:] == [(13, 113, False), (16, 17, False)]
    assert [(r.first, r.offset) for r in (one, other, third)] == [(10, 13), (13, 16), (16, 17)]
    # How far hosts are told is known from the one before, and is not beyond its last record.
    assert [each.told for each in tellings] == [{3: Told(12, 7, {}, {})}, {3: Told(15, 7, {}, {})}]
    assert all(each.partitions == {3} for each in tellings)


def test_nobody_goes_on_from_a_task_that_has_died_or_was_never_here(
    partition, started, monkeypatch
):
    never = Read()
    assert started(turn(2, True), never).result(600) == []
    assert (never.first, never.lost) == (None, False)

    def dies(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(offset=np.arange(10, 12))
        raise OSError("died")

    with monkeypatch.context() as patch:
        patch.setattr(partition, "follow", dies)
        with pytest.raises(OSError, match="died"):
            started(turn(5, False), Read()).result(600)
    after = Read()
    assert started(turn(6, True), after).result(600) == []
    assert (after.first, after.lost) == (None, False)
    # An earlier try may have known, and have sent.
    tried_before(monkeypatch)
    again = Read()
    assert started(turn(6, True), again).result(600) == []
    assert (again.first, again.lost) == (None, True)


def test_who_tries_again_ends_where_the_next_one_has_begun(partition, started, monkeypatch):
    first = started(turn(1, False), Read())
    reads(partition, 10).set()
    assert first.result(600) == [10, 11]
    tried_before(monkeypatch)
    again = Read()
    assert started(turn(1, False), again).result(600) == [10, 11]
    assert partition.asked[-1] == (10, 13, True) and again.offset == 13


def test_files_of_turns_that_have_ended_are_removed(partition, started, tmp_path):
    for number, first in enumerate((10, 13, 16, 19), 1):
        done = started(turn(number, number > 1), Read())
        reads(partition, first).set()
        done.result(600)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "stackcast-run-3-3",
        "stackcast-run-3-4",
    ]
