"""Programs and their numbers (VNF_ID), each of which belongs to one program at a time.

A program that starts again under its name and address gets its number back. Any other program gets
a number that was not used for `QUARANTINE` seconds or, if there is none, a new one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from stackcast.udfs.states.messages import MOST_VNF
from stackcast.udfs.states.requests import LEASE

FIRST_VNF = 5001
#: Characters of the name of a program.
MOST_NAME = 255
#: Time before another program gets a number, in seconds. Middlewares renew their subscriptions
#: three times per lease, and drop a publisher that the controller no longer names; frames and
#: leases of the last holder have ended long before.
QUARANTINE = 600.0


@dataclass
class Program:
    """A program of a host.

    Attributes:
        name: name that the program gave.
        address: IPv4 address of its host.
        connection: connection of its middleware; 0 for none.
        renewed: time at which it was last heard, in seconds.
        ended: time at which it ended, in seconds.
        is_alive: whether its lease runs.
        is_replaced: whether its updates were dropped because a later program has published.
        subscribed: states that it subscribes to.
        published: states of which the controller keeps its updates.
        recorded: states of which a subscription of it is on record.
    """

    name: str
    address: int
    connection: int = 0
    renewed: float = 0.0
    ended: float = 0.0
    is_alive: bool = True
    is_replaced: bool = False
    subscribed: set[int] = field(default_factory=set)
    published: set[int] = field(default_factory=set)
    recorded: set[int] = field(default_factory=set)

    @property
    def holder(self) -> tuple[str, int]:
        """Name and address, by which a program gets its number back."""
        return self.name, self.address


class Programs:
    """All programs of a network.

    Attributes:
        known: by number, the programs that are alive or whose updates are kept.
    """

    def __init__(self) -> None:
        self.known: dict[int, Program] = {}
        #: Numbers of programs that are alive, the one that was heard longest ago first.
        self._leases: dict[int, None] = {}
        #: Programs that have ended and of which nothing is kept, in the order in which they were
        #: forgotten: those in quarantine, and those whose numbers are free.
        self._resting: dict[int, tuple[float, Program]] = {}
        self._free: dict[int, Program] = {}
        #: Numbers of ended programs whose updates are kept, the one that ended first first.
        self._kept: dict[int, None] = {}
        #: Numbers of the programs of each connection.
        self._connected: dict[int, set[int]] = {}
        #: Numbers of ended programs by their names and addresses; how many of these run.
        self._ended: dict[tuple[str, int], dict[int, None]] = {}
        self._running: Counter[tuple[str, int]] = Counter()
        self._next = FIRST_VNF

    @property
    def numbers_left(self) -> int:
        """Number of programs that can start now under new names."""
        return MOST_VNF - self._next + 1 + len(self._free)

    def start(self, program: Program) -> tuple[int, Program | None]:
        """Gives a program a number.

        Args:
            program: a program that has just started.

        Returns:
            Its number, and the program that had the number before under another name or address.
            The number is 0 if none is left.
        """
        former: Program | None = None
        if own := self._ended.get(program.holder):
            vnf = next(reversed(own))
            before = self._take(vnf)
            program.published, program.recorded = before.published, before.recorded
        elif self._free:
            vnf = next(iter(self._free))
            former = self._take(vnf)
        elif self._next <= MOST_VNF:
            vnf = self._next
            self._next += 1
        else:
            return 0, None
        self.known[vnf] = program
        self._leases[vnf] = None
        self._running[program.holder] += 1
        self.connect(vnf, program.connection)
        return vnf, former

    def connect(self, vnf: int, connection: int) -> None:
        """Sets the connection of a program, 0 for none."""
        program = self.known[vnf]
        if numbers := self._connected.get(program.connection):
            numbers.discard(vnf)
            if not numbers:
                del self._connected[program.connection]
        program.connection = connection
        if connection:
            self._connected.setdefault(connection, set()).add(vnf)

    def disconnect(self, connection: int) -> None:
        """Notes that a connection is closed; its programs have none."""
        for vnf in self._connected.pop(connection, ()):
            self.known[vnf].connection = 0

    def runs(self, program: Program) -> bool:
        """Returns whether a program of the same name and address is alive."""
        return self._running[program.holder] > 0

    def find(self, vnf: int) -> Program | None:
        """Returns the program that has a number, or had it last."""
        resting = self._resting.get(vnf)
        return self.known.get(vnf) or (resting[1] if resting else self._free.get(vnf))

    def renew(self, vnf: int, now: float) -> None:
        """Extends the lease of a program that is known or has ended."""
        program = self.known.get(vnf)
        if program is None or not program.is_alive:
            program = self.known[vnf] = self._take(vnf)
            program.is_alive = True
            self._running[program.holder] += 1
        program.renewed = now
        self._leases.pop(vnf, None)
        self._leases[vnf] = None

    def expired(self, now: float) -> list[int]:
        """Returns the numbers of programs whose leases have run out."""
        numbers = []
        for vnf in self._leases:
            if now < self.known[vnf].renewed + LEASE:
                break
            numbers.append(vnf)
        return numbers

    def extend(self, seconds: float) -> None:
        """Extends all leases, after a pause in which no program could be heard."""
        for vnf in self._leases:
            self.known[vnf].renewed += seconds

    def end(self, vnf: int, now: float) -> None:
        """Ends a program; `forget` it once nothing of it is kept."""
        program = self.known[vnf]
        self.connect(vnf, 0)
        program.is_alive, program.ended = False, now
        self._kept[vnf] = None
        del self._leases[vnf]
        self._count_end(vnf, program)

    def forget(self, vnf: int, now: float) -> None:
        """Puts the number of a known program into quarantine if it has ended and nothing of it is
        kept."""
        program = self.known.get(vnf)
        if program is not None and not program.is_alive and not program.published:
            self._resting[vnf] = now, self.known.pop(vnf)
            self._kept.pop(vnf, None)

    def long_ended(self, now: float) -> list[int]:
        """Returns programs that ended `QUARANTINE` seconds ago and of which updates are kept, each
        once."""
        numbers = []
        for vnf in self._kept:
            if now < self.known[vnf].ended + QUARANTINE:
                break
            numbers.append(vnf)
        for vnf in numbers:
            del self._kept[vnf]
        return numbers

    def release(self, now: float) -> list[int]:
        """Ends the quarantine of numbers whose time has come, and returns them."""
        numbers = []
        while self._resting:
            vnf, (since, program) = next(iter(self._resting.items()))
            if now < since + QUARANTINE:
                break
            del self._resting[vnf]
            self._free[vnf] = program
            numbers.append(vnf)
        return numbers

    def is_free(self, vnf: int) -> bool:
        """Returns whether the quarantine of a number has ended."""
        return vnf in self._free

    def restore(self, vnf: int, program: Program, *, is_free: bool) -> None:
        """Adds a program that is on record, with its number and, if it is alive, a lease."""
        self._next = max(self._next, vnf + 1)
        (self._free if is_free else self.known)[vnf] = program
        self._running[program.holder] += 1
        if program.is_alive:
            self._leases[vnf] = None
        else:
            self._count_end(vnf, program)
            if not is_free:
                self._kept[vnf] = None

    def _count_end(self, vnf: int, program: Program) -> None:
        self._ended.setdefault(program.holder, {})[vnf] = None
        self._running[program.holder] -= 1
        if not self._running[program.holder]:
            del self._running[program.holder]

    def _take(self, vnf: int) -> Program:
        """Removes an ended program, wherever it is."""
        program = self.find(vnf)
        assert program is not None
        for place in (self.known, self._resting, self._free, self._kept):
            place.pop(vnf, None)
        del self._ended[program.holder][vnf]
        if not self._ended[program.holder]:
            del self._ended[program.holder]
        return program
