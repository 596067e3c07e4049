"""Background work of the driver: calls in order on one thread, and actions that repeat."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, ParamSpec, Protocol, TypeVar

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock

P = ParamSpec("P")
T = TypeVar("T")

Action = Callable[[], float | None]
"""A repeated action. It returns the seconds until its next call, or None to wait for `wake`."""


class Worker(Protocol):
    """A thread that runs calls one after the other, in the order of their submission."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call on the thread and return its future result."""

    def close(self) -> None:
        """Return after all submitted calls have ended."""


class Poll(Protocol):
    """An action that repeats in the background."""

    def wake(self) -> None:
        """Make the next call due now."""

    def close(self) -> None:
        """End the repetition, and return after a call in progress has ended.

        Raises:
            Exception: the error of a call, which has ended the repetition earlier.
        """


class Threads(Protocol):
    """The threads of a driver, and their clock."""

    @property
    def clock(self) -> Clock:
        """The clock by which the threads wait."""

    def worker(self, name: str) -> Worker:
        """Return a new thread for calls in order."""

    def poll(self, name: str, action: Action, delay: float = 0.0) -> Poll:
        """Call an action after a delay in seconds, and again when its result says so."""

    def wait(self, futures: Sequence[Future[Any]], seconds: float | None = None) -> bool:
        """Return True as soon as one of the futures has ended, or False after this time."""


class SystemThreads:
    """Threads of the operating system. A poll does not keep the process alive; a worker does."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock

    def worker(self, name: str) -> Worker:
        return _PoolWorker(name)

    def poll(self, name: str, action: Action, delay: float = 0.0) -> Poll:
        return _PollThread(name, action, delay, self.clock)

    def wait(self, futures: Sequence[Future[Any]], seconds: float | None = None) -> bool:
        return bool(wait(futures, seconds, FIRST_COMPLETED).done)


SYSTEM_THREADS = SystemThreads()


class _PoolWorker:
    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._pool.submit(call, *args, **kwargs)

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class _PollThread:
    def __init__(self, name: str, action: Action, delay: float, clock: Clock) -> None:
        self._action = action
        self._due = clock.event()
        self._closing = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(delay,), name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._due.set()

    def close(self) -> None:
        self._closing = True
        self._due.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, delay: float | None) -> None:
        while True:
            self._due.wait(delay)
            if self._closing:
                return
            self._due.clear()
            try:
                delay = self._action()
            except BaseException as error:
                self._error = error
                return
