"""The facts of a replica controller: who publishes which states, who holds them and how far, and
what of the backlog is kept. Another controller restores them from the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stackcast.udfs.states.messages import MOST_STATE, REGISTER_STATES, read_message
from stackcast.udfs.states.outputs import Keep, Output, Record
from stackcast.udfs.states.programs import Program, Programs
from stackcast.udfs.states.segments import Stream, after, segments

MOST_RECOVERIES = 4096
"""Recoveries that stay on record; who reads along has had the others."""

#: Records are taken up in this order, as each names those before it.
_ORDER = ("vnf", "state", "publisher", "subscription", "position", "recovery")


@dataclass
class Backlog:
    """What one program published of one state. kept: data by update; positions: by subscriber, the
    last update that it has; asked: by an update that is not here yet, what connections asked of it,
    first segment and how many."""

    stream: Stream
    first: int
    kept: dict[int, bytes] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    #: Connections whose replicas are ahead, as long as an update is missing.
    holders: set[int] = field(default_factory=set)
    asked: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)

    @property
    def newest(self) -> int | None:
        """The last update that is kept."""
        return next(reversed(self.kept), None)


@dataclass
class State:
    """A state; owner: who published first; backlogs: by publisher."""

    name: str
    owner: int = 0
    subscribers: set[int] = field(default_factory=set)
    #: Subscribers that their switch has acknowledged.
    live: set[int] = field(default_factory=set)
    backlogs: dict[int, Backlog] = field(default_factory=dict)
    segments: int = 0


class Facts:
    """Programs and states by their numbers. Numbers of programs start at 5001 and are used again
    (`Programs`); those of states start at 1, and each is used once.

    Attributes:
        programs: programs and their numbers.
        states: states by number.
        ids: numbers of states by name.
        moved: positions (subscriber, state, publisher) that `records` has not returned yet.
        published: the same for backlogs (state, publisher).
        kept: the same for states.
        kept_updates: number of updates in all backlogs.
        kept_bytes: their size.
    """

    def __init__(self) -> None:
        self.programs = Programs()
        self.states: dict[int, State] = {}
        self.ids: dict[str, int] = {}
        self.moved: set[tuple[int, int, int]] = set()
        self.published: set[tuple[int, int]] = set()
        self.kept: set[int] = set()
        self.kept_updates = self.kept_bytes = 0
        self._recoveries: list[dict[str, Any]] = []
        self._next_recovery = 1

    def backlog(self, state: int, vnf: int) -> Backlog | None:
        """Returns what a program published of a state; None where it never did."""
        return self.states[state].backlogs.get(vnf) if state in self.states else None

    @property
    def states_beyond_registers(self) -> int:
        """Number of states for which the registers of a switch have no room."""
        return max(0, len(self.states) - (REGISTER_STATES - 1))

    def add_program(self, program: Program) -> tuple[int, list[Output]]:
        """Gives a new program a number.

        Returns:
            The number, 0 if none is left, and the records of the program.
        """
        vnf, former = self.programs.start(program)
        if not vnf:
            return 0, []
        outdated = sorted(former.recorded) if former else []
        gone = [Record(f"subscription/{vnf}/{state}", None) for state in outdated]
        return vnf, [*gone, self.program_record(vnf)]

    def add_backlog(self, state: int, vnf: int, backlog: Backlog) -> None:
        """Adds a publisher of a state."""
        self.states[state].backlogs[vnf] = backlog
        self.programs.known[vnf].published.add(state)

    def remove_backlog(self, state: int, vnf: int, now: float) -> list[Output]:
        """Removes a publisher whose updates were let go; returns the records.

        Args:
            state: number of the state.
            vnf: number of a program that has ended.
            now: time in seconds.
        """
        backlog = self.states[state].backlogs.pop(vnf)
        self.published.discard((state, vnf))
        program = self.programs.known[vnf]
        program.published.discard(state)
        program.is_replaced = True
        record = self.program_record(vnf)
        self.programs.forget(vnf, now)
        gone = [Record(f"position/{other}/{state}/{vnf}", None) for other in backlog.positions]
        return [*gone, Record(f"publisher/{vnf}/{state}", None), record]

    def state_of(self, name: bytes) -> tuple[int, list[Output]]:
        """Returns the number of a state, with its record where it is new; 0 where none is left."""
        text = name.decode(errors="replace")
        if text in self.ids:
            return self.ids[text], []
        number = len(self.states) + 1
        if number > MOST_STATE:
            return 0, []
        self.ids[text] = number
        self.states[number] = State(text)
        return number, [self.state_record(number)]

    def keep(self, state: int, vnf: int, update: int, data: bytes) -> None:
        """Keeps an update that was published."""
        self.states[state].backlogs[vnf].kept[update] = data
        self.published.add((state, vnf))
        self.kept.add(state)
        self._count(1, data)

    def let_go(self, state: int, vnf: int, update: int) -> bytes:
        """Lets an update go; returns its data."""
        data = self.states[state].backlogs[vnf].kept.pop(update)
        self.kept.add(state)
        self._count(-1, data)
        return data

    def _count(self, updates: int, data: bytes) -> None:
        self.kept_updates += updates
        self.kept_bytes += updates * len(data)

    def recovered(self, **recovery: int) -> None:
        """Notes that an update was brought again."""
        self._recoveries.append(recovery)

    # What was left

    def restore(
        self, records: Iterable[Record], datagrams: Iterable[tuple[int, bytes]], now: float
    ) -> list[Output]:
        """Takes up what another controller has stored, which may have died in a write.

        Programs that lived have a lease from now on. An update that is not whole was not confirmed
        to its publisher yet, which publishes it again, or was being let go.

        Args:
            records: last record of each key.
            datagrams: segments of the backlog, with their states.
            now: time in seconds.

        Returns:
            The segments of the backlog that are no longer needed. If they stayed, a later update
            with their number could not be restored.
        """
        parts: dict[tuple[int, int, int, int], dict[int, bytes]] = {}
        outdated: list[Output] = []
        for record in sorted(records, key=lambda record: _ORDER.index(record.key.split("/")[0])):
            self._restore(record, now)
        for vnf in list(self.programs.known):
            self.programs.forget(vnf, now)
        for state, datagram in datagrams:
            header, data = read_message(datagram)
            key = state, header.vnf, header.update, header.total
            parts.setdefault(key, {})[header.segment] = data
        for (state, vnf, update, total), held in parts.items():
            backlog = self.backlog(state, vnf)
            if backlog is None or len(held) < total:
                outdated += [Keep(state, vnf, update, segment, None) for segment in sorted(held)]
            else:
                data = b"".join(held[number] for number in sorted(held))
                backlog.kept[update] = data
                self._count(1, data)
                backlog.stream.announce(update)
                backlog.stream.skip(after(update))
        for state_ in self.states.values():
            for backlog in state_.backlogs.values():
                backlog.stream.skipped = 0
                backlog.kept = dict(
                    sorted(
                        backlog.kept.items(),
                        key=lambda item: (item[0] - backlog.stream.through - 1) % (1 << 24),
                    )
                )
                oldest = next(iter(backlog.kept), after(backlog.stream.through))
                for vnf in state_.subscribers:
                    backlog.positions.setdefault(vnf, after(oldest, -1))
        return outdated

    def _restore(self, record: Record, now: float) -> None:
        kind, *numbers = record.key.split("/")
        value: dict[str, Any] = record.value or {}
        first, second, third = (*map(int, numbers), 0, 0, 0)[:3]
        if kind == "vnf":
            program = Program(
                value["name"],
                value["address"],
                renewed=now,
                ended=now,
                is_alive=value["alive"],
                is_replaced=value["replaced"],
            )
            self.programs.restore(first, program, is_free=value.get("free", False))
        elif kind == "state":
            self.states[first] = State(value["name"], value["owner"])
            self.ids[value["name"]] = first
        elif kind == "publisher":
            start = value["first"]
            self.add_backlog(second, first, Backlog(Stream(after(start, -1)), start))
        elif kind == "subscription":
            held = self.programs.find(first)
            assert held is not None
            held.recorded.add(second)
            if value["wanted"] and held.is_alive:
                held.subscribed.add(second)
                self.states[second].subscribers.add(first)
                if value["live"]:
                    self.states[second].live.add(first)
        elif kind == "recovery":
            self._next_recovery = max(self._next_recovery, value["recovery"] + 1)
        elif kind == "position" and first in self.states[second].subscribers:
            backlog = self.states[second].backlogs.get(third)
            if backlog is not None:
                backlog.positions[first] = value["update"]

    # What is to be on record

    def records(self) -> list[Output]:
        """Returns records of what moves often: positions, what is published and kept, recoveries;
        since it was last asked."""
        found: list[Output] = []
        for vnf, number, publisher in sorted(self.moved):
            backlog = self.backlog(number, publisher)
            update = backlog.positions.get(vnf) if backlog else None
            if backlog is not None and update is not None:
                size = len(backlog.kept.get(update, b""))
                value = {"update": update, "segment": segments(size)}
                found.append(Record(f"position/{vnf}/{number}/{publisher}", value))
        self.moved.clear()
        found += [self.publisher_record(number, vnf) for number, vnf in sorted(self.published)]
        self.published.clear()
        for number in sorted(self.kept):
            state = self.states[number]
            state.segments = sum(
                segments(len(data)) for b in state.backlogs.values() for data in b.kept.values()
            )
            found.append(self.state_record(number))
        self.kept.clear()
        for recovery in self._recoveries:
            key = f"recovery/{self._next_recovery % MOST_RECOVERIES}"
            found.append(Record(key, {"recovery": self._next_recovery, **recovery}))
            self._next_recovery += 1
        self._recoveries.clear()
        return found

    def program_record(self, vnf: int) -> Record:
        """Returns the record of a program."""
        program = self.programs.find(vnf)
        assert program is not None
        return Record(
            f"vnf/{vnf}",
            {
                "name": program.name,
                "address": program.address,
                "alive": program.is_alive,
                "replaced": program.is_replaced,
                # The next controller need not wait for another quarantine.
                "free": self.programs.is_free(vnf),
            },
        )

    def state_record(self, number: int) -> Record:
        """Returns the record of a state."""
        state = self.states[number]
        return Record(
            f"state/{number}",
            {"name": state.name, "owner": state.owner, "segments": state.segments},
        )

    def publisher_record(self, state: int, vnf: int) -> Record:
        """Returns the record of a program's publishing a state."""
        backlog = self.states[state].backlogs[vnf]
        newest = backlog.stream.through if backlog.kept else None
        return Record(f"publisher/{vnf}/{state}", {"first": backlog.first, "newest": newest})

    def subscription_record(self, vnf: int, number: int) -> Record:
        """Returns the record of a program's wanting a state, or not."""
        state = self.states[number]
        self.programs.known[vnf].recorded.add(number)
        value = {"wanted": vnf in state.subscribers, "live": vnf in state.live}
        return Record(f"subscription/{vnf}/{number}", value)
