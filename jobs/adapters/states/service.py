"""The loop of a middleware or replica controller: connections, link to the network, and time."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any, Protocol

from stackcast.jobs.adapters.states.links import StateLink
from stackcast.udfs.errors import StateError
from stackcast.udfs.states.controller import Controller
from stackcast.udfs.states.messages import Signal, SignalReader
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
_MOST_UNSENT = 256 << 20
_READ = 1 << 18
_BURST = 32
"""Datagrams that leave in one go, so that an update of many segments overruns no switch."""

Address = tuple[str, int]


class Store(Protocol):
    """Where a controller's facts and backlog survive it."""

    def read(self) -> tuple[list[Record], list[tuple[int, bytes]]]:
        """Returns the last record of each key, and the datagrams of the backlog with states."""

    def put(self, outputs: list[Record | Keep]) -> None:
        """Writes; all of it is durable when this returns."""


class _Connection:
    def __init__(self, peer: socket.socket) -> None:
        self.socket = peer
        self.reader = SignalReader()
        self.unsent = bytearray()
        peer.setblocking(False)
        with contextlib.suppress(OSError):
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Service:
    """What middleware and controller have in common; `run` until `stop`, from any thread."""

    def __init__(self, link: StateLink, listen: Address) -> None:
        self._link = link
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, _Connection] = {}
        self._numbers = count(1)
        self._datagrams: deque[tuple[int, bytes]] = deque()
        # Closed once a state machine's outputs are carried out: it learns of it as of any end.
        self._closing: deque[int] = deque()
        self._wake, self._woken = os.pipe()
        try:
            self._listening = socket.create_server(listen)
        except OSError as error:
            raise StateError(
                "PORT_TAKEN", f"TCP {listen[0]}:{listen[1]} cannot be had: {error.strerror}"
            ) from None
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
                wait = 0.001 if self._datagrams else max(0.0, due - time.monotonic())
                for key, _ in self._selector.select(wait):
                    key.data()
                now = time.monotonic()
                if now >= due:
                    due = now + TICK
                    self._tick(now)
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

    def _ended(self, connection: int, now: float) -> None:
        raise NotImplementedError

    def _heard(self, group: int, source: int, datagram: bytes, now: float) -> list[Output]:
        raise NotImplementedError

    def _hear(self) -> None:
        now = time.monotonic()
        came = self._link.receive()
        self.do(output for each in came for output in self._heard(*each, now))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            peer, _ = self._listening.accept()
            self._add(next(self._numbers), peer)

    def _add(self, number: int, peer: socket.socket) -> None:
        self._connections[number] = _Connection(peer)
        self._selector.register(peer, selectors.EVENT_READ, self._reader(number))

    def _reader(self, number: int) -> Callable[[], None]:
        return lambda: self._ready(number)

    def _ready(self, number: int) -> None:
        connection = self._connections.get(number)
        if connection is None or number in self._closing:
            return
        self._flush(number)
        try:
            data = connection.socket.recv(_READ)
            signals = connection.reader.feed(data)
        except BlockingIOError:
            return
        except (OSError, StateError) as error:
            log.warning("connection %d: %s", number, error)
            self._lost(number)
            return
        now = time.monotonic()
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
            log.warning("connection %d reads nothing, and is closed", number)
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
        except BlockingIOError:
            pass
        except OSError:
            connection.unsent.clear()  # what it still says is read first, and its end found there
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        self._selector.modify(connection.socket, wanted, self._reader(number))

    def _lost(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is None:
            return
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._ended(number, time.monotonic())

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
def serving(service: Service) -> Iterator[Future[None]]:
    """Runs a service beside the caller, and stops it at the end; yields its future.

    What ended the service is raised at the end.
    """
    with ThreadPoolExecutor(1, "states") as pool:
        running = pool.submit(service.run)
        try:
            yield running
        finally:
            service.stop()
        running.result()


class MiddlewareService(Service):
    """A host's middleware. ``controller`` is looked for until it is there, and again."""

    def __init__(self, link: StateLink, listen: Address, controller: Address) -> None:
        super().__init__(link, listen)
        self.middleware = Middleware(link.address, int.from_bytes(os.urandom(3)))
        self._controller = controller
        self._seeking: socket.socket | None = None
        self._retry = 0.0
        self._missing = ""

    def _tick(self, now: float) -> None:
        if CONTROLLER not in self._connections and now >= self._retry:
            self._seek(now)
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
        if error := peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._give_up(os.strerror(error))
            return
        self._seeking, self._missing = None, ""
        self._selector.unregister(peer)
        self._add(CONTROLLER, peer)
        log.info("connected to the replica controller at %s:%d", *self._controller)
        self.do(self.middleware.controller_up(time.monotonic()))

    def _give_up(self, why: str) -> None:
        if self._seeking is not None:
            self._selector.unregister(self._seeking)
            self._seeking.close()
            self._seeking = None
        self._retry = time.monotonic() + RECONNECT
        if why != self._missing:
            self._missing = why
            log.warning(
                "no replica controller at %s:%d (%s): updates go between hosts that are subscribed "
                "already; new programs and what was lost wait for it",
                *self._controller,
                why,
            )

    def _took(self, connection: int, signal: Signal, now: float) -> list[Output]:
        if connection == CONTROLLER:
            return self.middleware.from_controller(signal, now)
        return self.middleware.from_program(connection, signal, now)

    def _ended(self, connection: int, now: float) -> None:
        if connection == CONTROLLER:
            self._give_up("the connection ended")
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
    ) -> None:
        """recorded: told when facts have come into the store."""
        super().__init__(link, listen)
        self._recorded = recorded
        self.controller = Controller(int.from_bytes(os.urandom(3)))
        self._store = store
        self._facts_due = 0.0
        self.do(self.controller.restore(*store.read(), time.monotonic()))

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
        return self.controller.from_middleware(connection, signal, now)

    def _ended(self, connection: int, now: float) -> None:
        self.controller.middleware_ended(connection)

    def _heard(self, group: int, source: int, datagram: bytes, now: float) -> list[Output]:
        return self.controller.from_network(group, source, datagram, now)
