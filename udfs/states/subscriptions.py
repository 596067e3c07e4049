"""The subscriptions of one switch: the ports behind which somebody wants a state (STARE III-E).

A set of ports is a mask: bit p - 1 is port p. Time is in microseconds and goes by in generations
of ``2**lease``: a port is kept through the generation of its last register and the one after it, so
for one to two of them. Whoever refreshes in time stays, what a lost message or a restart took is
back with the next refresh, and who died is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def as_bits(mask: int, ports: int) -> str:
    """Writes a mask as Table II of STARE does: one digit a port, port 1 first."""
    return f"{mask:0{ports}b}"[::-1]


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


class Subscriptions:
    """Ports by state, each for its lease.

    Parameters
    ----------
    links: ports of the tree that joins all switches. hosts: ports before hosts. They may be set
        anew; ports that are in neither are forgotten.
    lease: exponent of a generation's microseconds.
    """

    def __init__(self, links: int, hosts: int, lease: int) -> None:
        self.links, self.hosts, self.lease = links, hosts, lease
        # By state: ports of the newest generation, of the one before, and its number.
        self._held: dict[int, tuple[int, int, int]] = {}

    def at(self, state: int, now: int) -> int:
        """Returns the ports that get an update of a state."""
        fresh, earlier, _ = self._current(state, now)
        return fresh | earlier

    def states(self) -> Iterable[int]:
        """Returns the states that something is remembered of."""
        return list(self._held)

    def register(self, state: int, port: int, now: int) -> int:
        """A port subscribes, or refreshes; returns the links by which the register goes on."""
        mark = 1 << port - 1
        fresh, earlier, generation = self._current(state, now)
        self._held[state] = fresh | mark, earlier, generation
        return self.links & ~mark

    def remove(self, state: int, port: int, now: int) -> int:
        """A port is unsubscribed; returns the links by which the remove goes on."""
        mark = 1 << port - 1
        fresh, earlier, generation = self._current(state, now)
        fresh, earlier = fresh & ~mark, earlier & ~mark
        self._held[state] = fresh, earlier, generation
        return needless(fresh | earlier, self.links) & ~mark

    def forget(self, now: int) -> list[int]:
        """Drops states whose ports are all too old; returns them."""
        gone = [state for state in self._held if not self.at(state, now)]
        for state in gone:
            del self._held[state]
        return gone

    def _current(self, state: int, now: int) -> tuple[int, int, int]:
        generation = now >> self.lease
        fresh, earlier, last = self._held.get(state, (0, 0, generation))
        if generation != last:
            fresh, earlier = 0, fresh if generation == last + 1 else 0
        known = self.links | self.hosts
        return fresh & known, earlier & known, generation
