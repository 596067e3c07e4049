"""Postings: terms listed by a value that they ask for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.matching.lookup import hashed
from stackcast.udfs.filters.predicate_index.terms import FlatTerms, ranges

_NEVER = 66
"""Above the bits of any width."""


def postings(
    flat: FlatTerms, row: NDArray[np.int32], chosen: NDArray[np.int64], at: NDArray[np.int64]
) -> tuple[Any, ...]:
    """Returns the tables of terms as ``kernels.match_postings`` takes them.

    ``row``: of the field of each name, -1 for the type of the message. ``chosen``: terms, one at
    least. ``at``: of each the predicate that it hangs on, which asks for single values.
    """
    lane = np.where(row < 0, np.count_nonzero(row >= 0), row).astype(np.int32)
    low, high = flat.hulls()
    span = high - low
    tested = _narrowest(flat, span, chosen, at)
    # A predicate of several intervals is tested by the first and the last value, then exactly.
    without = np.zeros(len(flat.field), np.bool_)
    without[at] = True
    without[tested[np.diff(flat.interval)[tested] == 1]] = True
    # A predicate of several values hangs the term on each of them.
    intervals, sizes = ranges(flat.interval, at)
    of, value = np.repeat(np.arange(len(chosen)), sizes), flat.low[intervals]
    on, mixed = lane[flat.field[at[of]]], hashed(value)
    # By field and hash, 16 bits at a time: those are sorted by radix.
    parts = (mixed >> np.uint64(32), mixed >> np.uint64(48), on)
    order = np.lexsort([part.astype(np.uint16) for part in parts])
    of, value, on, mixed = of[order], value[order], on[order], mixed[order]
    firsts = np.flatnonzero(np.diff(on, prepend=-1))
    tables, shifts = [], []
    for first, end in zip(firsts, [*firsts[1:], len(of)], strict=True):
        # Places twice as many as values at least.
        bits = (2 * int(np.count_nonzero(np.diff(mixed[first:end]))) + 1).bit_length()
        shifts.append(64 - bits)
        place = (mixed[first:end] >> np.uint64(64 - bits)).astype(np.int64)
        tables.append(first + np.searchsorted(place, np.arange((1 << bits) + 1)))
    terms, tested = flat.select(chosen[of], without), tested[of]
    begin = np.concatenate(tables).astype(np.int32)
    return (
        on[firsts],
        np.cumsum([0, *map(len, tables)]),
        np.array(shifts, np.uint64),
        begin,
        value,
        terms.outcome,
        lane[flat.field[tested]],
        low[tested],
        span[tested],
        terms.predicate.astype(np.int32),
        lane[terms.field],
        terms.interval.astype(np.int32),
        terms.low,
        terms.high - terms.low,
        np.int64(np.diff(begin).max()),
    )


def _narrowest(
    flat: FlatTerms, span: NDArray[np.uint64], terms: NDArray[np.int64], at: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the predicate of each term that lets least through, by powers of two, and that in
    ``at`` only where there is no other."""
    rank = np.frexp(span.astype(np.float64))[1].astype(np.int64)
    rank[at] = _NEVER
    predicates, sizes = ranges(flat.predicate, terms)
    firsts = np.cumsum(sizes) - sizes
    ranked = np.minimum.reduceat(rank[predicates] << 32 | predicates, firsts)
    narrowest: NDArray[np.int64] = ranked & 0xFFFFFFFF
    return narrowest
