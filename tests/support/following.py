"""The refresher's job beside a test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobs import refresh_switches
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.switches.lead import Refresher
from jobs.adapters.tables.tables import Tables


@contextmanager
def following(tables: Tables, settings: Settings) -> Iterator[None]:
    """The job runs on a thread of its own; how it failed, if it did, is the test's failure."""
    lifecycle = Lifecycle()
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            with Refresher(tables, settings) as refresher:
                refresh_switches.follow(tables, refresher, lifecycle)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        lifecycle.stopping.set()
        thread.join(60)
    assert not failures and not thread.is_alive(), failures
