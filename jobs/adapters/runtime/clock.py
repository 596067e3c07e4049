"""The clock of the driver: the only module of the adapters that reads the time or sleeps."""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import Protocol


class Event(Protocol):
    """A flag that one thread sets and other threads wait for, see `threading.Event`."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Clock(Protocol):
    """Wall time, elapsed time and waits.

    The time of an event and the time of a Kafka record are data, and no clock returns them.
    """

    def wall_time(self) -> float:
        """Return the seconds since 1970, for timestamps that leave the process."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations and deadlines."""

    def sleep(self, seconds: float) -> None:
        """Return after this time."""

    def event(self) -> Event:
        """Return a new event, whose timeouts follow this clock."""


class SystemClock:
    """The clock of the machine."""

    def wall_time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def event(self) -> Event:
        return threading.Event()


SYSTEM_CLOCK = SystemClock()


def utc(clock: Clock) -> dt.datetime:
    """Return the wall time as a datetime in UTC."""
    return dt.datetime.fromtimestamp(clock.wall_time(), dt.UTC)
