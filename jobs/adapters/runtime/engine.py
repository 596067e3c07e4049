"""The engine that runs tasks on many machines: Spark, or memory in tests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from stackcast.jobs.adapters.runtime.threads import Threads

T = TypeVar("T")
Value_co = TypeVar("Value_co", covariant=True)


class Shared(Protocol[Value_co]):
    """A value that all tasks can read, see `Engine.broadcast`."""

    @property
    def value(self) -> Value_co:
        """The value."""

    def destroy(self) -> None:
        """Free the memory and the files of the value. No task may use it any longer."""


class Engine(Threads, Protocol):
    """Runs numbered tasks on the executors."""

    def run(self, work: Callable[[int], T], count: int) -> list[T]:
        """Return the results of ``work`` for the numbers below ``count``, in their order.

        Each number is a task, which the engine may run again if it or its machine fails.
        """

    def submit(self, work: Callable[[int], T], count: int) -> Future[list[T]]:
        """Start tasks as `run` does, and return their future results."""

    def broadcast(self, value: Any) -> Shared[Any]:
        """Send a value to all executors once."""

    def close(self) -> None:
        """Return after all submitted tasks have ended."""

    def single_host(self) -> bool:
        """Return True if all tasks run on one machine and share its files."""
