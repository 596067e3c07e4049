"""The replica controller (STARE III-C, D) as a state machine: it names programs and states, keeps
what was published until every replica has it, and brings what got lost.

It takes part in the network as a subscriber to every state that has a publisher. What it misses it
asks of the publisher's middleware, or of a replica that is ahead of it. Its facts are `Record`, its
backlog `Keep`: with both, :meth:`Controller.restore` makes one that goes on where it ended.

Numbers of programs start at 5001 and are used again (`programs`); numbers of states start at 1. An
update leaves the backlog when every subscriber that lives has it and a later one is there, so a
program that subscribes gets the last update of each publisher. A program that sends nothing for
90 s has ended, and with it its subscriptions and positions. The updates of an ended program are let
go when a later program of its name has published, or when it ended `QUARANTINE` seconds ago and
another publisher has a later update, which is the value of the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from stackcast.udfs.errors import StateError
from stackcast.udfs.states.facts import Backlog, Facts
from stackcast.udfs.states.messages import (
    UPDATES,
    MessageKind,
    Signal,
    SignalKind,
    StateHeader,
    is_later,
    read_group,
    read_message,
)
from stackcast.udfs.states.middleware import MOST_ASKED, publish_signals
from stackcast.udfs.states.outputs import Keep, Output, Record, Send
from stackcast.udfs.states.programs import MOST_NAME, QUARANTINE, Program
from stackcast.udfs.states.requests import Requests
from stackcast.udfs.states.segments import WINDOW, Stream, after, cut, segments

PATIENCE = 30.0
"""So long an update is missed that nobody brings, if later ones are there, seconds."""
MOST_KEPT = 4096
"""Updates of a publisher of a state; who is further behind gets the last."""
SETTLE = 2.0
"""Time after `Controller.restore` in which middlewares report what replicas have, before anybody is
answered, seconds. So a program that starts then begins after all earlier updates."""
_ASKED = (SignalKind.INIT_VNF, SignalKind.INIT_PUB, SignalKind.SUB_REG, SignalKind.STATE_ID_REQ)
STALLED = 5.0
"""Between two ticks, seconds: leases are longer by what is above."""


class ControllerCounts(NamedTuple):
    """Counts of a controller.

    Attributes:
        middlewares: middlewares that are connected.
        programs: programs that are alive or whose updates are kept.
        numbers_left: programs that can start now under new names.
        states: states that have a number.
        beyond_registers: states for which the registers of a switch have no room.
        kept: updates in the backlog.
        kept_bytes: their size.
        waiting: publishers of a state of whom an update is missing.
        recovered: updates that were sent to replicas again.
        dropped: messages that were dropped, by reason.
    """

    middlewares: int
    programs: int
    numbers_left: int
    states: int
    beyond_registers: int
    kept: int
    kept_bytes: int
    waiting: int
    recovered: int
    dropped: Mapping[str, int]


class Controller:
    """Names, backlog and recovery for one network. ``dropped`` counts by reason what was not taken,
    ``recovered`` the updates that were brought again."""

    def __init__(
        self, number: int = 1, time_of_day: Callable[[float], float] = lambda now: now
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self.recovered = 0
        self.requests = Requests(number, time_of_day)
        self._facts = Facts()
        self._addresses: dict[int, int] = {}
        self._changed: set[tuple[int, int]] = set()
        #: Backlogs that lack something.
        self._waiting: set[tuple[int, int]] = set()
        #: Requests that wait until middlewares have reported, and until when.
        self._held: list[tuple[int, Signal]] = []
        self._settled_at = 0.0
        self._ticked = 0.0

    def restore(
        self, records: Iterable[Record], datagrams: Iterable[tuple[int, bytes]], now: float
    ) -> list[Output]:
        """Takes up what a controller before this one left; datagrams with their states.

        Programs that lived have a lease from now on.
        """
        found = self._facts.restore(records, datagrams, now)
        published = [number for number, state in self._facts.states.items() if state.backlogs]
        if published:
            self._settled_at = now + SETTLE
        found += [each for number in published for each in self.requests.want(number, 0, now)]
        return found

    def counts(self) -> ControllerCounts:
        """Returns counts, also to another thread."""
        facts = self._facts
        return ControllerCounts(
            len(self._addresses),
            len(facts.programs.known),
            facts.programs.numbers_left,
            len(facts.states),
            facts.states_beyond_registers,
            facts.kept_updates,
            facts.kept_bytes,
            len(self._waiting),
            self.recovered,
            dict(self.dropped),
        )

    # Middlewares

    def from_middleware(self, connection: int, signal: Signal, now: float) -> list[Output]:
        """Takes a signal of a middleware; it may speak for its own programs alone."""
        kind = signal.kind
        if kind is SignalKind.LEASE:
            return self._lease(connection, signal, now)
        if connection not in self._addresses:
            return self._drop("not_initialised")
        if now < self._settled_at and kind in _ASKED:
            self._held.append((connection, signal))
            return []
        if kind is SignalKind.INIT_VNF:
            return self._name_program(connection, signal, now)
        if kind is SignalKind.RECOVER:
            return self._recover(connection, signal)
        if kind in (SignalKind.PUBLISH, SignalKind.TRUNCATED):
            return self._brought(connection, signal)
        program = self._facts.programs.known.get(signal.vnf)
        if program is None or program.connection != connection:
            return self._drop("not_its_program")
        self._facts.programs.renew(signal.vnf, now)
        match kind:
            case SignalKind.INIT_PUB:
                return self._publisher(connection, signal, now)
            case SignalKind.SUB_REG:
                return self._subscribe(connection, signal, now)
            case SignalKind.SUB_REM:
                return self._unsubscribe(signal.vnf, signal.state)
            case SignalKind.LIVE:
                return self._live(signal.vnf, signal.state)
            case SignalKind.STATE_ID_REQ:
                known = self._facts.ids.get(signal.data.decode(errors="replace"), 0)
                return [Send(connection, Signal(kind, signal.vnf, known, data=signal.data))]
            case SignalKind.SUMMARY:
                backlog = self._facts.backlog(signal.state, signal.vnf)
                if backlog is None:
                    return self._drop("unexpected")
                backlog.stream.announce(signal.update)
                self._changed.add((signal.state, signal.vnf))
                self._waiting.add((signal.state, signal.vnf))
                return []
            case _:
                return self._position(connection, signal)

    def middleware_ended(self, connection: int) -> None:
        """Learns that a connection is closed; its programs live until their leases end."""
        self._addresses.pop(connection, None)
        self._facts.programs.disconnect(connection)
        for number, vnf in self._waiting:
            backlog = self._facts.backlog(number, vnf)
            if backlog is not None:
                backlog.holders.discard(connection)

    def _lease(self, connection: int, signal: Signal, now: float) -> list[Output]:
        if not signal.vnf:
            self._addresses[connection] = int.from_bytes(signal.data[:4])
            return []
        address = self._addresses.get(connection)
        program = self._facts.programs.find(signal.vnf)
        if signal.count:
            ends = program is not None and program.connection == connection
            return self._end(signal.vnf, now) if ends else []
        name = program.name.encode() if program is not None and not program.is_replaced else None
        if program is None or program.address != address or name != signal.data:
            self.dropped["not_its_program"] += 1
            return [Send(connection, Signal(SignalKind.LEASE, signal.vnf, count=1))]
        was_alive = program.is_alive
        self._facts.programs.renew(signal.vnf, now)
        self._facts.programs.connect(signal.vnf, connection)
        return [] if was_alive else [self._facts.program_record(signal.vnf)]

    def _name_program(self, connection: int, signal: Signal, now: float) -> list[Output]:
        name = signal.data.decode(errors="replace")[:MOST_NAME]
        program = Program(name, self._addresses[connection], connection, now)
        vnf, records = self._facts.add_program(program)
        if not vnf:
            self.dropped["no_numbers_left"] += 1
        return [*records, Send(connection, Signal(SignalKind.INIT_VNF, vnf, data=signal.data))]

    def _publisher(self, connection: int, signal: Signal, now: float) -> list[Output]:
        number, found = self._facts.state_of(signal.data)
        if not number:
            self.dropped["no_numbers_left"] += 1
            return [Send(connection, Signal(signal.kind, signal.vnf, data=signal.data))]
        state = self._facts.states[number]
        backlog = state.backlogs.get(signal.vnf)
        # Later than all before, so that a program that has just started is the last to write. If it
        # had the number before, the middleware says that nobody has what is between.
        newest: int | None = None
        for other in state.backlogs.values():
            if newest is None or is_later(other.stream.last, newest):
                newest = other.stream.last
        first = 1 if newest is None else after(newest)
        if backlog is None:
            backlog = Backlog(Stream(after(first, -1)), first)
            backlog.positions = dict.fromkeys(state.subscribers, after(first, -1))
            self._facts.add_backlog(number, signal.vnf, backlog)
            if not state.owner:
                state.owner = signal.vnf
                found.append(self._facts.state_record(number))
            found.append(self._facts.publisher_record(number, signal.vnf))
            found += self._summaries(number, [signal.vnf])
            found += self.requests.want(number, 0, now)
        return [
            *found,
            Send(connection, Signal(signal.kind, signal.vnf, number, first, data=signal.data)),
        ]

    def _subscribe(self, connection: int, signal: Signal, now: float) -> list[Output]:
        number, found = self._facts.state_of(signal.data)
        if not number:
            self.dropped["no_numbers_left"] += 1
            return [Send(connection, Signal(signal.kind, signal.vnf, data=signal.data))]
        state = self._facts.states[number]
        if signal.vnf not in state.subscribers:
            state.subscribers.add(signal.vnf)
            self._facts.programs.known[signal.vnf].subscribed.add(number)
            for backlog in state.backlogs.values():
                backlog.positions[signal.vnf] = after(backlog.stream.through, -1)
            found.append(self._facts.subscription_record(signal.vnf, number))
        found.append(
            Send(connection, Signal(SignalKind.SUB_REG, signal.vnf, number, data=signal.data))
        )
        return found + self._summaries(number, list(state.backlogs), connection)

    def _unsubscribe(self, vnf: int, number: int) -> list[Output]:
        state = self._facts.states.get(number)
        if state is None or vnf not in state.subscribers:
            return []
        state.subscribers.remove(vnf)
        state.live.discard(vnf)
        self._facts.programs.known[vnf].subscribed.discard(number)
        found: list[Output] = [self._facts.subscription_record(vnf, number)]
        for publisher, backlog in state.backlogs.items():
            if backlog.positions.pop(vnf, None) is not None:
                found.append(Record(f"position/{vnf}/{number}/{publisher}", None))
            found += self._truncate(number, publisher)
        return found

    def _live(self, vnf: int, number: int) -> list[Output]:
        state = self._facts.states.get(number)
        if state is None or vnf not in state.subscribers or vnf in state.live:
            return []
        state.live.add(vnf)
        return [self._facts.subscription_record(vnf, number)]

    def _position(self, connection: int, signal: Signal) -> list[Output]:
        publisher = int.from_bytes(signal.data[:2])
        backlog = self._facts.backlog(signal.state, publisher)
        if signal.kind is not SignalKind.ACKNOWLEDGED or backlog is None:
            return self._drop("unexpected")
        if is_later(signal.update, backlog.stream.through):
            backlog.stream.announce(signal.update)
            backlog.holders.add(connection)
            self._waiting.add((signal.state, publisher))
        held = backlog.positions.get(signal.vnf)
        if held is None or not is_later(signal.update, held):
            return []
        backlog.positions[signal.vnf] = signal.update
        self._facts.moved.add((signal.vnf, signal.state, publisher))
        return self._truncate(signal.state, publisher)

    def _end(self, vnf: int, now: float) -> list[Output]:
        program = self._facts.programs.known[vnf]
        found = [o for state in list(program.subscribed) for o in self._unsubscribe(vnf, state)]
        self._facts.programs.end(vnf, now)
        found.append(self._facts.program_record(vnf))
        for number in list(program.published):
            found += self._let_go_ended(number, now)
        self._facts.programs.forget(vnf, now)
        return found

    def _let_go_ended(self, number: int, now: float) -> list[Output]:
        """Lets go the updates of ended programs that no replica needs any more.

        A replica takes the last update of a name for that of all its programs, and the latest
        update of all for the value of the state.
        """
        state, programs = self._facts.states[number], self._facts.programs.known
        found: list[Output] = []
        if all(programs[vnf].is_alive for vnf in state.backlogs):
            return found
        newest: dict[str, int] = {}
        for vnf, backlog in state.backlogs.items():
            for key in ("", f"/{programs[vnf].name}"):
                if backlog.newest is not None:
                    held = newest.setdefault(key, backlog.newest)
                    newest[key] = backlog.newest if is_later(backlog.newest, held) else held
        for vnf, backlog in list(state.backlogs.items()):
            program = programs[vnf]
            if program.is_alive:
                continue
            has_rested = now >= program.ended + QUARANTINE
            # After a restart of its middleware, a program has another number for a while.
            has_rested = has_rested and not self._facts.programs.runs(program)
            keys = ["", f"/{program.name}"] if has_rested else [f"/{program.name}"]
            later = any(is_later(newest[k], backlog.stream.last) for k in keys if k in newest)
            if later or (has_rested and not backlog.kept):
                for update in list(backlog.kept):
                    found += self._let_go(number, vnf, update)
                self._changed.discard((number, vnf))
                found += self._facts.remove_backlog(number, vnf, now)
        return found

    def _let_go_long_ended(self, now: float) -> list[Output]:
        """Lets go what `QUARANTINE` has kept of programs that ended; the rest stays until another
        program publishes."""
        programs = self._facts.programs
        numbers = {n for vnf in programs.long_ended(now) for n in programs.known[vnf].published}
        return [each for number in sorted(numbers) for each in self._let_go_ended(number, now)]

    # Backlog

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
        backlog = self._facts.backlog(state, header.vnf)
        if kind is not MessageKind.PUBLISH or backlog is None:
            return self._drop("forged" if kind is MessageKind.PUBLISH else "not_for_hosts")
        if self._facts.programs.known[header.vnf].address != source:
            return self._drop("forged")
        why = backlog.stream.take(header, data)
        return self._drop(why) if why else self._advance(state, header.vnf)

    def _brought(self, connection: int, signal: Signal) -> list[Output]:
        """An answer to what `tick` asked."""
        backlog = self._facts.backlog(signal.state, signal.vnf)
        if backlog is None:
            return self._drop("unexpected")
        owns = self._facts.programs.known[signal.vnf].connection == connection
        if not owns and connection not in backlog.holders:
            return self._drop("not_its_program")
        if signal.kind is SignalKind.TRUNCATED:
            if owns:
                backlog.stream.skip(signal.update)
        else:
            header = StateHeader(signal.vnf, signal.update, signal.count, signal.segment)
            backlog.stream.take(header, signal.data)
        return self._advance(signal.state, signal.vnf)

    def _advance(self, state: int, vnf: int) -> list[Output]:
        backlog = self._facts.states[state].backlogs[vnf]
        found: list[Output] = []
        self._waiting.add((state, vnf))
        for update, data in backlog.stream.pop():
            backlog.stream.waits_since = None
            self._facts.keep(state, vnf, update, data)
            self._changed.add((state, vnf))
            for header, piece in cut(vnf, update, data):
                datagram = header.pack() + piece
                found.append(Keep(state, vnf, update, header.segment, datagram))
            for connection, part in backlog.asked.pop(update, {}).items():
                found += self._bring(connection, state, vnf, update, part)
        if not found:
            return []
        found += self._truncate(state, vnf)
        return found + self._let_go_ended(state, self._ticked)

    def _truncate(self, number: int, vnf: int) -> list[Output]:
        """Lets go what every subscriber has; the last update stays."""
        backlog = self._facts.states[number].backlogs[vnf]
        through = backlog.stream.through
        least = through
        for position in backlog.positions.values():
            if is_later(least, position):
                least = position
        spare = len(backlog.kept) - MOST_KEPT
        found: list[Output] = []
        for place, update in enumerate(list(backlog.kept)):
            if update == through or (place >= spare and is_later(update, least)):
                continue
            found += self._let_go(number, vnf, update)
        return found

    def _let_go(self, number: int, vnf: int, update: int) -> list[Output]:
        data = self._facts.let_go(number, vnf, update)
        return [
            Keep(number, vnf, update, segment, None)
            for segment in range(1, segments(len(data)) + 1)
        ]

    def _recover(self, connection: int, signal: Signal) -> list[Output]:
        if signal.state not in self._facts.states:
            return self._drop("unexpected")
        backlog = self._facts.backlog(signal.state, signal.vnf)
        if backlog is None:
            # Let go as a whole: what is asked for now, and what will be.
            after_it = after(signal.update)
            truncated = Signal(SignalKind.TRUNCATED, signal.vnf, signal.state, after_it)
            return [Send(connection, truncated)]
        if signal.update in backlog.kept:
            part = signal.segment, signal.count
            return self._bring(connection, signal.state, signal.vnf, signal.update, part)
        if is_later(signal.update, backlog.stream.through):
            # It is asked for itself, and brought as soon as it is here.
            if (signal.update - backlog.stream.through) % UPDATES <= WINDOW:
                asked = backlog.asked.setdefault(signal.update, {})
                asked[connection] = signal.segment, signal.count
            return []
        first = min(
            (*backlog.kept, after(backlog.stream.through)),
            key=lambda update: (update - signal.update) % UPDATES,
        )
        return [Send(connection, Signal(SignalKind.TRUNCATED, signal.vnf, signal.state, first))]

    def _bring(
        self, connection: int, state: int, vnf: int, update: int, part: tuple[int, int]
    ) -> list[Output]:
        """Brings segments of an update to a replica: from a first one on, so many; 0: all."""
        if connection not in self._addresses:
            return []
        data = self._facts.states[state].backlogs[vnf].kept[update]
        first, count = part
        self.recovered += 1
        self._facts.recovered(
            publisher=vnf,
            state=state,
            update=update,
            segment=first,
            count=count or segments(len(data)),
            address=self._addresses[connection],
        )
        again = publish_signals(vnf, state, update, data, first, count)
        return [Send(connection, each) for each in again]

    # Time

    def tick(self, now: float) -> list[Output]:
        """Does what is due; call it some fifty times a second."""
        found = self.requests.due(now)
        if self._held and now >= self._settled_at:
            held, self._held = self._held, []
            found += [o for each in held for o in self.from_middleware(*each, now)]
        if self._ticked and now > self._ticked + STALLED:
            # It has heard nobody meanwhile.
            self._facts.programs.extend(now - self._ticked)
        self._ticked = now
        for vnf in self._facts.programs.expired(now):
            found += self._end(vnf, now)
        found += self._let_go_long_ended(now)
        found += [self._facts.program_record(n) for n in self._facts.programs.release(now)]
        for number, vnf in sorted(self._waiting):
            backlog = self._facts.backlog(number, vnf)
            if backlog is not None and backlog.stream.through != backlog.stream.last:
                found += self._wait(number, vnf, backlog, now)
                continue
            self._waiting.discard((number, vnf))
            if backlog is not None:
                backlog.stream.waits_since = None
                backlog.holders.clear()
                backlog.asked.clear()
        for number, vnf in sorted(self._changed):
            found += self._summaries(number, [vnf])
            update = self._facts.states[number].backlogs[vnf].stream.through
            connection = self._facts.programs.known[vnf].connection
            if connection:
                kind = SignalKind.ACKNOWLEDGED
                found.append(Send(connection, Signal(kind, vnf, number, update)))
        self._changed.clear()
        return found

    def facts(self) -> list[Output]:
        """Returns records of what moves often; call it each second."""
        return self._facts.records()

    def _wait(self, number: int, vnf: int, backlog: Backlog, now: float) -> list[Output]:
        stream = backlog.stream
        if stream.waits_since is None:
            stream.waits_since = now
        if now >= stream.waits_since + PATIENCE:
            stream.waits_since = now
            if stream.skip_missing():
                return self._advance(number, vnf)
        asked = ({self._facts.programs.known[vnf].connection} | backlog.holders) - {0}
        if not asked:
            return []
        return [
            Send(connection, Signal(SignalKind.RECOVER, vnf, number, update, first, count))
            for update, first, count in stream.wanted(now, MOST_ASKED)
            for connection in sorted(asked)
        ]

    def _summaries(self, number: int, publishers: list[int], only: int = 0) -> list[Output]:
        """Tells subscribers' middlewares the last update of publishers; or ``only`` one of them."""
        state = self._facts.states[number]
        connections = {self._facts.programs.known[vnf].connection for vnf in state.subscribers}
        found: list[Output] = []
        for vnf in publishers:
            backlog, program = state.backlogs[vnf], self._facts.programs.known[vnf]
            last = backlog.stream.through if backlog.newest is None else backlog.newest
            about = program.address.to_bytes(4) + program.name.encode()
            total = segments(len(backlog.kept[last])) if last in backlog.kept else 0
            signal = Signal(SignalKind.SUMMARY, vnf, number, last, count=total, data=about)
            found += [Send(c, signal) for c in ([only] if only else sorted(connections - {0}))]
        return found

    def _drop(self, why: str) -> list[Output]:
        self.dropped[why] += 1
        return []
