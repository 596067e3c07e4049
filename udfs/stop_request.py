"""A request to stop that a signal handler may make.

A handler runs in the middle of whatever the main thread does, even of another handler.
`threading.Event.set` takes a lock that is not re-entrant: the second of two signals close to each
other, or one that finds the main thread inside `Event.wait`, would wait for ever for itself.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class StopRequest:
    """Not set at first; once set, it stays so. As `threading.Event`, but safe in handlers."""

    def __init__(self) -> None:
        self._set = False
        # Wakes those who wait, one after the other. Its `put` is re-entrant by contract.
        self._wake: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Asks to stop, from any thread, and from signal handlers."""
        self._set = True
        self._wake.put(None)

    def is_set(self) -> bool:
        """Returns True if anyone asked; never waits."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until someone asks, or ``timeout`` seconds; returns True if someone did.

        Raises ValueError if ``timeout`` is negative.
        """
        try:
            self._wake.get(timeout=timeout)
        except Empty:
            return self._set
        self._wake.put(None)  # for all others who wait
        return True
