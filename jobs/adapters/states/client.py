"""A program's connection to the middleware of its host, with all states that it publishes or holds.

`Replica` is this for one state.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.jobs.adapters.states.credentials import StateCredentials, TlsSockets, handshake_error
from stackcast.udfs.errors import StateError
from stackcast.udfs.states.messages import MIDDLEWARE_PORT, Signal, SignalReader
from stackcast.udfs.states.program import Program, Update

log = logging.getLogger(__name__)

LOCAL = ("127.0.0.1", MIDDLEWARE_PORT)
MOST_UNREAD = 4096
"""Updates that wait for who reads `StatesClient.updates`; older ones are only in `values`."""

_CONNECT = 5.0
_RETRY = 0.25
_READ = 1 << 18


class StatesClient:
    """Connect a program, with all states that it publishes or holds, to the middleware of its host.

    A context manager. It connects and subscribes again after errors, and then publishes again each
    update that the replica controller does not have yet. Safe for several threads. Refusals of the
    middleware are logged.

    Args:
        name: name of the program; by default that of the host.
        middleware: host and port of the middleware.
        credentials: PEM files, if the middleware requires TLS. Its certificate must name the host.
        threads: threads of the program.

    Raises:
        StateError: ``BAD_TLS``, if the files do not fit.

    Example:
        One host runs ``stackcast states controller``, and two others run ``stackcast states
        middleware --listen ADDRESS``. ``first`` and ``second`` are the addresses of these two,
        such as ``("127.0.0.1", 65431)``:

        >>> with StatesClient("sensor", first) as sensor, StatesClient("reader", second) as reader:
        ...     reader.subscribe("office")
        ...     reader.subscribe("alarm")
        ...     sensor.publish("office", b"21 degrees")
        ...     sensor.publish("alarm", b"off")
        ...     sensor.flush()
        ...     for _ in range(2):
        ...         update = next(reader.updates(timeout=30))
        ...     print(reader.value("office"), reader.values("alarm"))
        b'21 degrees' {'sensor': b'off'}
    """

    def __init__(
        self,
        name: str = "",
        middleware: tuple[str, int] = LOCAL,
        credentials: StateCredentials | None = None,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._threads = threads
        self._middleware = middleware
        credentials = credentials or StateCredentials()
        self._tls = None if credentials.plain else TlsSockets(credentials, server_side=False)
        #: Why the last connection ended, until the middleware answers.
        self._problem = ""
        self._program = Program(name or socket.gethostname())
        self._lock = threading.Condition()
        self._socket: socket.socket | None = None
        self._updates: deque[Update] = deque(maxlen=MOST_UNREAD)
        self._is_closed = False
        self._running: Future[None] | None = None

    def __enter__(self) -> StatesClient:
        self._running = self._threads.start("states", self._run)
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        if self._running is not None:
            self._running.result()

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
        """Wait until the replica controller has every update of this program.

        Raises StateError ``NOT_CONFIRMED`` if it takes longer.
        """
        clock = self._threads.clock
        deadline = clock.monotonic() + timeout
        with self._lock:
            while self._program.unacknowledged:
                remaining = deadline - clock.monotonic()
                if not self._lock.wait(remaining) and clock.monotonic() >= deadline:
                    raise self._not_confirmed(timeout)

    def updates(self, timeout: float | None = None) -> Iterator[Update]:
        """Yield each update once, as it arrives; end if none arrives for this number of seconds.

        A program that reads slowly or late gets the last `MOST_UNREAD`.
        """
        while True:
            with self._lock:
                if not self._lock.wait_for(lambda: self._updates, timeout):
                    return
                update = self._updates.popleft()
            yield update

    def _run(self) -> None:
        while not self._is_closed:
            try:
                with socket.create_connection(self._middleware, timeout=_CONNECT) as plain:
                    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    with self._secured(plain) as peer:
                        peer.settimeout(None)
                        self._serve(peer)
            except StateError as error:
                self._report(error)
            except ssl.SSLError as error:
                self._report(handshake_error(error))
            except OSError as error:
                self._report_unreachable(error.strerror or str(error))
            with self._lock:
                self._socket = None
                self._program.disconnected()
                self._lock.wait_for(lambda: self._is_closed, _RETRY)

    def _not_confirmed(self, timeout: float) -> StateError:
        count = self._program.unacknowledged
        problem = f": {self._problem}" if self._problem else ""
        return StateError(
            "NOT_CONFIRMED",
            f"the replica controller has not confirmed {count:,} update{'s' * (count != 1)} of "
            f"{self._program.name} in {timeout:g} s{problem}; check that a middleware runs at "
            "{}:{} and can reach the controller".format(*self._middleware),
        )

    def _report(self, error: StateError) -> None:
        if str(error) != self._problem and not self._is_closed:
            self._problem = str(error)
            log.warning("middleware at %s:%d: %s", *self._middleware, error)

    def _report_unreachable(self, reason: str) -> None:
        if self._problem or self._is_closed:
            return
        self._problem = reason
        log.warning(
            "middleware %s:%d is not reachable (%s); trying again", *self._middleware, reason
        )

    def _secured(self, plain: socket.socket) -> socket.socket:
        if self._tls is None:
            return plain
        peer = self._tls.wrap(plain, self._middleware[0])
        try:
            peer.do_handshake()
        except OSError as error:
            peer.close()
            raise handshake_error(error) from None
        return peer

    def _serve(self, peer: socket.socket) -> None:
        reader = SignalReader()
        with self._lock:
            if self._is_closed:
                return
            self._socket = peer
            self._send(self._program.connected())
        for data in _received(peer, self._lock):
            for signal in reader.feed(data):
                self._problem = ""
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


def _received(peer: socket.socket, lock: threading.Condition) -> Iterator[bytes]:
    """Yields bytes as they come, until the connection ends.

    OpenSSL does not let two threads use a connection at a time. So TLS is read with the lock that
    senders hold, and this waits without it.
    """
    if not isinstance(peer, ssl.SSLSocket):
        while data := peer.recv(_READ):
            yield data
        return
    with selectors.DefaultSelector() as selector:
        selector.register(peer, selectors.EVENT_READ)
        while True:
            selector.select()
            with lock:
                peer.setblocking(False)
                try:
                    data = peer.recv(_READ)
                except ssl.SSLWantReadError:
                    continue
                finally:
                    peer.setblocking(True)
            if not data:
                return
            yield data
