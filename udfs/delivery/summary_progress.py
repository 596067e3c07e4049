"""Progress of the summaries of a partition: where each host's next summary begins, and what it
contains so far.

A batch sends summaries only to hosts with enough pending notifications, and from time to time to
all hosts. A summary to every host in every batch would cost more than the notifications of hosts
that receive few. Therefore the range of a summary begins where the previous one of its host ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Tally = tuple[int, int, int]
"""Content of a summary: number of notifications, last key and digest."""


class SummaryProgress(NamedTuple):
    """Summary progress of a partition after a batch.

    Attributes:
        until: offset at which the batch ended.
        start: offset at which the next summary of a host begins, unless ``later_starts`` has it.
        later_starts: by offset, the hosts whose next summary begins there.
        pending: by host, the content of its next summary for the range up to ``until``, if there
            are notifications in it.
    """

    until: int
    start: int
    later_starts: Mapping[int, Collection[str]]
    pending: Mapping[str, Tally]

    @classmethod
    def complete(cls, until: int) -> SummaryProgress:
        """Return the progress after summaries to all hosts up to an offset."""
        return cls(until, until, {}, {})

    @property
    def is_complete(self) -> bool:
        """True if all hosts have received summaries up to the end of the last batch."""
        return self.start == self.until

    def advanced(
        self, until: int, hosts: Collection[str], pending: Mapping[str, Tally]
    ) -> SummaryProgress:
        """Return the progress after another batch.

        Args:
            until: offset at which the batch ends.
            hosts: hosts to which it has sent summaries up to there.
            pending: new content of the next summaries of other hosts.
        """
        informed = frozenset(hosts)
        remaining = {
            offset: [host for host in names if host not in informed]
            for offset, names in self.later_starts.items()
        }
        starts = {offset: names for offset, names in remaining.items() if names}
        if informed:
            starts[until] = sorted(informed)
        unchanged = {host: tally for host, tally in self.pending.items() if host not in informed}
        return SummaryProgress(until, self.start, starts, {**unchanged, **pending})

    def starts(self, numbers: Mapping[str, int]) -> NDArray[np.int64]:
        """Return the offset at which the next summary of each host begins: int64[h].

        Args:
            numbers: by name, the number of a host in the result.
        """
        starts = np.full(len(numbers), self.start)
        for offset, hosts in self.later_starts.items():
            starts[[numbers[host] for host in hosts if host in numbers]] = offset
        return starts

    def tallies(self, numbers: Mapping[str, int]) -> tuple[NDArray[Any], ...]:
        """Return the content of the next summary of each host for the range up to ``until``.

        Args:
            numbers: by name, the number of a host in the results.

        Returns:
            Numbers of notifications int64[h], last keys uint64[h] and digests uint64[h].
        """
        tallies = np.zeros(len(numbers), np.int64), *np.zeros((2, len(numbers)), np.uint64)
        for host, tally in self.pending.items():
            if host in numbers:
                for array, value in zip(tallies, tally, strict=True):
                    array[numbers[host]] = value
        return tallies

    def packed(self) -> Any:
        """Return a value that JSON can represent: a single number if the progress is complete."""
        return self.until if self.is_complete else self

    @classmethod
    def unpacked(cls, value: Any) -> SummaryProgress:
        """Return the progress from a value of `packed`, or from its JSON.

        Raises:
            ValueError, TypeError, AttributeError: the value is something else.
        """
        if isinstance(value, int):
            return cls.complete(value)
        until, start, later_starts, pending = value
        tallies = {
            str(host): (int(count), int(last), int(digest))
            for host, (count, last, digest) in pending.items()
        }
        hosts = {int(offset): [*map(str, names)] for offset, names in later_starts.items()}
        return cls(int(until), int(start), hosts, tallies)


class SummaryAssignment(NamedTuple):
    """Summaries that the tasks of a batch send.

    Attributes:
        progress: by partition, the summary progress before the batch, if the driver knows it.
        everyone: whether the batch sends summaries to all hosts, or only to hosts with enough
            pending notifications.
    """

    progress: Mapping[int, SummaryProgress]
    everyone: bool = True


class SummarySender(Protocol):
    """The part of a task that sends its summaries, as the source of its records sees it."""

    def progress_after(self, partition: int) -> SummaryProgress | None:
        """Return the progress of a partition with the summaries of all records so far."""


class SummaryChannel:
    """The connection between the source of a task's records and the sender of its summaries.

    A task knows what it has read only when it ends. In real time, the next task waits for that, and
    continues both the records and the summaries of the partition:

                        claim(partition, progress)                claimed, before(partition)
        previous task ─▶ source of records ───────▶ SummaryChannel ───────▶ sender of summaries
        next task     ◀─ source of records ◀─────── SummaryChannel ◀─────── sender of summaries
                        progress_after(partition)                 connect(sender)

    A task without summaries has no sender. Its progress is then the one before it.

    Args:
        assignment: summaries that the task sends.
    """

    def __init__(self, assignment: SummaryAssignment) -> None:
        self.everyone = assignment.everyone
        self._progress = dict(assignment.progress)
        self._claimed: set[int] = set()
        self._sender: SummarySender | None = None

    def claim(self, partition: int, progress: SummaryProgress | None = None) -> None:
        """Note that the task reads a partition, even if no record of it arrives.

        Args:
            partition: number of the partition.
            progress: summary progress of the previous task, which the driver did not know.
        """
        self._claimed.add(partition)
        if progress is not None:
            self._progress[partition] = progress

    def progress_after(self, partition: int) -> SummaryProgress | None:
        """Return the progress with the summaries of all records that the task has read so far."""
        if self._sender is None:
            return self.before(partition)
        return self._sender.progress_after(partition)

    @property
    def claimed(self) -> frozenset[int]:
        """Partitions that the task reads, if its source has claimed them."""
        return frozenset(self._claimed)

    def before(self, partition: int) -> SummaryProgress | None:
        """Return the summary progress before the task, or None if it is unknown."""
        return self._progress.get(partition)

    def connect(self, sender: SummarySender) -> None:
        """Set the sender that `progress_after` asks."""
        self._sender = sender
