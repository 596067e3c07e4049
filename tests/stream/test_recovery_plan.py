"""The plan of a start after each kind of crash."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from stackcast.jobs.adapters.checkpoint.pins import Pin
from stackcast.jobs.adapters.checkpoint.progress import Position
from stackcast.jobs.adapters.stream.recovery import Interrupted, RecoveryPlan, recovery_plan

pytestmark = pytest.mark.unit


def pin(until: int | None) -> Pin:
    """Return the pin of a slice that may read up to an offset, or of a micro-batch for None."""
    return Pin({"subscriptions": 1}, {}, {}, {} if until is None else {0: until})


SHORT, LONG, BATCH = pin(15), pin(40), pin(None)


class Crash(NamedTuple):
    """Files after a crash, and the plan of the next start.

    Batch 3 begins at offset 10, and the topic ends at offset 30.

    Attributes:
        planned: offset at which batch 3 was planned to end.
        recorded: whether batch 3 is recorded.
        pins: pins by number.
        plan: number, offset, end and pin of the next batch; the end is None if nothing is sent.
        stale: numbers of pins that are removed.
        commit: whether batch 3 is committed.
        forget: whether the plan of batch 3 is forgotten.
        replan: whether the end of the batch that is sent again is planned.
    """

    planned: int | None
    recorded: bool
    pins: dict[int, Pin]
    plan: tuple[int, int, int | None, Pin | None]
    stale: tuple[int, ...] = ()
    commit: bool = False
    forget: bool = False
    replan: bool = False


CRASHES = {
    "nothing was interrupted": Crash(None, False, {}, (3, 10, None, None)),
    "a slice, up to its pin": Crash(None, False, {3: SHORT}, (3, 10, 15, SHORT), replan=True),
    "a slice, up to the end": Crash(None, False, {3: LONG}, (3, 10, 30, LONG), replan=True),
    "two slices, sent as one": Crash(
        None, False, {3: SHORT, 4: LONG}, (3, 10, 30, SHORT), stale=(4,), replan=True
    ),
    "a slice without records": Crash(None, False, {3: pin(10)}, (3, 10, None, None), stale=(3,)),
    "two slices without records": Crash(
        None, False, {3: pin(10), 4: pin(10)}, (3, 10, None, None), stale=(3, 4)
    ),
    "a micro-batch before its pin": Crash(20, False, {}, (3, 10, 20, None)),
    "a micro-batch": Crash(20, False, {3: BATCH}, (3, 10, 20, BATCH)),
    "the record of a slice": Crash(20, False, {3: LONG}, (3, 10, 20, LONG)),
    "the record of a slice before another": Crash(
        *(20, False, {3: SHORT, 4: LONG}, (3, 10, 30, SHORT)),
        stale=(4,),
        forget=True,
        replan=True,
    ),
    "a commit": Crash(20, True, {}, (4, 20, None, None), commit=True),
    "a commit, and the slice after it": Crash(
        20, True, {4: LONG}, (4, 20, 30, LONG), commit=True, replan=True
    ),
}


@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
def test_a_start_sends_interrupted_batches_again(crash: Crash) -> None:
    planned = None if crash.planned is None else {0: crash.planned}
    position = Position(3, planned, "topic", {0: 10})
    number, offset, end, batch_pin = crash.plan
    interrupted = None if end is None else Interrupted({0: end}, batch_pin, crash.replan)
    assert recovery_plan(position, crash.pins, {0: (0, 30)}, crash.recorded) == RecoveryPlan(
        *(crash.commit, crash.forget, number, {0: offset}, interrupted, crash.stale)
    )


def test_a_partition_that_only_the_slice_has_read_is_sent_from_its_beginning() -> None:
    position = Position(3, None, "topic", {0: 10})
    pin_of_both = Pin({"subscriptions": 1}, {}, {}, {0: 50, 1: 50})
    plan = recovery_plan(position, {3: pin_of_both}, {0: (0, 30), 1: (0, 4)}, False)
    assert plan.interrupted == Interrupted({0: 30, 1: 4}, pin_of_both, replan=True)
    assert plan.offsets == {0: 10}


def test_a_log_that_is_shorter_than_the_offsets_is_not_read_backwards() -> None:
    position = Position(3, None, "topic", {0: 10, 1: 0})
    pin_of_both = Pin({"subscriptions": 1}, {}, {}, {0: 50, 1: 50})
    plan = recovery_plan(position, {3: pin_of_both}, {0: (0, 8), 1: (0, 4)}, False)
    assert plan.interrupted == Interrupted({0: 10, 1: 4}, pin_of_both, replan=True)
