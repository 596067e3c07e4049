"""Calls to switches in the background, at most one per switch at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Generic, TypeVar

from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads

#: Switches that are called at the same time.
PARALLEL = 64

_Result = TypeVar("_Result")


class Background(Generic[_Result]):
    """Runs calls in threads. A switch that hangs delays only its own. Not thread-safe.

    Args:
        name: prefix of the names of the threads.
        threads: threads of the driver.
    """

    def __init__(self, name: str, threads: Threads = SYSTEM_THREADS) -> None:
        self._worker = threads.worker(name, PARALLEL)
        self._running: dict[str, Future[_Result]] = {}

    def start(self, calls: Mapping[str, Callable[[], _Result]]) -> None:
        """Start the calls, by switch, except where the last call was not collected."""
        for switch, call in calls.items():
            if switch not in self._running:
                self._running[switch] = self._worker.submit(call)

    def collect(self) -> dict[str, _Result]:
        """Return the results of calls that have ended since the last time, by switch."""
        ended = {switch: call for switch, call in self._running.items() if call.done()}
        for switch in ended:
            del self._running[switch]
        return {switch: call.result() for switch, call in ended.items()}

    def close(self) -> None:
        """Start no further call, and do not wait for those that run."""
        self._worker.close(wait=False)
