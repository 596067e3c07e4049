"""The subscriptions of one switch: the ports behind which somebody wants a state (STARE III-E).

A set of ports is a mask: bit p - 1 is port p. Time is in microseconds and goes by in generations
of ``2**lease``: a port is kept through the generation of its last register and the one after it, so
for one to two of them. Whoever refreshes in time stays, what a lost message or a restart took is
back with the next refresh, and who died is forgotten.

A generation has ``2**PERIOD_BITS`` periods. In a period, one register of a state goes out by each
link, no matter how many come in. All hosts register a state again at the same time
(`requests.next_refresh`). So one register crosses a link between two refreshes, or two if a period
ends while hosts register, and one that is lost is followed by another at the next refresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

PERIOD_BITS = 5


def ports_of(mask: int) -> Iterator[int]:
    """Yields the ports of a mask, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length()
        mask ^= lowest


def needless(left: int, links: int) -> int:
    """Returns the links by which a remove goes on: those behind which nobody is served from here.

    left: ports that stay subscribed. An update comes in by a link q for the sake of all other
    ports, so q's neighbor may forget this switch exactly if ``left & ~q`` is empty. (The authors
    send it by all links, which cuts off who subscribed on another port.)
    """
    if left & left - 1:
        return 0
    return links & left if left else links


@dataclass
class _Record:
    """What a switch remembers of one state.

    Attributes:
        fresh: ports that registered in ``generation``.
        earlier: ports that registered in the generation before.
        generation: number of the generation of the last register or remove.
        informed: links by which a register went out in ``period``, and no remove since.
        period: number of the period of the last register.
    """

    fresh: int
    earlier: int
    generation: int
    informed: int = 0
    period: int = 0


class Subscriptions:
    """Ports by state, each for its lease.

    Parameters
    ----------
    links: ports of the tree that joins all switches. hosts: ports before hosts. They may be set
        anew; ports that are in neither are forgotten.
    lease: exponent of a generation's microseconds, at least `PERIOD_BITS`.
    """

    def __init__(self, links: int, hosts: int, lease: int) -> None:
        self.links, self.hosts, self.lease = links, hosts, lease
        self._records: dict[int, _Record] = {}

    def at(self, state: int, now: int) -> int:
        """Returns the ports that get an update of a state."""
        fresh, earlier = self._current(state, now)
        return fresh | earlier

    def states(self) -> Iterable[int]:
        """Returns the states that something is remembered of."""
        return list(self._records)

    def restore(self, state: int, ports: int, now: int) -> None:
        """Takes ports as registered now, although no register of theirs is forwarded."""
        self._renewed(state, now).fresh |= ports

    def register(self, state: int, port: int, now: int) -> int:
        """A port subscribes, or refreshes; returns the links by which the register goes on."""
        mark = 1 << port - 1
        record = self._renewed(state, now)
        record.fresh |= mark
        period = now >> self.lease - PERIOD_BITS
        if period != record.period:
            record.informed, record.period = 0, period
        onward = self.links & ~mark & ~record.informed
        record.informed |= onward
        return onward

    def remove(self, state: int, port: int, now: int) -> int:
        """A port is unsubscribed; returns the links by which the remove goes on."""
        mark = 1 << port - 1
        record = self._renewed(state, now)
        record.fresh &= ~mark
        record.earlier &= ~mark
        onward = needless(record.fresh | record.earlier, self.links) & ~mark
        record.informed &= ~onward
        return onward

    def forget(self, now: int) -> list[int]:
        """Drops states whose ports are all too old; returns them."""
        gone = [state for state in self._records if not self.at(state, now)]
        for state in gone:
            del self._records[state]
        return gone

    def _renewed(self, state: int, now: int) -> _Record:
        """Returns the record of a state, with what is too old or not on the tree taken out."""
        fresh, earlier = self._current(state, now)
        record = self._records.setdefault(state, _Record(0, 0, 0))
        record.fresh, record.earlier, record.generation = fresh, earlier, now >> self.lease
        record.informed &= self.links
        return record

    def _current(self, state: int, now: int) -> tuple[int, int]:
        """Returns the ports of this generation and of the one before."""
        record = self._records.get(state)
        if record is None:
            return 0, 0
        fresh, earlier = record.fresh, record.earlier
        passed = (now >> self.lease) - record.generation
        if passed:
            fresh, earlier = 0, fresh if passed == 1 else 0
        known = self.links | self.hosts
        return fresh & known, earlier & known
