"""The driver's clock, threads and tasks behave the same on a machine and in memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest
from virtual_time import VirtualTime

from stackcast.jobs.adapters.runtime.threads import (
    SYSTEM_THREADS,
    Threads,
    parallel_map,
    wait_for_all,
)

pytestmark = pytest.mark.unit


@pytest.fixture(params=["machine", "memory"])
def threads(request: pytest.FixtureRequest) -> Threads:
    return SYSTEM_THREADS if request.param == "machine" else VirtualTime()


def test_time_passes_while_a_program_sleeps(threads: Threads):
    clock = threads.clock
    monotonic, wall = clock.monotonic(), clock.wall_time()
    clock.sleep(0.01)
    assert clock.monotonic() - monotonic >= 0.01
    assert clock.wall_time() - wall >= 0.009


def test_a_wait_ends_with_the_event_or_after_its_timeout(threads: Threads):
    event = threads.clock.event()
    assert not event.wait(0.01) and not event.is_set()
    threads.worker("setter").submit(event.set)
    assert event.wait()
    event.clear()
    assert not event.wait(0)


def test_a_worker_runs_calls_in_their_order_and_reports_their_errors(threads: Threads):
    worker, calls = threads.worker("calls"), list[int]()
    results = [worker.submit(calls.append, number) for number in range(50)]
    failure = worker.submit(int, "x")
    worker.close()
    assert calls == list(range(50)) and all(result.done() for result in results)
    with pytest.raises(ValueError, match="invalid literal"):
        failure.result()


def test_a_started_call_returns_its_result_or_its_error(threads: Threads):
    assert threads.start("sum", sum, [1, 2]).result() == 3
    with pytest.raises(ValueError, match="invalid literal"):
        threads.start("fails", int, "x").result()


def test_a_worker_runs_as_many_calls_at_the_same_time_as_it_has_threads(threads: Threads):
    worker, gates = threads.worker("calls", 2), [threads.clock.event() for _ in range(3)]
    started = list[int]()

    def call(number: int) -> int:
        started.append(number)
        gates[number].wait()
        return number

    results = [worker.submit(call, number) for number in range(3)]
    until(threads, lambda: len(started) == 2)
    threads.clock.sleep(0.01)
    assert started == [0, 1]
    gates[1].set()
    assert results[1].result() == 1
    until(threads, lambda: len(started) == 3)
    assert not wait_for_all(threads, results, 0.01)
    gates[0].set(), gates[2].set()
    assert wait_for_all(threads, results) and [r.result() for r in results] == [0, 1, 2]
    worker.close()


def test_a_worker_that_is_closed_without_a_wait_cancels_calls_that_have_not_started(
    threads: Threads,
):
    worker, gate, started = threads.worker("calls"), threads.clock.event(), threads.clock.event()

    def call() -> str:
        started.set()
        gate.wait()
        return "done"

    running, waiting = worker.submit(call), worker.submit(call)
    started.wait()
    worker.close(wait=False)
    assert not running.done()
    gate.set()
    assert running.result() == "done"
    with pytest.raises(CancelledError):
        waiting.result()


def test_results_of_parallel_calls_are_in_the_order_of_their_items(threads: Threads):
    def call(number: int) -> int:
        threads.clock.sleep(number / 1000)
        return 10 // number

    assert parallel_map(threads, "divide", call, [5, 2, 1], 3) == [2, 5, 10]
    assert parallel_map(threads, "divide", call, [], 3) == []
    with pytest.raises(ZeroDivisionError):
        parallel_map(threads, "divide", call, [1, 0], 3)


def test_the_first_of_several_results_ends_a_wait(threads: Threads):
    gate = threads.clock.event()
    late = threads.worker("late").submit(gate.wait, 60)
    assert not threads.wait([late], 0.01)
    soon = threads.worker("soon").submit(sum, [1, 2])
    assert threads.wait([late, soon], 60) and soon.result() == 3
    gate.set()
    assert late.result() is True


def counting(threads: Threads, pauses: list[float | None]) -> tuple[list[float], Callable[[], Any]]:
    """An action that notes the time of each call and then waits for the next pause."""
    calls = list[float]()

    def action() -> float | None:
        calls.append(threads.clock.monotonic())
        return pauses[min(len(calls), len(pauses)) - 1]

    return calls, action


def until(threads: Threads, condition: Callable[[], bool]) -> None:
    while not condition():
        threads.clock.sleep(0.001)


def test_an_action_repeats_after_the_pause_that_it_returns(threads: Threads):
    calls, action = counting(threads, [1 / 64, 1 / 128, None])
    poll = threads.poll("count", action)
    until(threads, lambda: len(calls) == 3)
    assert calls[1] - calls[0] >= 1 / 64 and calls[2] - calls[1] >= 1 / 128
    threads.clock.sleep(0.03)
    assert len(calls) == 3, "None means that only a wake is followed by a call"
    poll.wake()
    until(threads, lambda: len(calls) == 4)
    poll.close()
    poll.wake()
    threads.clock.sleep(0.02)
    assert len(calls) == 4


def test_a_delay_holds_the_first_call_back_and_a_wake_does_not_wait_for_it(threads: Threads):
    calls, action = counting(threads, [None])
    poll = threads.poll("count", action, delay=60)
    threads.clock.sleep(0.01)
    assert not calls
    poll.wake()
    until(threads, lambda: len(calls) == 1)
    poll.close()


def test_an_error_ends_the_repetition_and_is_raised_by_close(threads: Threads):
    calls = list[None]()

    def action() -> float:
        calls.append(None)
        raise LookupError("no such table")

    poll = threads.poll("fails", action)
    until(threads, lambda: bool(calls))
    threads.clock.sleep(0.01)
    with pytest.raises(LookupError, match="no such table"):
        poll.close()
    assert len(calls) == 1
    poll.close()


def test_close_does_not_wait_longer_than_its_limit(threads: Threads):
    proceed, started = threads.clock.event(), threads.clock.event()

    def action() -> None:
        started.set()
        proceed.wait()

    poll = threads.poll("waits", action)
    started.wait()
    start = threads.clock.monotonic()
    poll.close(1 / 64)
    assert 1 / 64 <= threads.clock.monotonic() - start < 30
    proceed.set()
    poll.close()
