"""The loop of a middleware or replica controller: connections, link to the network, and time."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from ipaddress import IPv4Address, ip_address
from itertools import count
from typing import Any, Protocol

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads, wait_for_all
from stackcast.jobs.adapters.states.credentials import (
    StateCredentials,
    TlsSockets,
    addresses_in,
    handshake_error,
    refuse_plain,
)
from stackcast.jobs.adapters.states.links import StateLink
from stackcast.udfs.errors import StateError
from stackcast.udfs.states.controller import Controller
from stackcast.udfs.states.messages import Signal, SignalKind, SignalReader
from stackcast.udfs.states.middleware import Middleware
from stackcast.udfs.states.outputs import (
    CONTROLLER,
    Close,
    Join,
    Keep,
    Leave,
    Output,
    Record,
    Send,
    ToNetwork,
)

log = logging.getLogger(__name__)

TICK = 0.02
#: Interval at which groups are joined again, in case the interface was created again.
_REJOIN_SECONDS = 2.0
RECONNECT = 0.5
CONNECT = 5.0
"""Seconds for an answer, after which the replica controller is looked for anew."""
FACTS = 1.0
PATIENCE = 10.0
"""Seconds in which a connection must have finished its handshake and sent its first signal."""
MOST_NEW = 128
"""Connections that have not; the oldest is closed if there are more."""
REPEAT = 60.0
"""Seconds until it is logged again that a host's connection is closed for the same reason."""
_MOST_LOGGED = 1000
_STABLE = 1.0
"""Seconds after which the connection to the controller is logged. With TLS 1.3, the controller
refuses our certificate only after our side of the handshake has ended."""
_MOST_UNSENT = 256 << 20
_READ = 1 << 18
_BURST = 32
"""Datagrams that leave in one go, so that an update of many segments overruns no switch."""

#: An operation on a socket in non-blocking mode must be repeated later.
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Address = tuple[str, int]


class Store(Protocol):
    """Where a controller's facts and backlog survive it."""

    def read(self) -> tuple[list[Record], list[tuple[int, bytes]]]:
        """Returns the last record of each key, and the datagrams of the backlog with states."""

    def put(self, outputs: list[Record | Keep]) -> None:
        """Writes; all of it is durable when this returns."""


class _Connection:
    """A connection to a program, a middleware or the controller.

    Attributes:
        is_open: whether there is no TLS, or its handshake has ended.
        addresses: IPv4 addresses in the certificate of the other side; None without TLS.
    """

    def __init__(self, peer: socket.socket, address: Address) -> None:
        self.socket = peer
        self.host = address[0]
        self.reader = SignalReader()
        self.unsent = bytearray()
        self.is_open = False
        self.addresses: frozenset[int] | None = None


