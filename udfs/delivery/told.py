"""How far the hosts were told of a partition: where the summaries that are not sent yet begin.

A batch tells the hosts that it had a notification for, and all every now and then. So a summary of
a host begins where its last one ended, and nothing between that and the batch was for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Told(NamedTuple):
    """until: the offset at which the last batch ended. since: where the next summary of a host
    begins, but for those of ``later``: by offset, those that were told up to there since."""

    until: int
    since: int
    later: Mapping[int, Sequence[str]]

    @classmethod
    def all(cls, until: int) -> Told:
        """Returns that all hosts were told up to an offset."""
        return cls(until, until, {})

    @property
    def whole(self) -> bool:
        """All hosts were told up to where the last batch ended."""
        return self.since == self.until

    def after(self, until: int, hosts: Collection[str]) -> Told:
        """Returns how far they were told once a batch has told these hosts up to where it ended."""
        told = frozenset(hosts)
        left = {at: [host for host in some if host not in told] for at, some in self.later.items()}
        later = {at: some for at, some in left.items() if some}
        return Told(until, self.since, later | ({until: sorted(told)} if told else {}))

    def begins(self, places: Mapping[str, int]) -> NDArray[np.int64]:
        """Returns where the next summary of each host begins: int64[h], h its place."""
        found = np.full(len(places), self.since)
        for at, hosts in self.later.items():
            found[[places[host] for host in hosts if host in places]] = at
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
        until, since, later = held
        return cls(
            int(until), int(since), {int(at): [*map(str, hosts)] for at, hosts in later.items()}
        )


class Telling:
    """What a task is to tell hosts, which whatever makes its records shares with it.

    told: how far they are told before the task, by partition, where that is known. everyone: all
    are told of a partition, else those that it has a notification for.
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
