"""How far the hosts were told of a partition: where the summaries that are not sent yet begin, and
what they say by now.

A batch tells the hosts that are owed word of some notifications, and all every now and then: where
a host gets few, a summary a batch would cost more than they do. So a summary of a host begins where
its last one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Tally = tuple[int, int, int]
"""What a summary says of its range: notifications, the last key, and the digest."""


class Told(NamedTuple):
    """until: the offset at which the last batch ended. since: where the next summary of a host
    begins, but for those of ``later``: by offset, those that were told up to there since. owed: by
    host, what its next summary says of the range up to ``until``, where it says anything."""

    until: int
    since: int
    later: Mapping[int, Sequence[str]]
    owed: Mapping[str, Tally]

    @classmethod
    def all(cls, until: int) -> Told:
        """Returns that all hosts were told up to an offset."""
        return cls(until, until, {}, {})

    @property
    def whole(self) -> bool:
        """All hosts were told up to where the last batch ended."""
        return self.since == self.until

    def after(self, until: int, hosts: Collection[str], owed: Mapping[str, Tally]) -> Told:
        """Returns how far they were told once a batch has told these hosts up to where it ended,
        and others are owed so much from then on, whatever they were owed before."""
        told = frozenset(hosts)
        left = {at: [host for host in some if host not in told] for at, some in self.later.items()}
        later = {at: some for at, some in left.items() if some}
        still = {host: tally for host, tally in self.owed.items() if host not in told}
        return Told(
            until, self.since, later | ({until: sorted(told)} if told else {}), {**still, **owed}
        )

    def begins(self, places: Mapping[str, int]) -> NDArray[np.int64]:
        """Returns where the next summary of each host begins: int64[h], h its place."""
        found = np.full(len(places), self.since)
        for at, hosts in self.later.items():
            found[[places[host] for host in hosts if host in places]] = at
        return found

    def owes(self, places: Mapping[str, int]) -> tuple[NDArray[Any], ...]:
        """Returns what the next summary of each host says of the range up to ``until``:
        notifications int64[h], last key and digest uint64[h]."""
        found = np.zeros(len(places), np.int64), *np.zeros((2, len(places)), np.uint64)
        for host, tally in self.owed.items():
            if host in places:
                for array, value in zip(found, tally, strict=True):
                    array[places[host]] = value
        return found

    def packed(self) -> Any:
        """Returns it as JSON has it: a number, where all were told."""
        return self.until if self.whole else self

    @classmethod
    def unpacked(cls, held: Any) -> Told:
        """Reads what `packed` returned, and JSON's text of it. Raises ValueError, TypeError and the
        like for anything else."""
        if isinstance(held, int):
            return cls.all(held)
        until, since, later, owed = held
        tallies = {
            str(host): (int(count), int(last), int(digest))
            for host, (count, last, digest) in owed.items()
        }
        hosts = {int(at): [*map(str, some)] for at, some in later.items()}
        return cls(int(until), int(since), hosts, tallies)


class Telling:
    """What a task is to tell hosts, which whatever makes its records shares with it.

    told: how far they are told before the task, by partition, where that is known. everyone: all
    are told of a partition, else those that are owed word of enough notifications.
    """

    def __init__(self, told: Mapping[int, Told], everyone: bool = True) -> None:
        self.told = dict(told)
        self.everyone = everyone
        #: Partitions that the task has, even if no record of theirs comes.
        self.partitions: set[int] = set()
        self._after: Callable[[int], Told | None] | None = None

    def reads(self, partition: int, told: Told | None = None) -> None:
        """Takes that the task has a partition; ``told``: of it, where that was not known before."""
        self.partitions.add(partition)
        if told is not None:
            self.told[partition] = told

    def after(self, partition: int) -> Told | None:
        """Returns how far hosts are told of a partition with the summaries of all records that the
        task has so far; None if nobody knows."""
        return self.told.get(partition) if self._after is None else self._after(partition)

    def ask(self, after: Callable[[int], Told | None]) -> None:
        """Has `after` asked of what makes the summaries."""
        self._after = after
