"""Batches as the ledger has them, in windows of offsets: what is proved at a time."""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import itertools
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stackcast.lab.proof.timeline import keeps_state
from stackcast.lab.proof.verification import Batch
from stackcast.udfs.messages.sequence import Topic, session_id


@dataclass(frozen=True)
class Recorded:
    """A batch as the ledger has it.

    cut_off: subscribers that no link led to, who get nothing. packets: records that it says it
    read, None where nobody counted. records: the same by partition.
    """

    batch: Batch
    versions: Mapping[str, int] = field(default_factory=dict)
    cut_off: frozenset[str] = frozenset()
    packets: int | None = None
    records: Mapping[int, int] = field(default_factory=dict)


def with_state(recorded: Sequence[Recorded], since: int) -> list[Recorded]:
    """Returns the batches of which each record counts, because rules keep state.

    Args:
        recorded: the batches of the ledger, in their order.
        since: number of the first batch that is looked at. The state before it is the result of all
            batches since rules last kept none.
    """
    keep_state: dict[int, bool] = {}
    found: list[Recorded] = []
    for one in recorded:
        rules = one.batch.rules
        if id(rules) not in keep_state:
            keep_state[id(rules)] = any(map(keeps_state, rules))
        if keep_state[id(rules)]:
            found.append(one)
        elif one.batch.batch_id < since:
            found.clear()
    return found if any(one.batch.batch_id >= since for one in found) else []


class Takers:
    """Tells which batch took an offset: of two that did, which is a fault of the ledger, the last.

    Batches are known by their places in ``recorded``, as a new checkpoint numbers them anew.
    """

    def __init__(self, recorded: Sequence[Recorded], topic: Topic) -> None:
        spans: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for place, one in enumerate(recorded):
            for partition, (start, until) in one.batch.offsets.items():
                if start < until:
                    spans[partition].append((start, until, place))
        self._partitions = {session_id(topic, partition): partition for partition in spans}
        self._pieces = {partition: _flat(taken) for partition, taken in spans.items()}

    def partition(self, session: bytes) -> int | None:
        """Returns the partition of a session, None where no batch took of it."""
        return self._partitions.get(session)

    def place(self, partition: int, offset: int) -> int | None:
        """Returns the place in ``recorded`` of the batch that took an offset, None if none did."""
        starts, untils, places = self._pieces[partition]
        at = bisect.bisect_right(starts, offset) - 1
        return places[at] if at >= 0 and offset < untils[at] else None


def _flat(spans: list[tuple[int, int, int]]) -> tuple[array[int], array[int], array[int]]:
    """Spans (start, until, place) that may overlap, as some that do not, ascending; where two
    overlap the greater place has it."""
    spans.sort()
    borders = sorted({border for start, until, _ in spans for border in (start, until)})
    columns = array("q"), array("q"), array("q")
    open_: list[tuple[int, int]] = []  # (-place, until)
    at = 0
    for begin, end in itertools.pairwise(borders):
        while at < len(spans) and spans[at][0] <= begin:
            heapq.heappush(open_, (-spans[at][2], spans[at][1]))
            at += 1
        while open_ and open_[0][1] <= begin:
            heapq.heappop(open_)
        if open_:
            for column, value in zip(columns, (begin, end, -open_[0][0]), strict=True):
                column.append(value)
    return columns


@dataclass(frozen=True)
class Window:
    """Offsets of one partition, and the batches that took them.

    recorded: those, in their order, and those between them. first, last: their places among all on
    the ledger; the batch at ``last`` may go on in the next window.
    """

    partition: int
    start: int
    until: int
    first: int
    last: int
    recorded: Sequence[Recorded]

    def batches(self) -> list[Batch]:
        """Returns the batches, with their offsets of this window alone; neighbours that differ in
        nothing else are one."""
        found: list[tuple[Batch, int, int]] = []
        at = self.start
        for one in self.recorded:
            begin, end = one.batch.offsets.get(self.partition, (at, at))
            begin, end = max(begin, self.start), min(end, self.until)
            if begin >= end:
                begin = end = at
            if found and begin == at and _alike(found[-1][0], one.batch):
                found[-1] = (*found[-1][:2], end)
            else:
                found.append((one.batch, begin, end))
            at = end
        return [
            dataclasses.replace(batch, offsets={self.partition: (begin, end)})
            for batch, begin, end in found
        ]


def _alike(one: Batch, other: Batch) -> bool:
    """Whether the same holds in both batches."""
    return (
        one.rules is other.rules
        and one.registry is other.registry
        and one.announced is other.announced
        and one.sender is other.sender
    )


def windows(recorded: Sequence[Recorded], size: int) -> Iterator[Window]:
    """Yields windows of about ``size`` offsets, one partition after another, ascending.

    A border may be inside a batch. What was taken twice is in one window, however large.
    """
    for partition in sorted({p for one in recorded for p in one.batch.offsets}):
        spans = [
            (place, *one.batch.offsets[partition])
            for place, one in enumerate(recorded)
            if partition in one.batch.offsets
        ]
        begin, first = min(start for _, start, _ in spans), 0
        end = max(until for _, _, until in spans)
        for cut, place in _cuts(spans, begin, end, size):
            yield Window(partition, begin, cut, first, place, recorded[first : place + 1])
            begin, first = cut, place
        last = spans[-1][0]
        yield Window(partition, begin, end, first, last, recorded[first : last + 1])


def _cuts(
    spans: Sequence[tuple[int, int, int]], at: int, end: int, size: int
) -> Iterator[tuple[int, int]]:
    """Offsets that no batch before took from, and none after up to; with the place of the batch
    there. spans: (place, start, until) in the order of the ledger."""
    # The first offset that is taken later, after each span.
    following = [*itertools.accumulate((start for _, start, _ in reversed(spans)), min)][-2::-1]
    taken = at
    for (place, start, until), later in zip(spans, [*following, end], strict=True):
        while (cut := max(at + size, start, taken)) <= min(until, later) and cut < end:
            yield cut, place
            at = cut
        taken = max(taken, until)
