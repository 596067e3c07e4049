"""Rows of the compiled form, laid out so that a state and a value find their row in a few reads.

A *node* is a state that reads a field; its rows become *segments*: the start of each, and the code
that follows there, the default row in the gaps. The span in which a node's segments differ is cut
into 2 to 4 *buckets* a segment, all of 2^shift values; a bucket knows the segment at its start, so
that mostly no, sometimes one segment is left to compare with, and never more than a binary
search of them where constants crowd. Nodes with exact rows that crowd are laid out by a hash of
the value, which is a one-to-one map of 64 bits, so the same segments and buckets serve.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.tables import ABSENT, DEFAULT, LPM

__all__ = ["HASH_FACTOR", "HASH_SHIFT", "Lookup", "build", "hashed"]

HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
HASH_SHIFT = np.uint64(32)

_LAST = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)

_CROWD = 2
"""Boundaries in one bucket that an exact row at most makes by itself: its value, and the next."""

_FAR_SHIFT = 4
_FAR_SPAN = np.uint64(4)
"""One boundary in 2^4 may be left out if the span of the others is 2^4 times smaller."""


@dataclass(frozen=True)
class Lookup:
    """Holds arrays for n nodes, s segments and b buckets (of all nodes together).

    A *code* (int32) is the place of an event: a node (0 and more) or ``~leaf``. By node: ``lane``
    (int32, row of the values), ``by_hash`` (bool), ``base`` and ``shift`` (uint64), ``last``
    (uint64: number of its last bucket), ``begin`` (int64: its first bucket), ``absent`` (int32:
    code for events that lack the field). ``bucket`` (int32): segment at the bucket's start; one
    more bucket ends each node's. ``low`` (uint64; two more
    stand at the end) and ``following`` (int32, a code) by segment.
    """

    lane: NDArray[np.int32]
    by_hash: NDArray[np.bool_]
    base: NDArray[np.uint64]
    shift: NDArray[np.uint64]
    last: NDArray[np.uint64]
    begin: NDArray[np.int64]
    absent: NDArray[np.int32]
    bucket: NDArray[np.int32]
    low: NDArray[np.uint64]
    following: NDArray[np.int32]

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Returns all of them, in the order above."""
        return tuple(getattr(self, part.name) for part in fields(self))

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays())


