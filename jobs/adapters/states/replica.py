"""The client of programs: a state that others change, and that this program publishes.

from stackcast.jobs.adapters.states.replica import Replica

with Replica("scanners", name="edge-1") as scanners:
    scanners.publish(b"...")                 # to every replica of the state
    print(scanners.value, scanners.values)   # the newest update; the last of each publisher
    for update in scanners.updates(timeout=20):
        print(update.publisher, update.data)
"""

from __future__ import annotations

from collections.abc import Iterator

from stackcast.jobs.adapters.states.client import LOCAL, StatesClient
from stackcast.jobs.adapters.states.credentials import StateCredentials
from stackcast.udfs.states.program import Update


class Replica:
    """One state, held and published by this program, over its host's middleware.

    A context manager. It connects again by itself, and publishes again what was not yet safe.
    ``subscribes`` False: it publishes only. Safe for several threads. Of several states a program
    has one `StatesClient`. ``credentials``: for a middleware with TLS.
    """

    def __init__(
        self,
        state: str,
        name: str = "",
        middleware: tuple[str, int] = LOCAL,
        *,
        subscribes: bool = True,
        credentials: StateCredentials | None = None,
    ) -> None:
        self.state = state
        self._client = StatesClient(name, middleware, credentials)
        if subscribes:
            self._client.subscribe(state)

    def __enter__(self) -> Replica:
        self._client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.__exit__()

    @property
    def value(self) -> bytes | None:
        """The state: the newest update of all publishers; None before the first."""
        return self._client.value(self.state)

    @property
    def values(self) -> dict[str, bytes]:
        """The last update of each publisher, by its name."""
        return self._client.values(self.state)

    def publish(self, data: bytes) -> None:
        """Publishes an update; it is on its way when this returns, or will be with a middleware.

        Raises StateError ``TOO_LARGE``.
        """
        self._client.publish(self.state, data)

    def flush(self, timeout: float = 30.0) -> None:
        """Waits until the replica controller has all that was published.

        Raises StateError ``NOT_SAFE`` if it takes longer.
        """
        self._client.flush(timeout)

    def updates(self, timeout: float | None = None) -> Iterator[Update]:
        """Yields updates as they come, each once; ends when none came for so many seconds.

        Who reads slowly, or late, gets the last 4,096.
        """
        return self._client.updates(timeout)
