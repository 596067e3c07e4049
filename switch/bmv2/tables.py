"""Match tables as they are looked up: by hash where all fields are exact, by rank otherwise.

What a lookup gives is a row: ``(number of the action, parameters..., cell if counted)``;
a cell is ``[packets, bytes]``.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any

Row = tuple[Any, ...]
Condition = tuple[int, int]
# Keys whose result a ranked table remembers.
_MEMO = 1 << 16


class ExactTable:
    """Rows by key: an integer, or a tuple of them if there are several fields."""

    def __init__(self) -> None:
        self.rows: dict[Hashable, Row] = {}
        self.get: Callable[[Hashable], Row | None] = self.rows.get

    def insert(self, match: tuple[Condition, ...], rank: int, row: Row) -> None:
        self.rows[_key(tuple(value for value, _ in match))] = row

    def remove(self, match: tuple[Condition, ...], rank: int) -> None:
        """A row that is not there is no fault: two entries may have been one match."""
        self.rows.pop(_key(tuple(value for value, _ in match)), None)

    def clear(self) -> None:
        self.rows.clear()


def _key(values: tuple[int, ...]) -> Hashable:
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True, slots=True)
class _Ranked:
    """``conditions``: one a field that is not exact. The lowest ``rank`` wins."""

    rank: tuple[int, int]
    conditions: tuple[Condition, ...]
    row: Row


class RankedTable:
    """Rows whose fields are of ``kinds`` (``exact``, ``lpm``, ``ternary``, ``optional``, ``range``)
    and ``widths``.

    A condition is ``(value, value)`` for exact, ``(value, prefix length)`` for lpm, ``(value,
    mask)`` for ternary, ``(low, high)`` for range. The row of the highest ``priority`` wins, then
    the one that came first; an lpm table is given prefix lengths as priorities.

    ``get`` gives what `find` found before for a key, None if it has not been asked.
    """

    def __init__(self, kinds: tuple[str, ...], widths: tuple[int, ...]) -> None:
        self._kinds = kinds
        self._widths = widths
        self._exact = [at for at, kind in enumerate(kinds) if kind == "exact"]
        self._other = [at for at, kind in enumerate(kinds) if kind != "exact"]
        self._buckets: dict[tuple[int, ...], dict[Hashable, _Ranked]] = {}
        self._ready: dict[tuple[int, ...], Callable[[tuple[int, ...]], Row | None]] = {}
        self._arrivals = count()
        self._memo: dict[Hashable, Row] = {}
        self.get: Callable[[Hashable], Row | None] = self._memo.get

    def find(self, key: Any) -> Row:
        """Returns the row for a key, ``()`` if there is none."""
        values = key if isinstance(key, tuple) else (key,)
        bucket = tuple([values[at] for at in self._exact])
        row: Row = ()
        if bucket in self._buckets:
            search = self._ready.get(bucket)
            if search is None:
                search = self._ready[bucket] = self._prepared(bucket)
            row = search(tuple([values[at] for at in self._other])) or ()
        if len(self._memo) >= _MEMO:
            self._memo.clear()
        self._memo[key] = row
        return row

    def insert(self, match: tuple[Condition, ...], priority: int, row: Row) -> None:
        bucket = tuple(match[at][0] for at in self._exact)
        conditions = tuple(match[at] for at in self._other)
        rows = self._buckets.setdefault(bucket, {})
        held = rows.get((conditions, priority))
        arrival = next(self._arrivals) if held is None else held.rank[1]
        rows[conditions, priority] = _Ranked((-priority, arrival), conditions, row)
        self._forget(bucket)

    def remove(self, match: tuple[Condition, ...], priority: int) -> None:
        """A row that is not there is no fault: two entries may have been one match."""
        bucket = tuple(match[at][0] for at in self._exact)
        rows = self._buckets.get(bucket, {})
        rows.pop((tuple(match[at] for at in self._other), priority), None)
        if not rows:
            self._buckets.pop(bucket, None)
        self._forget(bucket)

    def clear(self) -> None:
        self._buckets.clear()
        self._ready.clear()
        self._memo.clear()

    def _forget(self, bucket: tuple[int, ...]) -> None:
        self._ready.pop(bucket, None)
        self._memo.clear()

    def _prepared(self, bucket: tuple[int, ...]) -> Callable[[tuple[int, ...]], Row | None]:
        """A search among the rows of a bucket, which does not change until forgotten."""
        rows = sorted(self._buckets[bucket].values(), key=lambda each: each.rank)
        if len(self._other) == 1:
            at = self._other[0]
            spans = [_span(self._kinds[at], self._widths[at], each.conditions[0]) for each in rows]
            if None not in spans:
                return _by_intervals([span for span in spans if span is not None], rows)
        conditions = [
            tuple(
                _masked(self._kinds[at], self._widths[at], condition)
                for at, condition in zip(self._other, each.conditions, strict=True)
            )
            for each in rows
        ]
        if self._other and all(low == high for each in conditions for _, low, high in each):
            return _by_masks(conditions, [self._widths[at] for at in self._other], rows)
        return _one_by_one(conditions, rows)


def _masked(kind: str, width: int, condition: Condition) -> tuple[int, int, int]:
    """``(mask, low, high)``: it holds where ``low <= value & mask <= high``."""
    one, other = condition
    every = (1 << width) - 1
    if kind == "range":
        return every, one, other
    mask = every ^ (every >> other) if kind == "lpm" else other
    return mask, one & mask, one & mask


def _span(kind: str, width: int, condition: Condition) -> Condition | None:
    """The values that fulfil a condition, if they are neighbours."""
    mask, low, high = _masked(kind, width, condition)
    free = ~mask & ((1 << width) - 1)
    if free & (free + 1):
        return None
    return low, high | free


def _one_by_one(
    conditions: list[tuple[tuple[int, int, int], ...]], rows: list[_Ranked]
) -> Callable[[tuple[int, ...]], Row | None]:
    """Look at every row; ``rows`` are in the order of their ranks."""

    def search(values: tuple[int, ...]) -> Row | None:
        for each, tests in zip(rows, conditions, strict=True):
            for value, (mask, low, high) in zip(values, tests, strict=True):
                if not low <= value & mask <= high:
                    break
            else:
                return each.row
        return None

    return search


def _by_masks(
    conditions: list[tuple[tuple[int, int, int], ...]], widths: list[int], rows: list[_Ranked]
) -> Callable[[tuple[int, ...]], Row | None]:
    """One look by hash for all rows whose masks are the same; ``rows`` are in the order of their
    ranks, and each wants one value behind its masks.

    The field that most rows look at comes first: what it rules out is not looked for any further.
    """
    # Fields that no row looks at are left out; all but the first are one number, side by side.
    looks = [sum(each[at][0] > 0 for each in conditions) for at in range(len(widths))]
    first = looks.index(max(looks))
    fields = [(at, widths[at]) for at, count in enumerate(looks) if count and at != first]
    parts: dict[int, dict[int, dict[int, dict[int, int]]]] = {}
    for number, each in enumerate(conditions):
        mask = wanted = 0
        for at, width in fields:
            mask = mask << width | each[at][0]
            wanted = wanted << width | each[at][1]
        part = parts.setdefault(each[first][0], {}).setdefault(each[first][1], {})
        # Of equal matches the first one wins.
        part.setdefault(mask, {}).setdefault(wanted, number)
    # Each level by the best row of what is in it: rows came in the order of their ranks.
    ready = []
    for mask, by_value in parts.items():
        groups = {
            value: [(next(iter(held.values())), below, held.get) for below, held in part.items()]
            for value, part in by_value.items()
        }
        ready.append((next(iter(groups.values()))[0][0], mask, groups.get))
    results = [each.row for each in rows]
    nothing = len(rows)

    def search(values: tuple[int, ...]) -> Row | None:
        key = 0
        for at, width in fields:
            key = key << width | values[at]
        lead = values[first]
        winner = nothing
        for best, mask, part in ready:
            if best > winner:
                break
            for own, below, get in part(lead & mask, ()):
                if own > winner:
                    break
                found = get(key & below)
                if found is not None and found < winner:
                    winner = found
        return results[winner] if winner < nothing else None

    return search


def _by_intervals(
    spans: list[Condition], rows: list[_Ranked]
) -> Callable[[tuple[int, ...]], Row | None]:
    """Search by bisection; ``rows`` are in the order of their ranks."""
    starts: dict[int, list[int]] = {}
    for number, (low, high) in enumerate(spans):
        if low <= high:
            starts.setdefault(low, []).append(number)
            starts.setdefault(high + 1, [])
    bounds: list[int] = []
    winners: list[Row | None] = []
    open_: list[int] = []
    for bound in sorted(starts):
        for number in starts[bound]:
            heapq.heappush(open_, number)
        while open_ and spans[open_[0]][1] < bound:
            heapq.heappop(open_)
        bounds.append(bound)
        winners.append(rows[open_[0]].row if open_ else None)

    def search(values: tuple[int, ...]) -> Row | None:
        at = bisect_right(bounds, values[0])
        return winners[at - 1] if at else None

    return search
