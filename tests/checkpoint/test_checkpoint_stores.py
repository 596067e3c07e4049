"""Pins, state and summary progress pass from batch to batch and from run to run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from memory_files import MemoryFolder

from stackcast.jobs.adapters.checkpoint.files import RETAINED_BATCHES
from stackcast.jobs.adapters.checkpoint.pins import Pin, Pins
from stackcast.jobs.adapters.checkpoint.state import CarriedState
from stackcast.jobs.adapters.checkpoint.summary_progress import SummaryProgressStore
from stackcast.udfs.delivery.summary_progress import SummaryProgress
from stackcast.udfs.errors import StreamError, TableError
from stackcast.udfs.filters.matching.carried import pack, unpack
from stackcast.udfs.filters.matching.cells import CELL, Carried

pytestmark = pytest.mark.unit

#: Notifications, last key and digest.
OWED = (2, 1 << 63, (1 << 64) - 1)


def test_pins_of_the_newest_batches_remain() -> None:
    checkpoint = MemoryFolder()
    pins = Pins(checkpoint)
    assert pins.get(0) is None

    def pin(batch: int) -> Pin:
        progress = {
            0: SummaryProgress.complete(batch),
            1: SummaryProgress(9, 5, {7: ["h1", "h2"], 9: ["h4"]}, {"h3": OWED}),
        }
        versions, even = {"subscriptions": batch, "hosts": 2}, batch % 2 == 0
        return Pin(versions, {"mtu": "1400"}, progress, {0: 7}, even, not even)

    for batch in range(RETAINED_BATCHES + 3):
        pins.put(batch, pin(batch))
    again = Pins(checkpoint)
    last = pin(RETAINED_BATCHES + 2)
    assert again.get(RETAINED_BATCHES + 2) == last
    assert again.get(3) == pin(3)
    assert [again.get(batch) for batch in range(3)] == [None] * 3
    # The first try may have sent frames, so its versions stay.
    with pytest.raises(TableError, match="PIN_NOT_WRITTEN"):
        again.put(RETAINED_BATCHES + 2, Pin({"subscriptions": 99, "hosts": 2}, {}, {}, {}))
    assert pins.newest() == (RETAINED_BATCHES + 2, last)


def test_the_progress_of_summaries_is_recorded_unless_it_is_complete() -> None:
    checkpoint = MemoryFolder()
    first = SummaryProgress(9, 5, {7: ["h1"]}, {"h1": OWED, "h2": OWED})
    second = SummaryProgress(20, 9, {}, {})
    store = SummaryProgressStore(checkpoint)
    store.put(3, {0: first, 1: SummaryProgress.complete(8)})
    store.put(4, {0: SummaryProgress.complete(12)})
    again = SummaryProgressStore(checkpoint)
    assert again.after(3, {0: 9, 1: 8}) == {0: first, 1: SummaryProgress.complete(8)}
    assert again.after(4, {0: 12}) == {0: SummaryProgress.complete(12)}
    # An interrupted try ended at another offset; the next try replaces its record.
    assert again.after(3, {0: 10}) == {0: SummaryProgress.complete(10)}
    again.put(3, {0: second})
    assert again.after(3, {0: 20}) == {0: second}
    again.mark_complete(3)
    assert again.after(3, {0: 20}) == {0: SummaryProgress.complete(20)}
    for batch in (5, 6):
        again.put(batch, {0: first})
    SummaryProgressStore(checkpoint).put(RETAINED_BATCHES + 5, {0: SummaryProgress.complete(99)})
    assert checkpoint.folder("stackcast-summary-progress").names() == ["6.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"versions": 3}'])
def test_the_error_of_a_damaged_pin_says_what_to_do(content: bytes) -> None:
    checkpoint = MemoryFolder()
    pins = Pins(checkpoint)
    pins.put(7, Pin({}, {}, {}, {}))
    checkpoint.folder("stackcast-pins").replace("7.json", content)
    for read in (pins.newest, lambda: pins.get(7)):
        with pytest.raises(StreamError, match=r"7\.json .* restore the file or remove") as refused:
            read()
        assert refused.value.what == "PIN_UNREADABLE"


def row(partition: int, **cells: int) -> dict:
    """Returns the report of a task about a partition. cells: number of updates by name."""
    values = np.array([(0, count, 0) for count in cells.values()], CELL)
    return {"partition": partition, "cells": pack(Carried(tuple(cells), values))}


def counts(state: Mapping[int, bytes]) -> dict[int, dict[str, int]]:
    cells = {partition: unpack(packed) for partition, packed in state.items()}
    return {p: dict(zip(c.names, c.cells["count"].tolist(), strict=True)) for p, c in cells.items()}


def test_state_goes_from_batch_to_batch_and_from_run_to_run() -> None:
    checkpoint = MemoryFolder()
    state = CarriedState(checkpoint)
    assert state.before(0) == {}
    state.put(0, state.merged({}, [row(0, a=1, b=2), row(1, a=3)], {"a", "b"}))
    # Partition 1 has no records in batch 1 and keeps its cells, except those that no rule uses.
    state.put(1, state.merged(state.before(1), [row(0, b=9)], {"b", "c"}))
    assert counts(state.before(2)) == {0: {"b": 9}, 1: {}}
    # A batch that is repeated, here by another run, starts from the same state.
    again = CarriedState(checkpoint)
    assert counts(again.before(1)) == {0: {"a": 1, "b": 2}, 1: {"a": 3}}
    again.put(1, again.merged(again.before(1), [row(0, b=9)], {"b", "c"}))
    assert counts(CarriedState(checkpoint).before(2)) == {0: {"b": 9}, 1: {}}
    # The rules of batch 2 had no state, so batch 3 starts with none.
    assert again.before(3) == {}
    for batch in range(3, RETAINED_BATCHES + 6):
        again.put(batch, again.merged(again.before(batch), [], {"b"}))
    files = checkpoint.folder("stackcast-state").names()
    assert set(files) == {f"{batch}.bin" for batch in range(6, RETAINED_BATCHES + 6)}


def test_a_partition_of_several_tasks_and_damaged_state_are_errors() -> None:
    checkpoint = MemoryFolder()
    state = CarriedState(checkpoint)
    with pytest.raises(StreamError, match=r"PARTITION_SPLIT: .* partition 4, .*minPartitions"):
        state.merged({}, [row(4, a=1), row(3), row(4, a=2)], {"a"})
    assert state.before(1) == {}
    checkpoint.folder("stackcast-state").write("6.bin", b"noise")
    with pytest.raises(StreamError, match="STATE_UNREADABLE"):
        state.before(7)
