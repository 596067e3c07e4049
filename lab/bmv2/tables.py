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
        """The row for a key, ``()`` if there is none."""
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
        tests = [
            [
                _masked(self._kinds[at], self._widths[at], condition)
                for at, condition in zip(self._other, each.conditions, strict=True)
            ]
            for each in rows
        ]

        def search(values: tuple[int, ...]) -> Row | None:
            for each, conditions in zip(rows, tests, strict=True):
                for value, (mask, low, high) in zip(values, conditions, strict=True):
                    if not low <= value & mask <= high:
                        break
                else:
                    return each.row
            return None

        return search


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
