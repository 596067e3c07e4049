"""The client of programs: states that others change, and that this program publishes.

from jobs.adapters.states.replica import Replica

with Replica("scanners", name="edge-1") as scanners:
    scanners.publish(b"...")                 # to every replica of the state
    print(scanners.value, scanners.values)   # the newest update; the last of each publisher
    for update in scanners.updates(timeout=20):
        print(update.publisher, update.data)
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator

from udfs.errors import StateError
from udfs.states.messages import MIDDLEWARE_PORT, Signal, SignalReader
from udfs.states.program import Program, Update

_RETRY = 0.25
_READ = 1 << 18


class Replica:
    """One state, held and published by this program, over its host's middleware.

    A context manager. It connects again by itself, and publishes again what was not yet safe.
    ``subscribes`` False: it publishes only. Safe for several threads.
    """

    def __init__(
        self,
        state: str,
        name: str = "",
        middleware: tuple[str, int] = ("127.0.0.1", MIDDLEWARE_PORT),
        *,
        subscribes: bool = True,
    ) -> None:
        self.state = state
        self._middleware = middleware
        self._subscribes = subscribes
        self._program = Program(name or socket.gethostname())
        self._lock = threading.Condition()
        self._socket: socket.socket | None = None
        self._updates: queue.SimpleQueue[Update] = queue.SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"replica {state}", daemon=True)

    def __enter__(self) -> Replica:
        if self._subscribes:
            self._program.subscribe(self.state)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    @property
    def value(self) -> bytes | None:
        """The state: the newest update of all publishers; None before the first."""
        with self._lock:
            update = self._program.value(self.state)
        return None if update is None else update.data

    @property
    def values(self) -> dict[str, bytes]:
        """The last update of each publisher, by its name."""
        with self._lock:
            found = self._program.values(self.state)
        return {name: update.data for name, update in found.items()}

    def publish(self, data: bytes) -> None:
        """Publishes an update; it is on its way when this returns, or will be with a middleware.

        Raises StateError ``TOO_LARGE``.
        """
        with self._lock:
            self._send(self._program.publish(self.state, data))

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
                        f"{self._program.unacknowledged} updates of {self.state} are not yet with "
                        "the replica controller; they are tried on while the program runs",
                    )

    def updates(self, timeout: float | None = None) -> Iterator[Update]:
        """Yields updates as they come, each once; ends when none came for so many seconds."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._updates.get(timeout=timeout)

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
                if not self._is_closed:
                    self._lock.wait(_RETRY)

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
                    self._lock.notify_all()
                if update is not None:
                    self._updates.put(update)

    def _send(self, signals: list[Signal]) -> None:
        for signal in signals:
            data = signal.pack()
            if self._socket is not None:
                # The end of the connection is found where it is read.
                with contextlib.suppress(OSError):
                    self._socket.sendall(data)
