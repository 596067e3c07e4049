"""The middleware of a host (STARE III-B): programs on one side, network and replica controller on
the other, as a state machine.

Whoever runs it hands in what arrives, with the time in seconds of one clock, and carries out what
it returns, in order. Signals between a program and its middleware (`messages.Signal`):

    program                                    middleware
    INIT_VNF (data: its name)              ->  INIT_VNF (vnf)
    INIT_PUB (data: state)                 ->  INIT_PUB (state, update: its first, data)
    SUB_REG (data: state)                  ->  SUB_REG (state, data)
    STATE_ID_REQ (data: state)             ->  STATE_ID_REQ (state, 0 if there is none; data)
    SUB_REM (state)
    PUBLISH (state, update: one more each time, data)
                                               ACKNOWLEDGED (state, update): the controller has it
                                               SUMMARY (vnf, state, data: name of a publisher)
                                               PUBLISH (vnf: publisher, state, update, data)

A replica gets the updates of each publisher in the order of their numbers, first the last one there
is, each once. Of several publishers the state's value is the update with the latest number, and of
two with one number that of the greater VNF_ID: so every replica says the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from stackcast.udfs.errors import StateError
from stackcast.udfs.states.messages import (
    MessageKind,
    Signal,
    SignalKind,
    StateHeader,
    group_of,
    is_later,
    read_group,
    read_message,
)
from stackcast.udfs.states.outputs import CONTROLLER, Close, Output, Send, ToNetwork
from stackcast.udfs.states.programs import MOST_NAME
from stackcast.udfs.states.requests import REFRESH, Requests
from stackcast.udfs.states.segments import Stream, after, cut

PATIENCE = 10.0
"""A replica waits so long for an update that is missing if later ones are there."""
MOST_HELD = 512
"""Segments of a state from publishers that the controller has not named yet."""
MOST_ASKED = 64
MOST_UNACKNOWLEDGED = 1024
"""Updates of a publisher that are kept for the controller while it is away."""


@dataclass
class _Published:
    """What a local program publishes of one state: its last update, and those before that the
    controller does not have."""

    next: int
    kept: dict[int, bytes] = field(default_factory=dict)
    acknowledged: int | None = None

    @property
    def is_safe(self) -> bool:
        """Whether the controller has all of it."""
        return not self.kept or self.acknowledged == after(self.next, -1)


@dataclass
class _Program:
    connection: int
    vnf: int = 0
    #: Whether no number was left when it asked for one.
    waits_for_number: bool = False
    name: str = ""
    publishes: dict[int, _Published] = field(default_factory=dict)
    subscribed: dict[int, str] = field(default_factory=dict)
    named: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class _Replica:
    """One state on this host, for all of its programs."""

    streams: dict[int, Stream] = field(default_factory=dict)
    latest: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    #: Address and name of each publisher, as the controller reports them.
    publishers: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    #: Publishers that it has reported since it last confirmed a subscription.
    reported: set[int] = field(default_factory=set)
    held: list[tuple[float, int, StateHeader, bytes]] = field(default_factory=list)


class Middleware:
    """All programs of one host. ``dropped`` counts by reason what was not taken.

    Args:
        address: IPv4 address of the host in the network.
        number: see `Requests`.
        time_of_day: see `Requests`.
    """

    def __init__(
        self,
        address: int,
        number: int = 1,
        time_of_day: Callable[[float], float] = lambda now: now,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self.recovered = self.skipped = 0
        self.requests = Requests(number, time_of_day)
        self._address = address
        self._programs: dict[int, _Program] = {}
        self._replicas: dict[int, _Replica] = {}
        self._asked: deque[tuple[int, Signal]] = deque()
        self._is_up = False
        #: Streams that lack something.
        self._waiting: set[tuple[int, int]] = set()
        self._unreported: set[tuple[int, int]] = set()
        self._unannounced: set[tuple[int, int]] = set()
        #: Subscriptions of which the controller is not told yet that the switch has them.
        self._untold: set[tuple[int, int]] = set()
        self._lease_due = 0.0

    # Programs

    def from_program(self, connection: int, signal: Signal, now: float) -> list[Output]:
        """Takes a signal of a program; the first of a connection makes it known."""
        program = self._programs.setdefault(connection, _Program(connection))
        if signal.kind is SignalKind.INIT_VNF and not program.name:
            program.name = signal.data.decode(errors="replace")[:MOST_NAME] or "?"
            # First the leases, so that it gets no number of a program that runs.
            named = replace(signal, data=program.name.encode())
            return [*self._renew_leases(), *self._ask(connection, named)]
        if not program.vnf:
            return self._drop("not_initialised")
        if signal.kind in (SignalKind.INIT_PUB, SignalKind.SUB_REG, SignalKind.STATE_ID_REQ):
            return self._ask(connection, Signal(signal.kind, program.vnf, data=signal.data))
        if signal.kind is SignalKind.PUBLISH:
            return self._publish(program, signal)
        if signal.kind is SignalKind.SUB_REM and signal.state in program.subscribed:
            return self._unsubscribe(program, signal.state, now)
        return self._drop("unexpected")

    def program_ended(self, connection: int, now: float) -> list[Output]:
        """Learns that a program's connection is closed."""
        program = self._programs.pop(connection, None)
        if program is None or not program.vnf:
            return []
        found: list[Output] = []
        for state in list(program.subscribed):
            found += self._unsubscribe(program, state, now)
        # What the controller does not have yet nobody else may have: it stays until then.
        program.connection = -program.vnf
        self._programs[program.connection] = program
        self._unannounced.update((program.connection, state) for state in program.publishes)
        return found + self._forget(program)

    def _forget(self, program: _Program) -> list[Output]:
        """Lets a program go that has ended, as soon as nothing of it can get lost."""
        if not all(published.is_safe for published in program.publishes.values()):
            return []
        del self._programs[program.connection]
        return self._tell(Signal(SignalKind.LEASE, program.vnf, count=1))

    def _publish(self, program: _Program, signal: Signal) -> list[Output]:
        published = program.publishes.get(signal.state)
        if published is None or signal.update != published.next:
            return self._drop("unexpected")
        published.next = after(signal.update)
        published.kept[signal.update] = signal.data
        if len(published.kept) > MOST_UNACKNOWLEDGED:
            del published.kept[next(iter(published.kept))]
            self.skipped += 1
        self._unannounced.add((program.connection, signal.state))
        address = group_of(MessageKind.PUBLISH, signal.state)
        found: list[Output] = [
            ToNetwork(address, header.pack() + data)
            for header, data in cut(program.vnf, signal.update, signal.data)
        ]
        if signal.state in self._replicas:
            # Updates before were of a program that had the number until this one started.
            self._replicas[signal.state].streams.pop(program.vnf, None)
            found += self._deliver(signal.state, program.vnf, signal.update, signal.data)
        return found

    def _has_published(self, vnf: int, state: int) -> bool:
        """Whether a program of this host has published a state since it got its number."""
        programs = (program for program in self._programs.values() if program.vnf == vnf)
        return any(p.publishes[state].kept for p in programs if state in p.publishes)

    def _unsubscribe(self, program: _Program, state: int, now: float) -> list[Output]:
        del program.subscribed[state]
        found = self._tell(Signal(SignalKind.SUB_REM, program.vnf, state))
        if not any(state in other.subscribed for other in self._programs.values()):
            self._replicas.pop(state, None)
            found += self.requests.forgo(state, now)
        return found

    def _deliver(self, state: int, vnf: int, update: int, data: bytes) -> list[Output]:
        replica = self._replicas[state]
        replica.latest[vnf] = update, data
        self._unreported.add((state, vnf))
        return [
            output
            for program in self._programs.values()
            if state in program.subscribed
            for output in self._hand(program, state, vnf)
        ]

    def _hand(self, program: _Program, state: int, vnf: int) -> Iterator[Output]:
        """Gives one program the last update of a publisher."""
        replica = self._replicas[state]
        update, data = replica.latest[vnf]
        if (state, vnf) not in program.named:
            program.named.add((state, vnf))
            name = replica.publishers.get(vnf, (0, b""))[1]
            for other in self._programs.values():
                if other.vnf == vnf:
                    name = other.name.encode()
            yield Send(program.connection, Signal(SignalKind.SUMMARY, vnf, state, data=name))
        yield Send(program.connection, Signal(SignalKind.PUBLISH, vnf, state, update, data=data))

    # Network

    def from_network(self, address: int, source: int, datagram: bytes, now: float) -> list[Output]:
        """Takes a datagram that came to an address of `messages.group_of`, from ``source``."""
        try:
            kind, state = read_group(address)
            header, data = read_message(datagram)
        except StateError:
            return self._drop("bad_message")
        if kind is MessageKind.ACK:
            found = self.requests.acknowledge(state, header, now)
            return self._drop("unasked_ack") if found is None else found
        if kind is not MessageKind.PUBLISH:
            return self._drop("not_for_hosts")
        replica = self._replicas.get(state)
        if replica is None:
            return self._drop("not_subscribed")
        if any(program.vnf == header.vnf for program in self._programs.values()):
            return self._drop("forged")
        if header.vnf not in replica.publishers:
            if len(replica.held) >= MOST_HELD:
                return self._drop("unknown_publisher")
            replica.held.append((now, source, header, data))
            return []
        return self._take(state, source, header, data)

    def _take(self, state: int, source: int, header: StateHeader, data: bytes) -> list[Output]:
        replica = self._replicas[state]
        if source != replica.publishers[header.vnf][0]:
            return self._drop("forged")
        stream = replica.streams.get(header.vnf)
        if stream is None:
            return self._drop("forged")
        why = stream.take(header, data)
        return self._drop(why) if why else self._advance(state, header.vnf, stream)

    def _advance(self, state: int, vnf: int, stream: Stream) -> list[Output]:
        found: list[Output] = []
        self._waiting.add((state, vnf))
        for update, data in stream.pop():
            stream.waits_since = None
            found += self._deliver(state, vnf, update, data)
        return found

    # Replica controller

    def controller_up(self, now: float) -> list[Output]:
        """Learns that the connection to the controller is there, and tells it all it should know:
        it may be another one."""
        self._is_up = True
        found = self._tell(Signal(SignalKind.LEASE, data=self._address.to_bytes(4)))
        asked, self._asked = self._asked, deque()
        renewed = {
            (program.connection, name)
            for program in self._programs.values()
            for name in program.subscribed.values()
        }
        found += self._renew(now)
        # First what was published, so that whoever starts now begins after it.
        found += self._announce()
        for connection, signal in asked:
            asker = self._programs.get(connection)
            name = signal.data.decode(errors="replace")
            is_renewed = signal.kind is SignalKind.SUB_REG and (connection, name) in renewed
            if asker is not None and not is_renewed:
                found += self._ask(connection, signal)
        return found

    def _renew(self, now: float) -> list[Output]:
        """Renews leases, and says again what the controller knows unless something went wrong."""
        self._lease_due = now + REFRESH
        found: list[Output] = []
        found += self._renew_leases()
        for program in self._programs.values():
            if program.waits_for_number:
                program.waits_for_number = False
                signal = Signal(SignalKind.INIT_VNF, data=program.name.encode())
                found += self._ask(program.connection, signal)
            if program.vnf:
                for name in program.subscribed.values():
                    signal = Signal(SignalKind.SUB_REG, program.vnf, data=name.encode())
                    found += self._ask(program.connection, signal)
                self._unannounced.update((program.connection, s) for s in program.publishes)
                self._untold.update((program.connection, s) for s in program.subscribed)
        for state, replica in self._replicas.items():
            self._unreported.update((state, vnf) for vnf in replica.latest)
        return found

    def _renew_leases(self) -> list[Output]:
        leases = [
            Signal(SignalKind.LEASE, program.vnf, data=program.name.encode())
            for program in self._programs.values()
            if program.vnf
        ]
        return [output for lease in leases for output in self._tell(lease)]

    def controller_down(self) -> None:
        """Learns that the connection is gone; network and local delivery continue."""
        self._is_up = False
        for replica in self._replicas.values():
            # The reports after the last confirmation may not have arrived.
            replica.reported.update(replica.publishers)

    def from_controller(self, signal: Signal, now: float) -> list[Output]:
        """Takes a signal of the controller."""
        match signal.kind:
            case SignalKind.SUMMARY:
                return self._learn(signal)
            case SignalKind.PUBLISH:
                return self._recovered(signal)
            case SignalKind.TRUNCATED:
                stream = self._stream(signal.state, signal.vnf)
                if stream is None:
                    return []
                return self._passed_over(stream, signal)
            case SignalKind.ACKNOWLEDGED:
                return self._acknowledged(signal)
            case SignalKind.RECOVER:
                return self._bring(signal)
            case SignalKind.LEASE:
                # It does not know this program, or has taken it for dead and forgotten.
                return self._refused(signal.vnf)
            case _:
                return self._answered(signal, now)

    def _refused(self, vnf: int) -> list[Output]:
        for program in list(self._programs.values()):
            if program.vnf == vnf and program.connection > 0:
                return [Close(program.connection)]
            if program.vnf == vnf:
                del self._programs[program.connection]
        return []

    def _answered(self, signal: Signal, now: float) -> list[Output]:
        place = next((n for n, (_, a) in enumerate(self._asked) if _answers(signal, a)), None)
        if place is None:
            return self._drop("unexpected")
        # Answers come in order: what was asked before this has none, the controller dropped it.
        for _ in range(place):
            self._asked.popleft()
        connection, _ = self._asked.popleft()
        program = self._programs.get(connection)
        if signal.kind is SignalKind.INIT_VNF:
            if not signal.vnf:
                if program is not None:
                    program.waits_for_number = True
                return self._drop("no_numbers_left")
            if program is None:
                return self._tell(Signal(SignalKind.LEASE, signal.vnf, count=1))
            program.vnf = signal.vnf
        if program is None:
            return []
        if signal.kind is SignalKind.INIT_PUB and signal.state:
            published = program.publishes.setdefault(signal.state, _Published(signal.update))
            # A program may ask twice.
            signal = replace(signal, update=published.next)
        if signal.kind is SignalKind.SUB_REG and signal.state in self._replicas:
            self._drop_unreported(signal.state)
        found: list[Output] = [Send(connection, signal)]
        if signal.kind is SignalKind.SUB_REG and signal.state:
            if signal.state in program.subscribed:
                return []  # asked by `controller_up`
            found += self._subscribed(program, signal, now)
        return found

    def _drop_unreported(self, state: int) -> None:
        """Drops publishers whose updates the controller has let go: their numbers are used again.

        Whenever it confirms a subscription, it reports all publishers of the state after that.
        """
        replica = self._replicas[state]
        for vnf in replica.publishers.keys() - replica.reported:
            self._drop_publisher(state, vnf)
        replica.reported.clear()

    def _drop_publisher(self, state: int, vnf: int) -> None:
        replica = self._replicas[state]
        del replica.publishers[vnf]
        replica.streams.pop(vnf, None)
        replica.latest.pop(vnf, None)
        for program in self._programs.values():
            program.named.discard((state, vnf))

    def _subscribed(self, program: _Program, signal: Signal, now: float) -> list[Output]:
        state = signal.state
        program.subscribed[state] = signal.data.decode(errors="replace")
        self._untold.add((program.connection, state))
        replica = self._replicas.setdefault(state, _Replica())
        for other in self._programs.values():
            published = other.publishes.get(state)
            if published is not None and published.kept:
                update = next(reversed(published.kept))
                replica.latest[other.vnf] = update, published.kept[update]
                self._unreported.add((state, other.vnf))
        found: list[Output] = [o for vnf in replica.latest for o in self._hand(program, state, vnf)]
        return found + self.requests.want(state, program.vnf, now)

    def _learn(self, signal: Signal) -> list[Output]:
        """A publisher's name, address and last update."""
        replica = self._replicas.get(signal.state)
        if replica is None or len(signal.data) < 4:
            return []
        publisher = int.from_bytes(signal.data[:4]), signal.data[4:]
        if replica.publishers.get(signal.vnf, publisher) != publisher:
            self._drop_publisher(signal.state, signal.vnf)
        replica.publishers[signal.vnf] = publisher
        replica.reported.add(signal.vnf)
        if self._has_published(signal.vnf, signal.state):
            return []
        stream = replica.streams.get(signal.vnf)
        if stream is None:
            before = signal.update if not signal.count else after(signal.update, -1)
            if signal.vnf in replica.latest:
                before = replica.latest[signal.vnf][0]
            stream = replica.streams[signal.vnf] = Stream(before)
        stream.announce(signal.update)
        self._waiting.add((signal.state, signal.vnf))
        found: list[Output] = []
        held, replica.held = replica.held, []
        for entry in held:
            if entry[2].vnf == signal.vnf:
                found += self._take(signal.state, *entry[1:])
            else:
                replica.held.append(entry)
        return found

    def _recovered(self, signal: Signal) -> list[Output]:
        stream = self._stream(signal.state, signal.vnf)
        if stream is None:
            return []
        header = StateHeader(signal.vnf, signal.update, signal.count, signal.segment)
        if not stream.take(header, signal.data):
            self.recovered += 1
        return self._advance(signal.state, signal.vnf, stream)

    def _passed_over(self, stream: Stream, signal: Signal) -> list[Output]:
        stream.skip(signal.update)
        return self._advance(signal.state, signal.vnf, stream)

    def _acknowledged(self, signal: Signal) -> list[Output]:
        for program in self._programs.values():
            published = program.publishes.get(signal.state)
            if program.vnf == signal.vnf and published is not None:
                newest = after(published.next, -1)
                for update in list(published.kept):
                    if update != newest and not is_later(update, signal.update):
                        del published.kept[update]
                published.acknowledged = signal.update
                if program.connection < 0:
                    return self._forget(program)
                kind = SignalKind.ACKNOWLEDGED
                return [Send(program.connection, Signal(kind, 0, signal.state, signal.update))]
        return []

    def _bring(self, signal: Signal) -> list[Output]:
        """The controller lacks an update: as its publisher's middleware or as a replica."""
        for program in self._programs.values():
            published = program.publishes.get(signal.state)
            if program.vnf == signal.vnf and published is not None:
                data = published.kept.get(signal.update)
                first = next(iter(published.kept), published.next)
                break
        else:
            replica = self._replicas.get(signal.state)
            if replica is None or signal.vnf not in replica.latest:
                return []
            first, newest = replica.latest[signal.vnf]
            data = newest if first == signal.update else None
        if data is not None:
            return self._hand_over(
                signal.vnf, signal.state, signal.update, data, signal.segment, signal.count
            )
        if is_later(first, signal.update):
            return self._tell(Signal(SignalKind.TRUNCATED, signal.vnf, signal.state, first))
        return []

    def _hand_over(
        self, vnf: int, state: int, update: int, data: bytes, first: int = 1, count: int = 0
    ) -> list[Output]:
        return [
            output
            for signal in publish_signals(vnf, state, update, data, first, count)
            for output in self._tell(signal)
        ]

    # Time

    def tick(self, now: float) -> list[Output]:
        """Does what is due; call it some fifty times a second."""
        found = self.requests.due(now)
        for replica in self._replicas.values():
            if not replica.held:
                continue
            waiting = [entry for entry in replica.held if now < entry[0] + PATIENCE]
            self.dropped["forged"] += len(replica.held) - len(waiting)
            replica.held = waiting
        for state, vnf in sorted(self._waiting):
            stream = self._stream(state, vnf)
            if stream is not None:
                found += self._wait(state, vnf, stream, now)
            if stream is None or stream.through == stream.last:
                self._waiting.discard((state, vnf))
        if self._is_up and now >= self._lease_due:
            found += self._renew(now)
        return found + self._report() if self._is_up else found

    def _wait(self, state: int, vnf: int, stream: Stream, now: float) -> list[Output]:
        if stream.through == stream.last:
            stream.waits_since = None
            return []
        if stream.waits_since is None:
            stream.waits_since = now
        if now >= stream.waits_since + PATIENCE:
            stream.waits_since = now
            if stream.skip_missing():
                return self._advance(state, vnf, stream)
        if not self._is_up:
            return []
        return [
            Send(CONTROLLER, Signal(SignalKind.RECOVER, vnf, state, update, first, count))
            for update, first, count in stream.wanted(now, MOST_ASKED)
        ]

    def _report(self) -> list[Output]:
        found: list[Output] = []
        for state, publisher in sorted(self._unreported):
            replica = self._replicas.get(state)
            if replica is None or publisher not in replica.latest:
                continue
            update = replica.latest[publisher][0]
            for program in self._programs.values():
                if state in program.subscribed:
                    found += self._tell(
                        Signal(
                            SignalKind.ACKNOWLEDGED,
                            program.vnf,
                            state,
                            update,
                            data=publisher.to_bytes(2),
                        )
                    )
        self._unreported.clear()
        found += self._announce()
        for connection, state in sorted(self._untold):
            subscriber = self._programs.get(connection)
            if subscriber is None or state not in subscriber.subscribed:
                self._untold.discard((connection, state))
            elif self.requests.live_since(state) is not None:
                self._untold.discard((connection, state))
                found += self._tell(Signal(SignalKind.LIVE, subscriber.vnf, state))
        return found

    def _announce(self) -> list[Output]:
        """Reports the last updates that programs of this host have published."""
        found: list[Output] = []
        for connection, state in sorted(self._unannounced):
            owner = self._programs.get(connection)
            if owner is not None and owner.publishes[state].kept:
                last = after(owner.publishes[state].next, -1)
                found += self._tell(Signal(SignalKind.SUMMARY, owner.vnf, state, last))
        self._unannounced.clear()
        return found

    def _stream(self, state: int, vnf: int) -> Stream | None:
        replica = self._replicas.get(state)
        return None if replica is None else replica.streams.get(vnf)

    def _ask(self, connection: int, signal: Signal) -> list[Output]:
        self._asked.append((connection, signal))
        return self._tell(signal)

    def _tell(self, signal: Signal) -> list[Output]:
        return [Send(CONTROLLER, signal)] if self._is_up else []

    def _drop(self, why: str) -> list[Output]:
        self.dropped[why] += 1
        return []


def _answers(signal: Signal, asked: Signal) -> bool:
    is_named = asked.kind is SignalKind.INIT_VNF or asked.vnf == signal.vnf
    return asked.kind is signal.kind and asked.data == signal.data and is_named


def publish_signals(
    vnf: int, state: int, update: int, data: bytes, first: int = 1, count: int = 0
) -> list[Signal]:
    """Returns segments of an update as signals: ``count`` from ``first`` on, or with 0 all."""
    return [
        Signal(SignalKind.PUBLISH, vnf, state, update, header.segment, header.total, piece)
        for header, piece in cut(vnf, update, data, max(first, 1), count)
    ]
