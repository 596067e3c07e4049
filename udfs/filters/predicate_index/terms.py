"""Terms of many rules as flat arrays, the form that an index is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.outcomes import Token
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.matching.lookup import hashed

_T = TypeVar("_T")

Told = tuple[Token, ...]
"""All that happens to the events of a term."""


@dataclass(frozen=True)
class FlatTerms:
    """Holds t terms with p predicates and n intervals; the parts of each follow one another.

    names: the fields, and cells of state, that predicates ask for. rule: int64[t]. outcome:
    int32[t], a number of ``outcomes``. predicate: int64[t + 1], by term its first predicate. field:
    int32[p], a number of ``names``. interval: int64[p + 1], by predicate its first interval. low,
    high: uint64[n], both included.
    """

    names: tuple[str, ...]
    outcomes: tuple[Told, ...]
    rule: NDArray[np.int64]
    outcome: NDArray[np.int32]
    predicate: NDArray[np.int64]
    field: NDArray[np.int32]
    interval: NDArray[np.int64]
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]

    def __len__(self) -> int:
        return int(self.outcome.size)

    def hulls(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Returns the first and the last value that satisfy each predicate."""
        if len(self.low) == len(self.field):
            return self.low, self.high
        first = self.interval[:-1]
        return np.minimum.reduceat(self.low, first), np.maximum.reduceat(self.high, first)

    @classmethod
    def of(cls, table: TermTable, first: int = 0) -> FlatTerms:
        """Flattens the terms of rules; ``first``: the number of the first rule."""
        names: dict[str, int] = {}
        rule: list[NDArray[np.int64]] = []
        outcome: list[NDArray[np.int32]] = []
        # By term the number of its predicates, by predicate that of its intervals.
        predicates: list[NDArray[np.int64]] = []
        intervals: list[NDArray[np.int64]] = []
        fields: list[NDArray[np.int32]] = []
        lows: list[NDArray[np.uint64]] = []
        highs: list[NDArray[np.uint64]] = []
        for block in table.blocks:
            count, width = len(block), len(block.names)
            numbers = [names.setdefault(name, len(names)) for name in block.names]
            rule.append(block.rule.astype(np.int64))
            outcome.append(table.outcome[block.rule])
            predicates.append(np.full(count, width))
            intervals.append(np.ones(count * width, np.int64))
            fields.append(np.tile(np.array(numbers, np.int32), count))
            for columns, bounds in ((block.lows, lows), (block.highs, highs)):
                if width:
                    bounds.append(np.column_stack(columns).reshape(-1).astype(np.uint64))
        terms = [term for term, _, _ in table.terms]
        rule.append(np.array([of for _, of, _ in table.terms], np.int64))
        outcome.append(np.array([number for _, _, number in table.terms], np.int32))
        predicates.append(np.array([len(term) for term in terms], np.int64))
        asked = [pair for term in terms for pair in term]
        fields.append(np.array([names.setdefault(name, len(names)) for name, _ in asked], np.int32))
        intervals.append(np.array([len(allowed) for _, allowed in asked], np.int64))
        held = [bound for _, allowed in asked for bound in allowed]
        lows.append(np.array([low for low, _ in held], np.uint64))
        highs.append(np.array([high for _, high in held], np.uint64))
        return cls(
            tuple(names),
            tuple(table.outcomes),
            _joined(rule, np.int64) + first,
            _joined(outcome, np.int32),
            _starts(_joined(predicates, np.int64)),
            _joined(fields, np.int32),
            _starts(_joined(intervals, np.int64)),
            _joined(lows, np.uint64),
            _joined(highs, np.uint64),
        )

    @classmethod
    def joined(cls, parts: Sequence[FlatTerms]) -> FlatTerms:
        """Returns all terms of the parts, one part after the other, with the names and outcomes
        that they use."""
        names: dict[str, int] = {}
        sets: dict[Told, int] = {}
        outcome, fields = [], []
        for part in parts:
            outcome.append(_numbered(part.outcomes, part.outcome, sets))
            fields.append(_numbered(part.names, part.field, names))
        return cls(
            tuple(names),
            tuple(sets),
            _joined([part.rule for part in parts], np.int64),
            _joined(outcome, np.int32),
            _starts(_joined([np.diff(part.predicate) for part in parts], np.int64)),
            _joined(fields, np.int32),
            _starts(_joined([np.diff(part.interval) for part in parts], np.int64)),
            _joined([part.low for part in parts], np.uint64),
            _joined([part.high for part in parts], np.uint64),
        )

    def select(
        self, terms: NDArray[np.int64], without: NDArray[np.bool_] | None = None
    ) -> FlatTerms:
        """Returns these terms in this order; ``without``: bool[p], predicates that are left out."""
        predicates, sizes = ranges(self.predicate, terms)
        if without is not None:
            left = _starts((~without[predicates]).astype(np.int64))
            ends = np.cumsum(sizes)
            predicates, sizes = predicates[~without[predicates]], left[ends] - left[ends - sizes]
        intervals, each = ranges(self.interval, predicates)
        return FlatTerms(
            self.names,
            self.outcomes,
            self.rule[terms],
            self.outcome[terms],
            _starts(sizes),
            self.field[predicates],
            _starts(each),
            self.low[intervals],
            self.high[intervals],
        )

    def alike(self) -> NDArray[np.int64]:
        """Returns numbers of the terms, int64[t]: those with one number have the same predicates,
        of whichever rules and outcomes."""
        intervals = hashed(hashed(self.low) + self.high)
        predicates = hashed(_sums(intervals, self.interval) + self.field.astype(np.uint64))
        found = np.unique(
            hashed(_sums(predicates, self.predicate)), return_index=True, return_inverse=True
        )
        first, number = found[1], found[2].astype(np.int64)
        one = self.select(first[number])
        for name in ("predicate", "field", "interval", "low", "high"):
            if not np.array_equal(getattr(one, name), getattr(self, name)):
                # Two that differ share a hash: then each is one of its own.
                return np.arange(len(self))
        return number


def _numbered(
    values: Sequence[_T], used: NDArray[np.int32], numbers: dict[_T, int]
) -> NDArray[np.int32]:
    """Returns ``used``, indexes of ``values``, by the ``numbers`` of those, which may be new."""
    there = np.zeros(len(values), np.bool_)
    there[used] = True
    if not numbers and there.all():
        numbers.update(zip(values, range(len(values)), strict=True))
        return used
    number = np.zeros(len(values), np.int32)
    for at in np.flatnonzero(there).tolist():
        number[at] = numbers.setdefault(values[at], len(numbers))
    return number[used]


def _sums(values: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns the sum of each range, as 64 bits hold it."""
    until = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=until[1:])
    sums: NDArray[np.uint64] = until[starts[1:]] - until[starts[:-1]]
    return sums


def _joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([*parts, np.empty(0, dtype)]).astype(dtype)


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def ranges(
    starts: NDArray[np.int64], chosen: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the members of the chosen ranges one after the other, and the size of each range."""
    sizes = starts[chosen + 1] - starts[chosen]
    ends = np.cumsum(sizes)
    offset = np.repeat(starts[chosen] - (ends - sizes), sizes)
    return offset + np.arange(int(ends[-1]) if len(ends) else 0), sizes
