"""Multicast groups: one number for each distinct set of two or more ports, which it keeps."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

FIRST_GROUP = 1
"""Group 0 is none, to a switch."""

Ports = tuple[Hashable, ...]


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
        gone = {ports: n for ports, n in self._numbers.items() if ports not in wanted}
        added: dict[int, Ports] = {}
        for ports in wanted:
            if ports not in self._numbers:
                added[self._take()] = ports
        for ports, number in gone.items():
            del self._numbers[ports]
            heapq.heappush(self._free, number)
        self._numbers |= {ports: number for number, ports in added.items()}
        return GroupChange(added, {number: ports for ports, number in gone.items()})

    def _take(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1
