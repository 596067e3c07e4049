"""A program's connection to the middleware of its host, with all states that it publishes or holds.

`Replica` is this for one state.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator

from stackcast.udfs.errors import StateError
from stackcast.udfs.states.messages import MIDDLEWARE_PORT, Signal, SignalReader
from stackcast.udfs.states.program import Program, Update

LOCAL = ("127.0.0.1", MIDDLEWARE_PORT)
MOST_UNREAD = 4096
"""Updates that wait for who reads `StatesClient.updates`; older ones are only in `values`."""

_RETRY = 0.25
_READ = 1 << 18


class StatesClient:
    """One program called ``name`` (the host's name by default), over its host's middleware.

    A context manager. It connects again by itself, subscribes again, and publishes again what was
    not yet safe. Safe for several threads.
    """

    def __init__(self, name: str = "", middleware: tuple[str, int] = LOCAL) -> None:
        self._middleware = middleware
        self._program = Program(name or socket.gethostname())
        self._lock = threading.Condition()
        self._socket: socket.socket | None = None
        self._updates: deque[Update] = deque(maxlen=MOST_UNREAD)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="states", daemon=True)

    def __enter__(self) -> StatesClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None:
            self._thread.join()

    def subscribe(self, state: str) -> None:
        """Asks for a replica of a state; its updates come as of `updates`, `value` and `values`."""
        with self._lock:
            self._send(self._program.subscribe(state))

    def unsubscribe(self, state: str) -> None:
        """Gives a replica up; what it has stays readable."""
        with self._lock:
            self._send(self._program.unsubscribe(state))

    def publish(self, state: str, data: bytes) -> None:
        """Publishes an update; it is on its way when this returns, or will be with a middleware.

        Raises StateError ``TOO_LARGE``.
        """
        with self._lock:
            self._send(self._program.publish(state, data))

    def value(self, state: str) -> bytes | None:
        """Returns the newest update of all publishers of a state; None before the first."""
        with self._lock:
            update = self._program.value(state)
        return None if update is None else update.data

    def values(self, state: str) -> dict[str, bytes]:
        """Returns the last update of each publisher of a state, by its name."""
        with self._lock:
            found = self._program.values(state)
        return {name: update.data for name, update in found.items()}

    def flush(self, timeout: float = 30.0) -> None:
        """Waits until the replica controller has all that was published.

        Raises StateError ``NOT_SAFE`` if it takes longer.
        """
        until = time.monotonic() + timeout
        with self._lock:
            while self._program.unacknowledged:
                if not self._lock.wait(until - time.monotonic()) and time.monotonic() >= until:
                    raise StateError(
                        "NOT_SAFE",
                        f"{self._program.unacknowledged} updates of {self._program.name} are not "
                        "yet with the replica controller; they are tried on while the program runs",
                    )

    def updates(self, timeout: float | None = None) -> Iterator[Update]:
        """Yields updates as they come, each once; ends when none came for so many seconds.

        Who reads slowly, or late, gets the last `MOST_UNREAD`.
        """
        while True:
            with self._lock:
                if not self._lock.wait_for(lambda: self._updates, timeout):
                    return
                update = self._updates.popleft()
            yield update

    def _run(self) -> None:
        while not self._is_closed:
            with (
                contextlib.suppress(OSError, StateError),
                socket.create_connection(self._middleware, timeout=5.0) as peer,
            ):
                peer.settimeout(None)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._serve(peer)
            with self._lock:
                self._socket = None
                self._program.disconnected()
                self._lock.wait_for(lambda: self._is_closed, _RETRY)

    def _serve(self, peer: socket.socket) -> None:
        reader = SignalReader()
        with self._lock:
            if self._is_closed:
                return
            self._socket = peer
            self._send(self._program.connected())
        while data := peer.recv(_READ):
            for signal in reader.feed(data):
                with self._lock:
                    answers, update = self._program.take(signal)
                    self._send(answers)
                    if update is not None:
                        self._updates.append(update)
                    self._lock.notify_all()

    def _send(self, signals: list[Signal]) -> None:
        for signal in signals:
            data = signal.pack()
            if self._socket is not None:
                # The end of the connection is found where it is read.
                with contextlib.suppress(OSError):
                    self._socket.sendall(data)
