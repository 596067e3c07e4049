"""Multicast groups: one number for each distinct set of two or more ports, which it keeps."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

FIRST_GROUP = 1
"""Group 0 is none, to a switch."""

Ports = tuple[int, ...]


@dataclass(frozen=True)
class GroupChange:
    """Groups to make and groups to take away, by number. No number is in both."""

    added: dict[int, Ports]
    removed: dict[int, Ports]


class Groups:
    """Numbers of sets of ports. A set keeps its number as long as some leaf needs it.

    Leaves with equal sets share a number, whatever else they do; one port needs no group.
    A number that becomes free is given away from the next update on, so that no switch sees one
    number mean two things within a change.
    """

    def __init__(self) -> None:
        self._numbers: dict[Ports, int] = {}
        self._free: list[int] = []
        self._next = FIRST_GROUP

    @property
    def numbers(self) -> Mapping[Ports, int]:
        """Number of each set."""
        return MappingProxyType(self._numbers)

    def update(self, needed: Iterable[Ports]) -> GroupChange:
        """Have groups for exactly the sets ``needed`` (each sorted; repeats are one)."""
        wanted = dict.fromkeys(ports for ports in needed if len(ports) > 1)
        new = [ports for ports in wanted if ports not in self._numbers]
        return self.change(new, [ports for ports in self._numbers if ports not in wanted])

    def change(self, new: Iterable[Ports], gone: Iterable[Ports]) -> GroupChange:
        """Have groups for sets of two or more ports that had none, and no more for those gone."""
        added = {self._take(): ports for ports in new}
        removed = {self._numbers.pop(ports): ports for ports in gone}
        for number in removed:
            heapq.heappush(self._free, number)
        self._numbers |= {ports: number for number, ports in added.items()}
        return GroupChange(added, removed)

    def _take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1


class LeafGroups:
    """Groups for the leaves of a filter, by their receivers; an edit costs the leaves it touches.

    ``ports``: ports of receivers; a decimal number is a port itself. Receivers that are at no port
    are in no group.
    """

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = dict(ports)
        self._groups = Groups()
        self._held: dict[int, Ports] = {}
        self._leaves: Counter[Ports] = Counter()

    @property
    def numbers(self) -> Mapping[Ports, int]:
        """Number of each set of ports (ascending), as ``p4_entries.entries`` takes them."""
        return self._groups.numbers

    def update(self, gone: Iterable[int], now: Mapping[int, Iterable[str]]) -> GroupChange:
        """Follow leaves: states of those that are no more, receivers of new and changed ones."""
        touched: dict[Ports, None] = {}
        for state in (*gone, *now):
            before = self._held.pop(state, ())
            if before:
                self._leaves[before] -= 1
                touched[before] = None
        for state, receivers in now.items():
            found = {port_of(name, self._ports) for name in receivers}
            ports = tuple(sorted(port for port in found if port is not None))
            if len(ports) > 1:
                self._held[state] = ports
                self._leaves[ports] += 1
                touched[ports] = None
        known = self._groups.numbers
        new = [ports for ports in touched if self._leaves[ports] and ports not in known]
        lost = [ports for ports in touched if not self._leaves[ports]]
        for ports in lost:
            del self._leaves[ports]
        return self._groups.change(new, [ports for ports in lost if ports in known])


def port_of(receiver: str, ports: Mapping[str, int]) -> int | None:
    """The port that leads to a receiver, or that is one; None if there is none."""
    port = ports.get(receiver)
    if port is None and receiver.isdecimal() and len(receiver) < 6:
        port = int(receiver)
    return port
