"""Compiled loops of the decision diagrams, which bring terms and unions into the pool."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from stackcast.udfs.filters.diagrams.pool import (
    FAILED,
    HEIGHT,
    K1,
    K2,
    LOWER,
    MAX_ROWS,
    MAX_WORK,
    NEED,
    NEED_LESS,
    NEED_NODES,
    NEED_ROWS,
    NEED_SCRATCH,
    NEED_STACK,
    NOBODY,
    NODES,
    ONE,
    ROWS,
    S32,
    SETS,
    UNKNOWN,
    WORK,
    ZERO,
    Pool,
    bits,
    helper,
    mix,
    njit,
)
from stackcast.udfs.filters.diagrams.token_sets import unite_sets

__all__ = [
    "FAILED",
    "HEIGHT",
    "NOBODY",
    "NODES",
    "ROWS",
    "SETS",
    "Pool",
    "hash_node",
    "njit",
    "remember",
    "terms",
    "unite",
]

# A frame of the stack of ``unite``: the pair, the rows of each still to come and where
# they end (-1: that one does not test the level), the first row made, and absent's child.
FRAME: Final = 8
_A: Final = 0
_B: Final = 1
_I: Final = 2
_END_I: Final = 3
_J: Final = 4
_END_J: Final = 5
_BASE: Final = 6
_ABSENT: Final = 7
# Leaves stand below all levels.
_BELOW: Final = 2**31


@helper
def hash_node(level: Any, absent: Any, low: Any, child: Any, base: Any, end: Any) -> Any:
    """Hashes a node with the rows ``base..end`` of ``low`` and ``child``: uint32."""
    word = mix((bits(level) << S32) ^ bits(absent))
    for k in range(base, end):
        word = (word ^ low[k]) * K1
        word = ((word ^ (word >> S32)) + bits(child[k])) * K2
    word ^= word >> S32
    return np.uint32(word & LOWER)


@helper
def _intern(
    counters: Any,
    optional: Any,
    node_level: Any,
    node_start: Any,
    node_absent: Any,
    node_hash: Any,
    table: Any,
    row_low: Any,
    row_child: Any,
    low: Any,
    child: Any,
    level: Any,
    absent: Any,
    base: Any,
    end: Any,
) -> Any:
    """Returns the node of the rows ``base..end`` of scratch; its child if all children are
    equal."""
    result = np.int64(child[base])
    if end - base > 1 or (optional[level] != 0 and result != absent):
        hashed = hash_node(level, absent, low, child, base, end)
        mask = table.shape[0] - 1
        place = np.int64(hashed) & mask
        while table[place] != 0:
            result = np.int64(table[place]) - 1
            start = node_start[result]
            if (
                node_hash[result] == hashed
                and node_level[result] == level
                and node_absent[result] == absent
                and node_start[result + 1] - start == end - base
            ):
                same = np.int64(0)
                while (
                    same < end - base
                    and row_low[start + same] == low[base + same]
                    and row_child[start + same] == child[base + same]
                ):
                    same += 1
                if same == end - base:
                    break
            place = (place + 1) & mask
        if table[place] == 0:
            made = counters[NODES]
            rows = counters[ROWS]
            if rows + end - base > counters[MAX_ROWS]:
                counters[NEED] = NEED_LESS
                result = np.int64(FAILED)
            elif made == node_level.shape[0]:
                counters[NEED] = NEED_NODES
                result = np.int64(FAILED)
            elif rows + end - base > row_low.shape[0]:
                counters[NEED] = NEED_ROWS
                result = np.int64(FAILED)
            else:
                for k in range(end - base):
                    row_low[rows + k] = low[base + k]
                    row_child[rows + k] = child[base + k]
                node_level[made] = level
                node_absent[made] = absent
                node_hash[made] = hashed
                node_start[made + 1] = rows + end - base
                table[place] = made + 1
                counters[NODES] = made + 1
                counters[ROWS] = rows + end - base
                result = made
    return result


@helper
def _place(cache: Any, a: Any, b: Any) -> Any:
    """Returns the place of a pair in the cache, the lesser number first."""
    word = mix(((bits(a) << S32) | bits(b)) * K1)
    return (np.int64(word >> ONE) & ((cache.shape[0] >> 2) - 1)) << 2


@helper
def remember(cache: Any, a: Any, b: Any, united: Any) -> None:
    """Puts a union into the cache, in place of any other there."""
    less, more = min(a, b), max(a, b)
    place = _place(cache, less, more)
    cache[place] = less
    cache[place + 1] = more
    cache[place + 2] = united


@helper
def _known(cache: Any, a: Any, b: Any) -> Any:
    """Returns the union if it is plain or remembered; else UNKNOWN."""
    if a == b or b == NOBODY:  # noqa: PLR1714
        return a
    if a == NOBODY:
        return b
    less, more = min(a, b), max(a, b)
    place = _place(cache, less, more)
    if cache[place] == less and cache[place + 1] == more:
        return np.int64(cache[place + 2])
    return np.int64(UNKNOWN)


@helper
def _push(
    optional: Any,
    node_level: Any,
    node_start: Any,
    stack: Any,
    depth: Any,
    a: Any,
    b: Any,
    base: Any,
) -> None:
    """Begins the union of two different ones, not both leaves."""
    at = depth * FRAME
    level_a = np.int64(node_level[a]) if a >= 0 else np.int64(_BELOW)
    level_b = np.int64(node_level[b]) if b >= 0 else np.int64(_BELOW)
    if level_b < level_a:
        a, b = b, a
    stack[at + _A] = a
    stack[at + _B] = b
    stack[at + _I] = node_start[a]
    stack[at + _END_I] = node_start[a + 1]
    if level_a == level_b:
        stack[at + _J] = node_start[b]
        stack[at + _END_J] = node_start[b + 1]
    else:
        stack[at + _J] = -1
        stack[at + _END_J] = 0
    stack[at + _BASE] = base
    stack[at + _ABSENT] = UNKNOWN if optional[min(level_a, level_b)] else NOBODY


@njit(cache=True, nogil=True)
def unite(pool: Any, begin: Any, tree: Any, places: Any) -> Any:
    """Unites the two below each of ``places`` of a heap, from ``places[begin]`` on, in their order.

    The union of the diagrams ``tree[2 * p]`` and ``tree[2 * p + 1]`` goes to ``tree[p]``. Returns
    the index of the place that lacked room, or the number of places.
    """
    counters, optional, cache = pool.counters, pool.optional, pool.cache
    level, start, absent = pool.node_level, pool.node_start, pool.node_absent
    hashes, table = pool.node_hash, pool.node_table
    row_low, row_child = pool.row_low, pool.row_child
    set_key, set_height, set_table = pool.set_key, pool.set_height, pool.set_table
    stack, set_stack = pool.stack, pool.set_stack
    low, child = pool.scratch_low, pool.scratch_child
    for k in range(begin, places.shape[0]):
        place = places[k]
        # The pair to unite next is (x, y); depth counts the pairs begun whose union waits for it.
        x, y = np.int64(tree[2 * place]), np.int64(tree[2 * place + 1])
        depth = np.int64(-1)
        top = np.int64(0)
        while True:
            result = _known(cache, x, y)
            if result == UNKNOWN and x < 0 and y < 0:
                result = unite_sets(
                    counters, set_key, set_height, set_table, set_stack, -1 - x, -1 - y
                )
                if result == FAILED:
                    break
                result = -1 - result
                remember(cache, x, y, result)
            elif result == UNKNOWN:
                depth += 1
                if (depth + 1) * FRAME > stack.shape[0]:
                    counters[NEED] = NEED_STACK
                    result = np.int64(FAILED)
                    break
                _push(optional, level, start, stack, depth, x, y, top)
            # Hand the union to the pair that waits for it, which may complete that, and so on.
            while result != UNKNOWN and depth >= 0:
                at = depth * FRAME
                if stack[at + _ABSENT] == UNKNOWN:
                    stack[at + _ABSENT] = result
                    break
                base = stack[at + _BASE]
                i = stack[at + _I]
                j = stack[at + _J]
                if top == base or child[top - 1] != result:
                    if top == low.shape[0]:
                        counters[NEED] = NEED_SCRATCH
                        result = np.int64(FAILED)
                        break
                    low[top] = row_low[i] if j < 0 else max(row_low[i], row_low[j])
                    child[top] = result
                    top += 1
                # To the next value at which either of them changes.
                next_i = i + 1 < stack[at + _END_I]
                next_j = j >= 0 and j + 1 < stack[at + _END_J]
                if next_i and next_j:
                    next_i = row_low[i + 1] <= row_low[j + 1]
                    next_j = row_low[j + 1] <= row_low[i + 1]
                if next_i:
                    stack[at + _I] = i + 1
                if next_j:
                    stack[at + _J] = j + 1
                if next_i or next_j:
                    break
                node = stack[at + _A]
                counters[WORK] += i + 1 - start[node]
                if counters[WORK] > counters[MAX_WORK]:
                    counters[NEED] = NEED_LESS
                    result = np.int64(FAILED)
                    break
                result = _intern(
                    counters,
                    optional,
                    level,
                    start,
                    absent,
                    hashes,
                    table,
                    row_low,
                    row_child,
                    low,
                    child,
                    np.int64(level[node]),
                    stack[at + _ABSENT],
                    base,
                    top,
                )
                if result == FAILED:
                    break
                remember(cache, node, stack[at + _B], result)
                depth -= 1
                top = base
            if result == FAILED or depth < 0:
                break
            at = depth * FRAME
            i = stack[at + _I]
            j = stack[at + _J]
            y = stack[at + _B]
            if stack[at + _ABSENT] == UNKNOWN:
                x = np.int64(absent[stack[at + _A]])
                if j >= 0:
                    y = np.int64(absent[y])
            else:
                x = np.int64(row_child[i])
                if j >= 0:
                    y = np.int64(row_child[j])
        if result == FAILED:
            return np.int64(k)
        tree[place] = result
    return np.int64(places.shape[0])


@njit(cache=True, nogil=True)
def terms(
    pool: Any,
    begin: Any,
    term_start: Any,
    level: Any,
    interval_start: Any,
    interval_low: Any,
    interval_high: Any,
    leaves: Any,
    roots: Any,
) -> Any:
    """Fills ``roots`` from term ``begin`` on; returns the term that found the pool full, or their
    number."""
    counters, optional, maxima = pool.counters, pool.optional, pool.maxima
    node_level, node_start, node_absent = (
        pool.node_level,
        pool.node_start,
        pool.node_absent,
    )
    node_hash, node_table = pool.node_hash, pool.node_table
    row_low, row_child = pool.row_low, pool.row_child
    low, child = pool.scratch_low, pool.scratch_child
    for term in range(begin, roots.shape[0]):
        node = np.int64(leaves[term])
        for constraint in range(term_start[term + 1] - 1, term_start[term] - 1, -1):
            here = np.int64(level[constraint])
            first = interval_start[constraint]
            end = interval_start[constraint + 1]
            if first == end:
                node = np.int64(NOBODY)
            if node == NOBODY:
                break
            if 2 * (end - first) + 1 > low.shape[0]:
                counters[NEED] = NEED_SCRATCH
                return np.int64(term)
            top = np.int64(0)
            if interval_low[first] > ZERO:
                low[0] = 0
                child[0] = NOBODY
                top = np.int64(1)
            for k in range(first, end):
                low[top] = interval_low[k]
                child[top] = node
                top += 1
                if interval_high[k] < maxima[here]:
                    low[top] = interval_high[k] + ONE
                    child[top] = NOBODY
                    top += 1
            node = _intern(
                counters,
                optional,
                node_level,
                node_start,
                node_absent,
                node_hash,
                node_table,
                row_low,
                row_child,
                low,
                child,
                here,
                np.int64(NOBODY),
                np.int64(0),
                top,
            )
            if node == FAILED:
                return np.int64(term)
        roots[term] = node
    return np.int64(roots.shape[0])
