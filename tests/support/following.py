"""Jobs on threads of the test, in its Spark session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from waiting import until

from jobs import refresh_switches
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.switches.lead import Refresher
from jobs.adapters.tables.tables import Tables


@contextmanager
def job_on_thread(job: Callable[[Lifecycle], object]) -> Iterator[Callable[[], bool]]:
    """Run a job during a block; yields a function that fails if the job has ended.

    At the end of the block the job is asked to stop. It must return 0 or None.
    """
    lifecycle, outcomes = Lifecycle(), []

    def work() -> None:
        try:
            outcomes.append(job(lifecycle))
        except BaseException as error:
            outcomes.append(error)

    def runs() -> bool:
        assert not outcomes, outcomes
        return True

    thread = threading.Thread(target=work)
    with pytest.MonkeyPatch.context() as patch:
        # Only the main thread may set signal handlers.
        patch.setattr(Lifecycle, "hold_jvm", lambda *_: None)
        thread.start()
        try:
            yield runs
        finally:
            lifecycle.stopping.set()
            thread.join(600)
    assert outcomes in ([0], [None]) and not thread.is_alive(), outcomes


@contextmanager
def following(tables: Tables, settings: Settings) -> Iterator[Refresher]:
    """Run the job that refreshes switches."""
    with (
        Refresher(tables, settings) as refresher,
        job_on_thread(lambda lifecycle: refresh_switches.follow(tables, refresher, lifecycle)),
    ):
        yield refresher


def wait_for_rounds(refresher: Refresher, number: int) -> None:
    """Wait until a refresher that runs has begun and ended this number of rounds."""
    polled, rounds = refresher.metrics.polled, []

    def count(leads: bool) -> None:
        polled(leads)
        rounds.append(leads)

    refresher.metrics.polled = count
    # The first round may have begun before.
    until(lambda: len(rounds) > number)
    refresher.metrics.polled = polled