class Service:
    """The part that middleware and controller have in common; `run` until `stop`, from any thread.

    Args:
        link: to the network of states.
        listen: where connections are accepted.
        credentials: PEM files; without them, all connections are plain TCP.
        clock: clock of the service.

    Raises:
        StateError: ``PORT_TAKEN`` or ``BAD_TLS``.
    """

    def __init__(
        self,
        link: StateLink,
        listen: Address,
        credentials: StateCredentials | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._link = link
        self._tls: TlsSockets | None = None
        if credentials is not None and not credentials.plain:
            self._tls = TlsSockets(credentials, server_side=True)
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        #: When it was last logged that a host's connection was closed, and why.
        self._logged: dict[tuple[str, str], float] = {}
        #: Connections that have not introduced themselves, and when they are closed; oldest first.
        self._new: dict[int, float] = {}
        self._numbers = count(1)
        self._datagrams: deque[tuple[int, bytes]] = deque()
        # Closed once a state machine's outputs are carried out: it learns of it as of any end.
        self._closing: deque[int] = deque()
        self._wake, self._woken = os.pipe()
        try:
            self._listening = socket.create_server(listen)
        except OSError as error:
            raise StateError(
                "PORT_TAKEN", f"cannot listen at TCP {listen[0]}:{listen[1]}: {error.strerror}"
            ) from None
        if self._tls is None and not ip_address(self.address[0]).is_loopback:
            log.warning(
                "connections to %s:%d are neither encrypted nor authenticated: set "
                "spark.stackcast.states.tls.* or --tls-*, or isolate this network",
                *self.address,
            )
        self._listening.setblocking(False)
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        self._selector.register(link.fileno(), selectors.EVENT_READ, self._hear)
        self._selector.register(self._wake, selectors.EVENT_READ, lambda: None)
        self._is_stopped = False

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._listening.getsockname()[:2]
        return str(host), int(port)

    def run(self) -> None:
        """Serves until `stop`, then closes everything."""
        try:
            due = rejoin_due = 0.0
            while not self._is_stopped:
                wait = 0.001 if self._datagrams else max(0.0, due - self._clock.monotonic())
                for key, _ in self._selector.select(wait):
                    key.data()
                now = self._clock.monotonic()
                if now >= due:
                    due = now + TICK
                    self._tick(now)
                    self._expire(now)
                if now >= rejoin_due:
                    rejoin_due = now + _REJOIN_SECONDS
                    self._link.rejoin()
                while self._closing:
                    self._lost(self._closing.popleft())
                for _ in range(min(_BURST, len(self._datagrams))):
                    self._link.send(*self._datagrams.popleft())
        finally:
            self._close()

    def stop(self) -> None:
        """Ends `run`."""
        self._is_stopped = True
        with contextlib.suppress(OSError):
            os.write(self._woken, b"x")

    def _wall_time_of(self, monotonic: float) -> float:
        return monotonic + self._clock.wall_time() - self._clock.monotonic()

    def do(self, outputs: Iterable[Output]) -> None:
        """Carries out what a state machine asks for: all that came of one read, so that what is
        to be durable is written together."""
        for output in outputs:
            match output:
                case ToNetwork():
                    self._datagrams.append((output.address, output.datagram))
                case Join():
                    self._link.join(output.address)
                case Leave():
                    self._link.leave(output.address)
                case Send():
                    self._send(output.connection, output.signal)
                case Close():
                    self._closing.append(output.connection)
                case _:
                    raise TypeError(output)

    def _tick(self, now: float) -> None:
        raise NotImplementedError

    def _took(self, connection: int, signal: Signal, now: float) -> list[Output]:
        raise NotImplementedError

    def _opened(self, connection: int, now: float) -> None:
        """Learns that a connection can carry signals."""

    def _ended(self, connection: int, now: float, reason: str) -> None:
        raise NotImplementedError

    def _heard(self, group: int, source: int, datagram: bytes, now: float) -> list[Output]:
        raise NotImplementedError

    def _hear(self) -> None:
        now = self._clock.monotonic()
        came = self._link.receive()
        self.do(output for each in came for output in self._heard(*each, now))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            peer, address = self._listening.accept()
            peer.setblocking(False)
            if self._tls is not None:
                peer = self._tls.wrap(peer)
            self._add(next(self._numbers), peer, address)

    def _add(self, number: int, peer: socket.socket, address: Address) -> None:
        with contextlib.suppress(OSError):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections[number] = _Connection(peer, address)
        self._selector.register(peer, selectors.EVENT_READ, self._reader(number))
        self._new[number] = self._clock.monotonic() + PATIENCE
        accepted = [each for each in self._new if each != CONTROLLER]
        if len(accepted) > MOST_NEW:
            self._lost(
                accepted[0], f"it sent nothing, and {MOST_NEW} newer connections are waiting"
            )
        self._handshake(number)

    def _expire(self, now: float) -> None:
        """Closes connections that have not introduced themselves in time."""
        for number, due in list(self._new.items()):
            if now < due:
                break
            self._lost(number, f"no handshake and first signal within {PATIENCE:g} s")

    def _handshake(self, number: int) -> None:
        """Continues the handshake of a connection with TLS; without TLS there is none."""
        connection = self._connections.get(number)
        if connection is None:
            return
        if isinstance(connection.socket, ssl.SSLSocket):
            try:
                connection.socket.do_handshake()
            except _NOT_NOW as error:
                is_write = isinstance(error, ssl.SSLWantWriteError)
                event = selectors.EVENT_WRITE if is_write else selectors.EVENT_READ
                self._selector.modify(connection.socket, event, self._reader(number))
                return
            except OSError as error:
                refuse_plain(connection.socket, error)
                self._lost(number, str(handshake_error(error)))
                return
            connection.addresses = addresses_in(connection.socket.getpeercert())
            self._selector.modify(connection.socket, selectors.EVENT_READ, self._reader(number))
        connection.is_open = True
        self._opened(number, self._clock.monotonic())

    def _reader(self, number: int) -> Callable[[], None]:
        return lambda: self._ready(number)

    def _ready(self, number: int) -> None:
        connection = self._connections.get(number)
        if connection is None or number in self._closing:
            return
        if not connection.is_open:
            self._handshake(number)
            return
        self._flush(number)
        try:
            # With TLS this is one record, and the system reports the next one.
            data = connection.socket.recv(_READ)
            signals = connection.reader.feed(data)
        except _NOT_NOW:
            return
        except ssl.SSLError as error:
            self._lost(number, str(handshake_error(error)))
            return
        except (OSError, StateError) as error:
            self._lost(number, str(error))
            return
        if signals:
            self._new.pop(number, None)
        now = self._clock.monotonic()
        self.do(output for signal in signals for output in self._took(number, signal, now))
        if not data:
            self._lost(number)

    def _send(self, number: int, signal: Signal) -> None:
        connection = self._connections.get(number)
        if connection is None or number in self._closing:
            return
        was_empty = not connection.unsent
        connection.unsent += signal.pack()
        if len(connection.unsent) > _MOST_UNSENT:
            self._log_closed(connection.host, "the other side does not read")
            connection.unsent.clear()
            self._closing.append(number)
        elif was_empty:
            self._flush(number)

    def _flush(self, number: int) -> None:
        connection = self._connections[number]
        if not connection.unsent:
            return
        try:
            del connection.unsent[: connection.socket.send(connection.unsent)]
        except _NOT_NOW:
            pass
        except OSError:
            connection.unsent.clear()  # what it still says is read first, and its end found there
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        self._selector.modify(connection.socket, wanted, self._reader(number))

    def _lost(self, number: int, reason: str = "") -> None:
        connection = self._connections.pop(number, None)
        self._new.pop(number, None)
        if connection is None:
            return
        if reason and number != CONTROLLER:
            self._log_closed(connection.host, reason)
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._ended(number, self._clock.monotonic(), reason)

    def _log_closed(self, host: str, reason: str) -> None:
        """Logs why a connection is closed, but a host that comes again not each time."""
        now = self._clock.monotonic()
        if now - self._logged.get((host, reason), -REPEAT) < REPEAT:
            return
        if len(self._logged) >= _MOST_LOGGED:
            self._logged.clear()
        self._logged[host, reason] = now
        log.warning("closed the connection from %s: %s", host, reason)

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self._selector.close()
        self._link.close()
        os.close(self._wake)
        os.close(self._woken)
        self._woken = -1  # a late `stop` must not write into what has its number by then


@contextmanager
def serving(service: Service, threads: Threads = SYSTEM_THREADS) -> Iterator[Future[None]]:
    """Run a service in the background, stop it at the end, and yield its future result.

    Raises:
        Exception: the error that ended the service.
    """
    running = threads.start("states", service.run)
    try:
        yield running
    finally:
        service.stop()
        wait_for_all(threads, [running])
    running.result()


class MiddlewareService(Service):
    """A host's middleware. ``controller`` is looked for until it is there, and again.

    With TLS, its certificate must name the link's address, and it shows the same certificate to
    programs and to the controller.
    """

    def __init__(
        self,
        link: StateLink,
        listen: Address,
        controller: Address,
        credentials: StateCredentials | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._controller_tls: TlsSockets | None = None
        if credentials is not None and not credentials.plain:
            self._controller_tls = TlsSockets(credentials, server_side=False)
            _check_named(credentials, link.address)
        super().__init__(link, listen, credentials, clock)
        incarnation = int.from_bytes(os.urandom(3))
        self.middleware = Middleware(link.address, incarnation, self._wall_time_of)
        self._controller = controller
        self._seeking: socket.socket | None = None
        self._retry = 0.0
        self._missing = ""
        #: When the connection to the controller is logged; None if it was, or there is none.
        self._stable_at: float | None = None

    def _tick(self, now: float) -> None:
        if CONTROLLER not in self._connections and now >= self._retry:
            self._seek(now)
        if self._stable_at is not None and now >= self._stable_at:
            self._stable_at, self._missing = None, ""
            log.info("connected to the replica controller at %s:%d", *self._controller)
        self.do(self.middleware.tick(now))

    def _seek(self, now: float) -> None:
        # The network goes on meanwhile: an address may be one from which nobody ever answers.
        if self._seeking is not None:
            self._give_up("no answer")
        self._retry = now + CONNECT
        peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        peer.setblocking(False)
        self._seeking = peer
        self._selector.register(peer, selectors.EVENT_WRITE, self._found)
        try:
            peer.connect(self._controller)
        except BlockingIOError:
            pass  # it is on its way
        except OSError as error:
            self._give_up(error.strerror or str(error))

    def _found(self) -> None:
        peer = self._seeking
        if peer is None:
            return
        if number := peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._give_up(os.strerror(number))
            return
        self._seeking = None
        self._selector.unregister(peer)
        try:
            if self._controller_tls is not None:
                peer = self._controller_tls.wrap(peer, self._controller[0])
        except OSError as error:
            self._give_up(error.strerror or str(error))
            return
        self._add(CONTROLLER, peer, self._controller)

    def _opened(self, connection: int, now: float) -> None:
        if connection == CONTROLLER:
            # The controller need not say anything.
            self._new.pop(CONTROLLER, None)
            self._stable_at = now + _STABLE
            self.do(self.middleware.controller_up(now))

    def _give_up(self, why: str) -> None:
        if self._seeking is not None:
            self._selector.unregister(self._seeking)
            self._seeking.close()
            self._seeking = None
        self._retry = self._clock.monotonic() + RECONNECT
        if why != self._missing:
            self._missing = why
            log.warning(
                "the replica controller at %s:%d is not reachable (%s): subscribed hosts still "
                "exchange updates, but new programs and lost updates wait for it",
                *self._controller,
                why,
            )

    def _took(self, connection: int, signal: Signal, now: float) -> list[Output]:
        if connection == CONTROLLER:
            return self.middleware.from_controller(signal, now)
        return self.middleware.from_program(connection, signal, now)

    def _ended(self, connection: int, now: float, reason: str) -> None:
        if connection == CONTROLLER:
            self._stable_at = None
            self._give_up(reason or "the connection was closed")
            self.middleware.controller_down()
        else:
            self.do(self.middleware.program_ended(connection, now))

    def _heard(self, group: int, source: int, datagram: bytes, now: float) -> list[Output]:
        return self.middleware.from_network(group, source, datagram, now)


class ControllerService(Service):
    """The replica controller: what it says leaves once what it rests on is in the store.

    One at a time for a store: nothing keeps a second from it.
    """

    def __init__(
        self,
        link: StateLink,
        listen: Address,
        store: Store,
        recorded: Callable[[], None] = lambda: None,
        credentials: StateCredentials | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """recorded: told when facts have come into the store."""
        super().__init__(link, listen, credentials, clock)
        self._recorded = recorded
        self.controller = Controller(int.from_bytes(os.urandom(3)), self._wall_time_of)
        self._store = store
        self._facts_due = 0.0
        self.do(self.controller.restore(*store.read(), self._clock.monotonic()))

    def do(self, outputs: Iterable[Output]) -> None:
        found: list[Any] = list(outputs)
        durable = [output for output in found if isinstance(output, Record | Keep)]
        if durable:
            self._store.put(durable)
            if any(isinstance(output, Record) for output in durable):
                self._recorded()
        super().do(output for output in found if not isinstance(output, Record | Keep))

    def _tick(self, now: float) -> None:
        self.do(self.controller.tick(now))
        if now >= self._facts_due:
            self._facts_due = now + FACTS
            self.do(self.controller.facts())

    def _took(self, connection: int, signal: Signal, now: float) -> list[Output]:
        if signal.kind is SignalKind.LEASE and not signal.vnf:
            peer = self._connections[connection]
            address = int.from_bytes(signal.data[:4])
            if peer.addresses is not None and address not in peer.addresses:
                self._log_closed(
                    peer.host,
                    f"STATE.BAD_TLS: its certificate is not valid for {IPv4Address(address)}, "
                    "the address that it reports",
                )
                return [Close(connection)]
        return self.controller.from_middleware(connection, signal, now)

    def _ended(self, connection: int, now: float, reason: str) -> None:
        self.controller.middleware_ended(connection)

    def _heard(self, group: int, source: int, datagram: bytes, now: float) -> list[Output]:
        return self.controller.from_network(group, source, datagram, now)


def _check_named(credentials: StateCredentials, address: int) -> None:
    """Raises StateError ``BAD_TLS``: the certificate does not name the host's address."""
    if address not in addresses_in(credentials.describe_certificate()):
        raise StateError(
            "BAD_TLS",
            f"certificate {credentials.certificate} is not valid for {IPv4Address(address)}, the "
            "address of this host in the network of states, so the replica controller would "
            "reject it: use a certificate for this address",
            path=credentials.certificate,
        )
