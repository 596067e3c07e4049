"""Replicated state without sockets: a switch, hosts with programs, a controller, and faults.

Network messages get lost, doubled and reordered; connections are whole and in order until an end of
theirs is killed. What a killed controller left on record is all that the next one has.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from stackcast.udfs.states.controller import Controller
from stackcast.udfs.states.messages import MessageKind, Signal, group_of, read_group
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
from stackcast.udfs.states.program import Program, Update

CONTROLLER_HOST = 0
TICK = 0.1


@dataclass
class Host:
    """A middleware, and where it is in the network."""

    address: int
    middleware: Middleware
    connection: int = 0
    groups: set[int] = field(default_factory=set)
    is_down: bool = False


@dataclass
class Client:
    """A program, and its connection to the middleware of its host."""

    host: int
    program: Program
    connection: int = 0
    seen: list[Update] = field(default_factory=list)


class World:
    """All of it, and its time in seconds. ``loss``: share of messages that are lost; as many are
    doubled, and all are reordered."""

    def __init__(self, hosts: int, seed: int, loss: float = 0.0) -> None:
        self.now = 0.0
        self.loss = loss
        self.carried = 0
        self.dice = random.Random(seed)
        self.records: dict[str, Record] = {}
        self.backlog: dict[tuple[int, int, int, int], bytes] = {}
        self.clients: dict[str, Client] = {}
        self.is_controller_down = False
        #: Seconds without a controller after its next write, and segments that are stored of it.
        self._cut_write: tuple[float, int | None] | None = None
        self._numbers = count(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._ports: dict[int, set[int]] = {}
        self._controller_groups: set[int] = set()
        self._by_connection: dict[int, int] = {}
        self.controller = Controller(self.dice.randrange(1 << 20))
        self.hosts = {n: self._new_host(n) for n in range(1, hosts + 1)}
        for number in self.hosts:
            self._connect_host(number)
        self._later(TICK, self._tick)

    # What tests do

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

    def start(self, name: str, host: int) -> Client:
        """Starts a program on a host, or the one of this name anew."""
        if name in self.clients:
            self._end_client(self.clients[name])
        client = self.clients[name] = Client(host, Program(name))
        self._connect_client(client)
        return client

    def subscribe(self, name: str, state: str) -> None:
        client = self.clients[name]
        self._to_middleware(client, client.program.subscribe(state))

    def unsubscribe(self, name: str, state: str) -> None:
        client = self.clients[name]
        self._to_middleware(client, client.program.unsubscribe(state))

    def publish(self, name: str, state: str, data: bytes) -> None:
        client = self.clients[name]
        self._to_middleware(client, client.program.publish(state, data))

    def inject(self, host: int, address: int, source: int, datagram: bytes) -> None:
        """A datagram that somebody made up arrives at a host."""
        self._do(
            host, self.hosts[host].middleware.from_network(address, source, datagram, self.now)
        )

    def kill_middleware(self, number: int, seconds: float) -> None:
        """Kills it; so much later another one is there."""
        host = self.hosts[number]
        if host.is_down:
            return
        host.is_down = True
        for client in self.clients.values():
            if client.host == number and client.connection:
                client.connection = 0
                client.program.disconnected()
        self._break_controller(host)
        self._later(seconds, lambda: self._revive_host(number))

    def kill_controller(self, seconds: float) -> None:
        """Kills it; so much later another one takes up what it left on record."""
        if self.is_controller_down:
            return
        self.is_controller_down = True
        for host in self.hosts.values():
            if host.connection:
                host.connection = 0
                host.middleware.controller_down()
        self._later(seconds, self._revive_controller)

    def kill_controller_in_write(self, seconds: float, segments: int | None = None) -> None:
        """Kill the controller as soon as it writes to the backlog, so that only a part is stored.

        Args:
            seconds: time until another controller is there.
            segments: number of segments that are stored or removed; by default any number.
        """
        self._cut_write = seconds, segments

    def restart_switch(self) -> None:
        """It forgets who subscribed to what."""
        self._ports.clear()

    # Parts that end and begin

    def _new_host(self, number: int) -> Host:
        address = 0x0A000000 | number
        return Host(address, Middleware(address, self.dice.randrange(1 << 20)))

    def _revive_host(self, number: int) -> None:
        self.hosts[number] = self._new_host(number)
        self._connect_host(number)
        for client in self.clients.values():
            if client.host == number:
                self._connect_client(client)

    def _revive_controller(self) -> None:
        self.controller = Controller(self.dice.randrange(1 << 20))
        self._controller_groups.clear()
        self.is_controller_down = False
        kept = [(key[0], datagram) for key, datagram in self.backlog.items()]
        self.dice.shuffle(kept)
        self._do(CONTROLLER_HOST, self.controller.restore(self.records.values(), kept, self.now))
        for number, host in self.hosts.items():
            if not host.is_down:
                self._connect_host(number)

    def _connect_host(self, number: int) -> None:
        host = self.hosts[number]
        if self.is_controller_down:
            return
        host.connection = next(self._numbers)
        self._by_connection[host.connection] = number
        self._do(number, host.middleware.controller_up(self.now))

    def _break_controller(self, host: Host) -> None:
        if host.connection and not self.is_controller_down:
            self.controller.middleware_ended(host.connection)
        host.connection = 0

    def _connect_client(self, client: Client) -> None:
        host = self.hosts[client.host]
        if host.is_down:
            return
        client.connection = next(self._numbers)
        self._to_middleware(client, client.program.connected())

    def _end_client(self, client: Client) -> None:
        host, connection = self.hosts[client.host], client.connection
        client.connection = 0
        if connection and not host.is_down:
            # What it sent before comes first.
            self._later(
                0.01, lambda: self._do(client.host, self._ended(client.host, connection, host))
            )

    def _ended(self, number: int, connection: int, host: Host) -> list[Output]:
        if self.hosts[number] is not host or host.is_down:
            return []
        return host.middleware.program_ended(connection, self.now)

    # What they send

    def _to_middleware(self, client: Client, signals: list[Signal]) -> None:
        connection, host = client.connection, self.hosts[client.host]

        def arrive(signal: Signal) -> None:
            if self.hosts[client.host] is host and not host.is_down:
                self._do(client.host, host.middleware.from_program(connection, signal, self.now))

        if connection:
            for signal in signals:
                self._later(0.001, lambda signal=signal: arrive(signal))

    def _do(self, number: int, outputs: list[Output]) -> None:
        is_cut = self._cut_write is not None and any(isinstance(o, Keep) for o in outputs)
        if number == CONTROLLER_HOST and is_cut and not self.is_controller_down:
            outputs = self._store_part(outputs)
        for output in outputs:
            match output:
                case ToNetwork():
                    self._switch(number, output.address, output.datagram)
                case Join():
                    self._groups(number).add(output.address)
                case Leave():
                    self._groups(number).discard(output.address)
                case Record(value=None):
                    self.records.pop(output.key, None)
                case Record():
                    self.records[output.key] = output
                case Keep(datagram=None):
                    key = output.state, output.vnf, output.update, output.segment
                    self.backlog.pop(key, None)
                case Keep():
                    key = output.state, output.vnf, output.update, output.segment
                    self.backlog[key] = output.datagram
                case Close():
                    self._close(number, output.connection)
                case Send():
                    self._send(number, output)

    def _store_part(self, outputs: list[Output]) -> list[Output]:
        """Kill the controller; returns what of its outputs is stored: a part for each topic."""
        assert self._cut_write is not None
        (seconds, stored), self._cut_write = self._cut_write, None
        self.kill_controller(seconds)
        records: list[Output] = [each for each in outputs if isinstance(each, Record)]
        segments: list[Output] = [each for each in outputs if isinstance(each, Keep)]
        if stored is None:
            stored = self.dice.randint(0, len(segments))
        return records[: self.dice.randint(0, len(records))] + segments[:stored]

    def _groups(self, number: int) -> set[int]:
        return self.hosts[number].groups if number else self._controller_groups

    def _close(self, number: int, connection: int) -> None:
        host = self.hosts[number]
        for client in self.clients.values():
            if client.connection == connection:
                client.program.disconnected()
                self._do(number, host.middleware.program_ended(connection, self.now))
                self._connect_client(client)

    def _send(self, number: int, output: Send) -> None:
        if number == CONTROLLER_HOST:
            to = self._by_connection[output.connection]
            connection, controller = output.connection, self.controller

            def down() -> None:
                host = self.hosts[to]
                if host.connection == connection and self.controller is controller:
                    self._do(to, host.middleware.from_controller(output.signal, self.now))

            self._later(0.002, down)
        elif output.connection == CONTROLLER:
            connection, controller = self.hosts[number].connection, self.controller

            def up() -> None:
                if self.controller is controller and not self.is_controller_down:
                    found = controller.from_middleware(connection, output.signal, self.now)
                    self._do(CONTROLLER_HOST, found)

            if connection:
                self._later(0.002, up)
        else:
            self._to_client(output)

    def _to_client(self, output: Send) -> None:
        def arrive() -> None:
            for client in self.clients.values():
                if client.connection == output.connection:
                    answers, update = client.program.take(output.signal)
                    if update is not None:
                        client.seen.append(update)
                    self._to_middleware(client, answers)

        self._later(0.001, arrive)

    def _switch(self, source: int, address: int, datagram: bytes) -> None:
        """A host's message is on its way to the switch: what is asked of it, too, gets lost,
        doubled and reordered."""
        for _ in range(self._copies()):
            if not self.loss:
                self._at_switch(source, address, datagram)
                continue
            self._later(
                0.3 * self.dice.random(), lambda: self._at_switch(source, address, datagram)
            )

    def _copies(self) -> int:
        return 0 if self.dice.random() < self.loss else 1 + (self.dice.random() < self.loss)

    def _at_switch(self, source: int, address: int, datagram: bytes) -> None:
        kind, state = read_group(address)
        ports = self._ports.setdefault(state, set())
        if kind is MessageKind.PUBLISH:
            for port in sorted(ports - {source}):
                self._carry(port, source, address, datagram)
            return
        (ports.add if kind is MessageKind.REGISTER else ports.discard)(source)
        self._carry(source, -1, group_of(MessageKind.ACK, state), datagram)

    def _carry(self, port: int, source: int, address: int, datagram: bytes) -> None:
        self.carried += 1
        for _ in range(self._copies()):
            self._later(
                0.005 + (0.3 * self.dice.random() if self.loss else 0.0),
                lambda: self._arrive(port, source, address, datagram),
            )

    def _arrive(self, port: int, source: int, address: int, datagram: bytes) -> None:
        if address not in self._groups(port):
            return
        at = 0x0A000000 | source if source >= 0 else 0xC0000008
        if port == CONTROLLER_HOST:
            if not self.is_controller_down:
                found = self.controller.from_network(address, at, datagram, self.now)
                self._do(port, found)
        elif not self.hosts[port].is_down:
            self.inject(port, address, at, datagram)

    def _tick(self) -> None:
        for number, host in self.hosts.items():
            if not host.is_down:
                self._do(number, host.middleware.tick(self.now))
        if not self.is_controller_down:
            self._do(CONTROLLER_HOST, self.controller.tick(self.now) + self.controller.facts())
        self._later(TICK, self._tick)

    def _later(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), event))
