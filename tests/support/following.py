"""Jobs on threads of the test, in its Spark session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from crashing_stream import committed
from pyspark.sql import SparkSession
from waiting import until

from stackcast.jobs import refresh_switches
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.tables import Tables


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


_KNOWN: dict[tuple[str, str], tuple[int, list[dict[str, Any]]]] = {}


def polled(tables: Tables, name: str) -> list[dict[str, Any]]:
    """As `Tables.rows`, which takes half a second, but read again only where the table changed."""
    place, version = (tables.location, name), tables.version(name)
    if place not in _KNOWN or _KNOWN[place][0] != version:
        _KNOWN[place] = version, tables.rows(name)
    return _KNOWN[place][1]


def drain(spark: SparkSession, settings: Settings, *steps: Callable[[], None]) -> BatchDelivery:
    """Run the stream until its topic is drained, then each step and drain again, then stop.

    Raises StreamError if the stream ends by itself.
    """
    lifecycle = Lifecycle()
    before = committed(settings)
    query, delivery = start(spark, settings, lifecycle)
    topics = Topics(spark, settings)
    left = list(steps)
    looked: dict[int, int] | None = None

    def drained() -> bool:
        nonlocal looked
        # A stream before this one may have delivered everything.
        processed = before | delivery.recorder.processed
        # Asking Kafka takes a quarter of a second.
        if processed == looked:
            return False
        looked = processed
        if any(looked.get(p, 0) < end for p, end in topics.end_offsets().items()):
            return False
        if not left:
            return True
        left.pop(0)()
        looked = None
        return False

    try:
        lifecycle.run(query, drained)
        delivery.flush_summaries()
    finally:
        delivery.close()
    return delivery
