"""A request to stop that a signal handler may make.

A handler interrupts the main thread at any point, even in another handler. `threading.Event.set`
takes a lock that is not reentrant: the second of two signals in quick succession, or a signal that
interrupts `Event.wait`, would wait forever for itself.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class StopAsked(Exception):  # noqa: N818 - not an error
    """Ends work after a stop was requested. It is not an error."""


class StopRequest:
    """A flag like `threading.Event` that signal handlers may set. Once set, it stays set."""

    def __init__(self) -> None:
        self._set = False
        # Wakes waiting threads, one after the other. Its `put` is reentrant by contract.
        self._wake: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Request to stop. All threads and signal handlers may call this."""
        self._set = True
        self._wake.put(None)

    def is_set(self) -> bool:
        """Return True if a stop was requested, without waiting."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a request, and return True if a stop was requested.

        Args:
            timeout: maximum wait in seconds; None means no limit.

        Raises:
            ValueError: ``timeout`` is negative.
        """
        try:
            self._wake.get(timeout=timeout)
        except Empty:
            return self._set
        self._wake.put(None)  # for the next waiting thread
        return True
