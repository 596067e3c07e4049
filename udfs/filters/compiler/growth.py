"""Other levels, or more tokens, for a pool that has diagrams already. Ids of inner nodes stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from udfs.filters.diagrams import walks
from udfs.filters.diagrams.diagrams import Diagrams, Moved
from udfs.filters.diagrams.pool import HEIGHT, NODES, ROWS, SETS
from udfs.filters.diagrams.segments import SegmentTree


def change_levels(
    diagrams: Diagrams, place: NDArray[np.int32], maxima: Sequence[int], optional: Sequence[bool]
) -> None:
    """Go over to the levels ``maxima`` and ``optional``, of which old level i is ``place[i]``.

    ``place`` ascends, but for -1 where no node of the pool tests the old level, which is dropped.
    What was optional stays so.
    """
    pool = diagrams.pool
    count = int(pool.counters[NODES])
    pool.node_level[:count] = place[pool.node_level[:count]]
    diagrams._pool = pool._replace(
        maxima=np.array(maxima, np.uint64), optional=np.array(optional, np.uint8)
    )
    _enter_again(diagrams)


def add_tokens(tree: SegmentTree, tokens: int) -> Moved:
    """Have room for at least ``tokens`` tokens. All leaves but nobody's change their ids."""
    diagrams = tree.diagrams
    pool = diagrams.pool
    count, rows = int(pool.counters[NODES]), int(pool.counters[ROWS])
    moved = np.arange(int(pool.counters[SETS]), dtype=np.int64)
    height = int(pool.counters[HEIGHT])
    whole = np.flatnonzero(pool.set_height[: len(moved)] == height)
    # Without the empty set, which is 0 at every height.
    whole = whole[whole > 0]
    while tokens > 64 << height:
        # A leaf becomes the left half of a set twice as wide.
        made = int(pool.counters[SETS])
        diagrams._resize(sets=made + len(whole))
        pool = diagrams.pool
        pool.set_key[made : made + len(whole)] = moved[whole].astype(np.uint64) << np.uint64(32)
        height += 1
        pool.set_height[made : made + len(whole)] = height
        moved[whole] = np.arange(made, made + len(whole))
        pool.counters[SETS] = made + len(whole)
    pool.counters[HEIGHT] = height
    diagrams._pool = pool._replace(set_stack=np.empty(4 * (height + 1), np.int64))
    diagrams._width = 1 << height
    diagrams.tokens = max(tokens, diagrams.tokens)
    diagrams._members.clear()
    result = Moved(np.arange(count, dtype=np.int32), (-1 - moved).astype(np.int32))
    pool.row_child[:rows] = result.of(pool.row_child[:rows])
    pool.node_absent[:count] = result.of(pool.node_absent[:count])
    pool.cache[:] = 0
    tree._tree = result.of(tree._tree)
    diagrams._resize(sets=int(pool.counters[SETS]))
    _enter_again(diagrams)
    return result


def _enter_again(diagrams: Diagrams) -> None:
    with np.errstate(over="ignore"):
        walks.rehash_nodes(diagrams.pool)
    diagrams._resize(nodes=len(diagrams.pool.node_level))
