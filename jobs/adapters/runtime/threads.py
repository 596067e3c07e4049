"""Background work of the driver: calls on threads, and actions that repeat."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, ParamSpec, Protocol, TypeVar

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

Action = Callable[[], float | None]
"""A repeated action. It returns the seconds until its next call, or None to wait for `wake`."""


class Worker(Protocol):
    """Threads that start calls in the order of their submission. See `Threads.worker`."""

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call on a thread and return its future result."""

    def close(self, wait: bool = True) -> None:
        """End the threads after their calls.

        Args:
            wait: whether to run all submitted calls, and return after they have ended. Otherwise
                calls that have not started are cancelled, and those that run are not awaited.
        """


class Poll(Protocol):
    """An action that repeats in the background."""

    def wake(self) -> None:
        """Make the next call due now."""

    def close(self, seconds: float | None = None) -> None:
        """End the repetition, and return after a call in progress has ended.

        Args:
            seconds: maximum wait for this call; None for no limit.

        Raises:
            Exception: the error of a call, which has ended the repetition earlier.
        """


class Threads(Protocol):
    """The threads of a driver, and their clock."""

    @property
    def clock(self) -> Clock:
        """The clock by which the threads wait."""

    def start(
        self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Run a call on a thread of its own, and return its future result.

        The thread does not keep the process alive.
        """

    def worker(self, name: str, parallel: int = 1) -> Worker:
        """Return new threads for calls, of which this number run at the same time."""

    def poll(self, name: str, action: Action, delay: float = 0.0) -> Poll:
        """Call an action after a delay in seconds, and again when its result says so."""

    def wait(self, futures: Sequence[Future[Any]], seconds: float | None = None) -> bool:
        """Return True as soon as one of the futures has ended, or False after this time."""


class SystemThreads:
    """Threads of the operating system. A poll does not keep the process alive; a worker does."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock

    def start(
        self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=name, daemon=True).start()
        return future

    def worker(self, name: str, parallel: int = 1) -> Worker:
        return _PoolWorker(name, parallel)

    def poll(self, name: str, action: Action, delay: float = 0.0) -> Poll:
        return _PollThread(name, action, delay, self.clock)

    def wait(self, futures: Sequence[Future[Any]], seconds: float | None = None) -> bool:
        return bool(wait(futures, seconds, FIRST_COMPLETED).done)


SYSTEM_THREADS = SystemThreads()


def parallel_map(
    threads: Threads, name: str, call: Callable[[Item], T], items: Iterable[Item], parallel: int
) -> list[T]:
    """Return the results of a call for each item, in the order of the items.

    Args:
        threads: threads of the driver.
        name: name of the threads.
        call: called once per item. Its first error is raised after all calls have ended.
        items: arguments of the calls.
        parallel: number of calls that run at the same time.
    """
    worker = threads.worker(name, parallel)
    try:
        results = [worker.submit(call, item) for item in items]
    finally:
        worker.close()
    return [result.result() for result in results]


def wait_for_all(
    threads: Threads, futures: Sequence[Future[Any]], seconds: float | None = None
) -> bool:
    """Return True after all futures have ended, or False after this time."""
    deadline = None if seconds is None else threads.clock.monotonic() + seconds
    while pending := [future for future in futures if not future.done()]:
        remaining = None if deadline is None else deadline - threads.clock.monotonic()
        if not threads.wait(pending, remaining):
            return False
    return True


class _PoolWorker:
    def __init__(self, name: str, parallel: int) -> None:
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix=name)

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return self._pool.submit(call, *args, **kwargs)

    def close(self, wait: bool = True) -> None:
        self._pool.shutdown(wait, cancel_futures=not wait)


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

    def close(self, seconds: float | None = None) -> None:
        self._closing = True
        self._due.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(seconds)
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