def hashed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spreads values of a pattern, such as texts padded with blanks, by a one-to-one map."""
    mixed: NDArray[np.uint64] = (values ^ (values >> HASH_SHIFT)) * HASH_FACTOR
    return mixed


def build(rows: NDArray[np.void], code: NDArray[np.int32]) -> tuple[Lookup, NDArray[np.int64]]:
    """Lays out ``rows``: ENTRY rows of all fields but the message type, in any order.

    ``code``: int32 by state, filled in here for the states that have rows; the others are the
    caller's. Also returns the field (index in the compiled form) of each node; nodes are numbered
    by field, then state.
    """
    rows = rows[np.lexsort((rows["low"], rows["state"], rows["field"]))]
    starts = np.ones(len(rows), bool)
    starts[1:] = (np.diff(rows["state"]) != 0) | (np.diff(rows["field"]) != 0)
    node = np.cumsum(starts) - 1
    first = np.flatnonzero(starts)
    count = len(first)
    code[rows["state"][first]] = np.arange(count)
    following = code[rows["next"]]
    kind = rows["kind"]

    default = np.full(count, -1, np.int32)
    default[node[kind == DEFAULT]] = following[kind == DEFAULT]
    maximum = np.full(count, _LAST)
    maximum[node[kind == DEFAULT]] = rows["high"][kind == DEFAULT]
    absent = default.copy()
    absent[node[kind == ABSENT]] = following[kind == ABSENT]

    kept = (kind != DEFAULT) & (kind != ABSENT)
    node, low, high, following = node[kept], rows["low"][kept], rows["high"][kept], following[kept]
    nesting = np.zeros(count, bool)
    nesting[node[kind[kept] == LPM]] = True
    if nesting.any():
        node, low, high, following = _flat(nesting, node, low, high, following)

    lows, follows, of = _segments(default, maximum, node, low, high, following)
    places = _buckets(lows, of, count)
    # Only where every row is one value can a hash keep the rows apart.
    single = ~nesting
    single[node[low != high]] = False
    by_hash = single & (places.crowd > _CROWD)
    if by_hash.any():
        mixed = by_hash[node]
        maximum[by_hash] = _LAST
        low, high = np.where(mixed, hashed(low), low), np.where(mixed, hashed(high), high)
        order = np.lexsort((low, node))
        lows, follows, of = _segments(
            default, maximum, node[order], low[order], high[order], following[order]
        )
        places = _buckets(lows, of, count)
    lookup = Lookup(
        lane=rows["field"][first].astype(np.int32) - 1,
        by_hash=by_hash,
        base=places.base,
        shift=places.shift,
        last=places.last,
        begin=places.begin,
        absent=absent,
        bucket=places.bucket,
        low=np.concatenate((lows, np.full(2, _LAST))),
        following=follows,
    )
    return lookup, rows["field"][first].astype(np.int64)


_Rows = tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int32]]


def _flat(
    nesting: NDArray[np.bool_],
    node: NDArray[np.int64],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    following: NDArray[np.int32],
) -> _Rows:
    """Makes rows of the nodes ``nesting``, of which the shortest with a value wins, disjoint."""
    nested = nesting[node]
    order = np.lexsort((~high[nested], low[nested], node[nested]))
    flat: list[tuple[int, int, int, int]] = []
    around: list[tuple[int, int, int, int]] = []  # rows that hold the place, the widest first
    place = 0

    def close(upto: int) -> None:
        """Writes out the parts of the rows around from ``place`` to before ``upto``."""
        nonlocal place
        while around and place < upto:
            at, _, end, follows = around[-1]
            if place <= end:
                flat.append((at, place, min(end, upto - 1), follows))
                place = min(end, upto - 1) + 1
            if place > end:
                around.pop()

    current = -1
    columns = (node[nested][order], low[nested][order], high[nested][order])
    for row in zip(*(c.tolist() for c in columns), following[nested][order].tolist(), strict=True):
        if row[0] != current:
            close(1 << 64)
            around.clear()
            current, place = row[0], 0
        close(row[1])
        place = row[1]
        around.append(row)
    close(1 << 64)

    made = list(zip(*flat, strict=True))
    nodes = np.concatenate((node[~nested], np.array(made[0], np.int64)))
    lows = np.concatenate((low[~nested], np.array(made[1], np.uint64)))
    highs = np.concatenate((high[~nested], np.array(made[2], np.uint64)))
    follows = np.concatenate((following[~nested], np.array(made[3], np.int32)))
    order = np.lexsort((lows, nodes))
    return nodes[order], lows[order], highs[order], follows[order]


def _segments(
    default: NDArray[np.int32],
    maximum: NDArray[np.uint64],
    node: NDArray[np.int64],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    following: NDArray[np.int32],
) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int64]]:
    """Start, follower and node of each segment; every node's first starts at 0.

    Rows are sorted by node and low, and disjoint; ``maximum``: greatest value at each node.
    """
    count = len(default)
    # Behind a row is a gap, unless the field ends or the next row of the node starts there.
    gap = high < maximum[node]
    gap[:-1] &= (node[1:] != node[:-1]) | (low[1:] != high[:-1] + _ONE)
    has_zero = np.zeros(count, bool)
    has_zero[node[low == 0]] = True
    bare = np.flatnonzero(~has_zero)
    nodes = np.concatenate((bare, node, node[gap]))
    lows = np.concatenate((np.zeros(len(bare), np.uint64), low, high[gap] + _ONE))
    follows = np.concatenate((default[bare], following, default[node[gap]]))
    order = np.lexsort((lows, nodes))
    nodes, lows, follows = nodes[order], lows[order], follows[order]
    kept = np.ones(len(nodes), bool)
    kept[1:] = (nodes[1:] != nodes[:-1]) | (follows[1:] != follows[:-1])
    return lows[kept], follows[kept], nodes[kept]


@dataclass(frozen=True)
class _Places:
    base: NDArray[np.uint64]
    shift: NDArray[np.uint64]
    last: NDArray[np.uint64]
    begin: NDArray[np.int64]
    bucket: NDArray[np.int32]
    crowd: NDArray[np.int64]


def _buckets(low: NDArray[np.uint64], of: NDArray[np.int64], count: int) -> _Places:
    """Returns the buckets of each node's segments, and the most boundaries in one bucket of it."""
    size = np.bincount(of, minlength=count)
    first = np.cumsum(size) - size
    several = size > 1
    base = np.zeros(count, np.uint64)
    base[several] = low[first[several] + 1] - _ONE
    # A few constants far above the others share the last bucket rather than widen all.
    span, most = (
        low[first + size - 1 - spared] - np.minimum(base, low[first + size - 1 - spared])
        for spared in (0, size >> _FAR_SHIFT)
    )
    span = np.where(most < span >> _FAR_SPAN, most, span)
    # Rounding to a double may say one bit more: then there are half as many buckets.
    span_bits = np.frexp(span.astype(np.float64))[1].astype(np.int64)
    wanted_bits = np.frexp((4 * size - 1).astype(np.float64))[1].astype(np.int64)
    shift = np.maximum(span_bits - wanted_bits, 0).astype(np.uint64)
    last = span >> shift
    buckets = last.astype(np.int64) + 2
    begin = np.cumsum(buckets) - buckets
    inner = np.ones(len(low), bool)
    inner[first] = False
    node = of[inner]
    offset = low[inner] - base[node]
    # The first bucket at whose start the segment has begun.
    ahead = (offset >> shift[node]) + ((offset & ((_ONE << shift[node]) - _ONE)) != 0)
    ahead = np.minimum(ahead, last[node] + _ONE)
    place = begin[node] + ahead.astype(np.int64)
    begun = np.bincount(place, minlength=int(buckets.sum()))
    owner = np.repeat(np.arange(count), buckets)
    bucket = (np.cumsum(begun) + owner).astype(np.int32)
    crowd = np.maximum.reduceat(begun, begin) if count else begun
    return _Places(base, shift, last, begin, bucket, crowd)
