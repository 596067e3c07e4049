"""The client of programs for one state, which others change and which this program publishes."""

from __future__ import annotations

from collections.abc import Iterator

from stackcast.jobs.adapters.states.client import LOCAL, StatesClient
from stackcast.jobs.adapters.states.credentials import StateCredentials
from stackcast.udfs.states.program import Update


class Replica:
    """Publish a state, and hold a replica of it, over the middleware of this host.

    A context manager. It connects again after errors, and then publishes again each update that the
    replica controller does not have yet. Safe for several threads. A program of several states uses
    `StatesClient`.

    Args:
        state: name of the state.
        name: name of the program; by default that of the host.
        middleware: host and port of the middleware.
        subscribes: whether updates are received; if not, the program only publishes.
        credentials: PEM files, if the middleware requires TLS.

    Raises:
        StateError: ``BAD_TLS``, if the files do not fit.

    Example:
        One host runs ``stackcast states controller``, and two others run ``stackcast states
        middleware --listen ADDRESS``. ``first`` and ``second`` are the addresses of these two,
        such as ``("127.0.0.1", 65431)``:

        >>> sensor, reader = Replica("office", "sensor", first), Replica("office", "reader", second)
        >>> with sensor, reader:
        ...     sensor.publish(b"21 degrees")
        ...     sensor.flush()
        ...     update = next(reader.updates(timeout=30))
        ...     print(update.publisher, update.data)
        ...     print(reader.value, reader.values)
        sensor b'21 degrees'
        b'21 degrees' {'sensor': b'21 degrees'}
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
        """Wait until the replica controller has every update of this program.

        Raises StateError ``NOT_CONFIRMED`` if it takes longer.
        """
        self._client.flush(timeout)

    def updates(self, timeout: float | None = None) -> Iterator[Update]:
        """Yield each update once, as it arrives; end if none arrives for this number of seconds.

        A program that reads slowly or late gets the last 4,096.
        """
        return self._client.updates(timeout)
