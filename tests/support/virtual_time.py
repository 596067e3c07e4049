"""Time, threads and tasks in memory, for tests that run the whole driver under a virtual clock.

Each thread of the program is a real one, but only one of them runs at a time. A thread that waits
hands over to the next one that can run, or else lets time pass until the first deadline. So a run
has no pause, and takes the same course each time.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, NamedTuple


class Shared(NamedTuple):
    """A broadcast value."""

    value: Any

    def destroy(self) -> None:
        pass


class _Waiter(NamedTuple):
    condition: Callable[[], bool]
    deadline: float | None
    order: int
    resume: threading.Semaphore


class VirtualTime:
    """A clock, threads and an engine.

    Args:
        wall_time: seconds since 1970 at which the clock starts.
    """

    def __init__(self, wall_time: float = 1_700_000_000.0) -> None:
        self._start = wall_time
        self._now = 0.0
        self._waiters: list[_Waiter] = []
        self._order = itertools.count()

    # The clock

    @property
    def clock(self) -> VirtualTime:
        return self

    def wall_time(self) -> float:
        return self._start + self._now

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self.block(lambda: False, seconds)

    def event(self) -> _Event:
        return _Event(self)

    # Threads

    def worker(self, name: str, parallel: int = 1) -> _Worker:
        return _Worker(self, name, parallel)

    def poll(self, name: str, action: Callable[[], float | None], delay: float = 0.0) -> _Poll:
        return _Poll(self, name, action, delay)

    def wait(self, futures: Sequence[Future[Any]], seconds: float | None = None) -> bool:
        return self.block(lambda: any(future.done() for future in futures), seconds)

    # The engine

    def run(self, work: Callable[[int], Any], count: int) -> list[Any]:
        tasks = [self.start(f"task {number}", work, number) for number in range(count)]
        return [task.result() for task in tasks]

    def submit(self, work: Callable[[int], Any], count: int) -> Future[list[Any]]:
        return self.start("job", self.run, work, count)

    def broadcast(self, value: Any) -> Shared:
        return Shared(value)

    def close(self) -> None:
        pass

    def single_host(self) -> bool:
        return True

    # Scheduling

    def start(self, name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> _Future:
        """Run a call on a thread of its own."""
        future, resume = _Future(self), threading.Semaphore(0)

        def run() -> None:
            resume.acquire()
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)
            self._next().resume.release()

        threading.Thread(target=run, name=name, daemon=True).start()
        self._waiters.append(_Waiter(lambda: True, None, next(self._order), resume))
        return future

    def block(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Let other threads run until the condition holds, or for this time."""
        deadline = None if seconds is None else self._now + seconds
        resume = threading.Semaphore(0)
        self._waiters.append(_Waiter(condition, deadline, next(self._order), resume))
        self._next().resume.release()
        resume.acquire()
        return condition()

    def _next(self) -> _Waiter:
        """Take the thread that runs next from the list, after time has passed if none can run."""
        ready = [waiter for waiter in self._waiters if waiter.condition()]
        if not ready:
            timed = [waiter for waiter in self._waiters if waiter.deadline is not None]
            assert timed, "all threads wait for something that cannot happen"
            ready = [min(timed, key=lambda waiter: (waiter.deadline, waiter.order))]
            self._now = max(self._now, ready[0].deadline or 0.0)
        waiter = min(ready, key=lambda waiter: waiter.order)
        self._waiters.remove(waiter)
        return waiter


class _Event:
    def __init__(self, time: VirtualTime) -> None:
        self._time, self._flag = time, False

    def set(self) -> None:
        self._flag = True

    def clear(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        return self._flag

    def wait(self, timeout: float | None = None) -> bool:
        return self._time.block(self.is_set, timeout)


class _Future(Future[Any]):
    """A result whose reader lets other threads run until it is there."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__()
        self._time = time

    def result(self, timeout: float | None = None) -> Any:
        self._time.block(self.done, timeout)
        return super().result(0)


class _Worker:
    def __init__(self, time: VirtualTime, name: str, parallel: int) -> None:
        self._time, self._name, self._parallel = time, name, parallel
        self._calls, self._cancelled = list[_Future](), False

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> _Future:
        earlier = [future for future in self._calls if not future.done()]

        def can_start() -> bool:
            running = sum(not future.done() for future in earlier)
            return running < self._parallel or self._cancelled

        def run() -> Any:
            self._time.block(can_start, None)
            if self._cancelled:
                raise CancelledError
            return call(*args, **kwargs)

        self._calls = [*earlier, self._time.start(self._name, run)]
        return self._calls[-1]

    def close(self, wait: bool = True) -> None:
        if wait:
            self._time.block(lambda: all(call.done() for call in self._calls), None)
        self._cancelled = True


class _Poll:
    def __init__(
        self,
        time: VirtualTime,
        name: str,
        action: Callable[[], float | None],
        delay: float,
    ) -> None:
        self._time, self._action = time, action
        self._delay: float | None = delay
        self._due, self._closing = time.event(), False
        self._thread: threading.Thread | None = None
        self._ended: Future[Any] = time.start(name, self._run)

    def wake(self) -> None:
        self._due.set()

    def close(self, seconds: float | None = None) -> None:
        self._closing = True
        self._due.set()
        inside = threading.current_thread() is self._thread
        if not inside and self._time.block(self._ended.done, seconds):
            ended, self._ended = self._ended, Future()
            self._ended.set_result(None)
            ended.result()

    def _run(self) -> None:
        self._thread, delay = threading.current_thread(), self._delay
        while True:
            self._due.wait(delay)
            if self._closing:
                return
            self._due.clear()
            delay = self._action()
