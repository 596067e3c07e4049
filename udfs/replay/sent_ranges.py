"""An index of the ledger, from offsets to the batch that sent them, which grows with it.

Some 90 bytes a batch and partition, so that months of batches fit a process.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

#: In place of a sequence number where a batch sent nothing of a partition.
NOTHING = -1


class SentRange(NamedTuple):
    """Offsets [from_, until) of a partition that one batch read.

    first, last: sequence numbers that it sent first and last of [begin, end), the offsets that the
    batch read, or `NOTHING`; [from_, until) is less than these where a later batch read some of
    them again. started: microseconds since 1970. origin: a number for tables and settings that it
    was computed from. records: number of records in [begin, end).
    """

    from_: int
    until: int
    begin: int
    end: int
    first: int
    last: int
    batch: int
    started: int
    origin: int
    records: int


class Gap(NamedTuple):
    """One gap: offsets from ``from_`` on that no batch on record read.

    until: the beginning of the next batch, None at the end of the ledger. missing: there are
    batches in between that the ledger lacks, so that nobody knows what was sent; else nothing was.
    after: microseconds since 1970, when the batch behind the gap began.
    """

    from_: int
    until: int | None
    missing: bool
    after: int


class OffsetRange(NamedTuple):
    """Offsets [from_, until) of a partition that are computed in one go, from one origin."""

    partition: int
    from_: int
    until: int
    ranges: tuple[SentRange, ...]

    def records(self, begin: int, until: int) -> int | None:
        """Returns the number of records that batches read of offsets [begin, until); None unless
        these are whole batches."""
        inside = [each for each in self.ranges if begin < each.until and each.from_ < until]
        whole = all(each.from_ == each.begin and each.until == each.end for each in inside)
        if not inside or not whole or (inside[0].begin, inside[-1].end) != (begin, until):
            return None
        return sum(each.records for each in inside)

    @property
    def silent(self) -> bool:
        """True if nothing was sent of them."""
        return all(each.first == NOTHING for each in self.ranges)


class SentRanges:
    """Indexes the batches of one topic.

    Rows may come in any order; where two batches read the same offset, the one that started later
    counts, as after a checkpoint was begun anew.
    """

    def __init__(self) -> None:
        self._columns: dict[int, tuple[array[int], ...]] = {}
        self._batches: array[int] = array("q")
        self._started: array[int] = array("q")
        self._origins: array[int] = array("q")

    def __len__(self) -> int:
        return sum(len(columns[0]) for columns in self._columns.values())

    @property
    def partitions(self) -> list[int]:
        return sorted(self._columns)

    def batch(self, number: int, started: int, origin: int) -> None:
        """Adds the row of a batch."""
        at = bisect_left(self._batches, number)
        if at == len(self._batches) or self._batches[at] != number:
            self._batches.insert(at, number)
            self._started.insert(at, started)
            self._origins.insert(at, origin)
        elif started >= self._started[at]:
            self._started[at], self._origins[at] = started, origin

    def newest(self, number: int) -> tuple[int, int] | None:
        """Returns the start of the last batch of this number, and its origin; None if there is
        none."""
        at = bisect_left(self._batches, number)
        if at == len(self._batches) or self._batches[at] != number:
            return None
        return self._started[at], self._origins[at]

    def add(self, partition: int, new: SentRange) -> None:
        """Adds the offsets that a batch read of a partition; call `batch`, too."""
        columns = self._columns.setdefault(partition, tuple(array("q") for _ in SentRange._fields))
        start, until = columns[0], columns[1]
        if not start or new.from_ >= until[-1]:
            for column, value in zip(columns, new, strict=True):
                column.append(value)
            return
        first, last = bisect_right(until, new.from_), bisect_left(start, new.until)
        others = [self._range(columns, at) for at in range(first, max(first, last))]
        painted = _without_overlaps([*others, new])
        for at, column in enumerate(columns):
            column[first : max(first, last)] = array("q", [each[at] for each in painted])

    def cut(self, partition: int, begin: int, until: int) -> None:
        """Removes what batches have read of offsets [begin, until) of a partition."""
        columns = self._columns.get(partition)
        if columns is None:
            return
        first, last = bisect_right(columns[1], begin), bisect_left(columns[0], until)
        if first >= last:
            return
        head, tail = self._range(columns, first), self._range(columns, last - 1)
        kept = [head._replace(until=begin)] if head.from_ < begin else []
        kept += [tail._replace(from_=until)] if until < tail.until else []
        for at, column in enumerate(columns):
            column[first:last] = array("q", [each[at] for each in kept])

    def at(self, partition: int, offset: int) -> SentRange | Gap:
        """Returns the range that has an offset of a partition, or the gap that it is in."""
        columns = self._columns.get(partition)
        if columns is None:
            return Gap(offset, None, False, 0)
        at = bisect_right(columns[0], offset) - 1
        if at >= 0 and offset < columns[1][at]:
            return self._range(columns, at)
        if at + 1 == len(columns[0]):
            return Gap(offset, None, False, 0)
        before = columns[6][at] if at >= 0 else -1
        following = self._range(columns, at + 1)
        missing = not self._complete(before, following.batch)
        return Gap(offset, following.from_, missing, following.started)

    def last_sent(self) -> tuple[int, SentRange] | None:
        """Returns the newest range of which something was sent, after its partition; None if there
        is none."""
        newest: tuple[int, SentRange] | None = None
        for partition, columns in self._columns.items():
            first = columns[SentRange._fields.index("first")]
            at = next((at for at in reversed(range(len(first))) if first[at] != NOTHING), None)
            if at is None:
                continue
            found = self._range(columns, at)
            if newest is None or newest[1].started < found.started:
                newest = partition, found
        return newest

    def range_at(self, partition: int, offset: int, most: int, whole: bool = False) -> OffsetRange:
        """Returns offsets around one that a batch read, ``most`` at most, to be computed in one go.

        ``whole``: from the beginning of that batch on, whatever its length. Batches that follow are
        in it as long as they have the same origin and none is missing in between.
        """
        found = self.at(partition, offset)
        assert isinstance(found, SentRange)
        from_, until = found.from_, found.until
        if not whole:
            from_ += (offset - from_) // most * most
            until = min(until, from_ + most)
        ranges = [found]
        for each in self._following(partition, found):
            if until < ranges[-1].until or each.until - from_ > most:
                break
            ranges.append(each)
            until = each.until
        return OffsetRange(partition, from_, until, tuple(ranges))

    def _following(self, partition: int, found: SentRange) -> Iterator[SentRange]:
        columns = self._columns[partition]
        at = bisect_right(columns[0], found.from_)
        before = found
        while at < len(columns[0]):
            each = self._range(columns, at)
            whole = before.until == before.end and each.from_ == each.begin
            if each.origin != found.origin or not whole:
                return
            if each.batch <= before.batch or not self._complete(before.batch, each.batch):
                return
            yield each
            before = each
            at += 1

    def _complete(self, before: int, batch: int) -> bool:
        """Returns True if all batches after ``before`` and before ``batch`` are on record."""
        if batch <= before:  # of a checkpoint that was begun anew
            before = -1
        between = bisect_left(self._batches, batch) - bisect_right(self._batches, before)
        return between == batch - before - 1

    @staticmethod
    def _range(columns: tuple[array[int], ...], at: int) -> SentRange:
        return SentRange(*(column[at] for column in columns))


def _without_overlaps(ranges: list[SentRange]) -> list[SentRange]:
    """Returns ranges that do not overlap, in order: of each offset the one that started last."""
    found: list[SentRange] = []
    for new in sorted(ranges, key=lambda each: (each.started, each.batch)):
        kept: list[SentRange] = []
        for old in found:
            if old.until <= new.from_ or new.until <= old.from_:
                kept.append(old)
                continue
            if old.from_ < new.from_:
                kept.append(old._replace(until=new.from_))
            if new.until < old.until:
                kept.append(old._replace(from_=new.until))
        found = [*kept, new]
    return sorted(found)
