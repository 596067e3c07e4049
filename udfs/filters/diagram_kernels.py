"""Compiled loops of the decision diagrams: one pool of arrays, and how nodes get into it.

Without numba the same functions run as plain Python: right, and slow.

The pool. Node n tests ``node_level[n]`` and owns the rows ``node_start[n]`` up to
``node_start[n + 1]``: ``row_low`` ascends from 0, a row reaches to the next one's low, the last
to the level's maximum, and ``row_child`` is where it leads. ``node_absent[n]`` is where an event
without the field goes, NOBODY at levels that are not optional. A child's number is below its
parent's. Negative children are leaves: ``-1 - s`` is the set s of tokens. Set 0 is the empty
one, so NOBODY is -1. A set of height 0 is a word of 64 tokens (``set_key``), one of height h
a pair of sets of height h - 1, the left in the upper half of its key; every leaf has the
pool's height. Nodes and sets are in the pool once each (``node_table``, ``set_table``: open
addressing, number + 1, 0 is free), so equal numbers are equal functions. ``cache``
remembers unions: (a, b, union, unused) at the place of the pair's hash, the last one wins.

No kernel makes room. It notes in ``counters[NEED]`` what it lacks and returns FAILED or the
place to go on from; the caller makes room and calls again. What is in the pool stays right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FAILED",
    "NOBODY",
    "NODES",
    "ROWS",
    "SETS",
    "Pool",
    "hash_node",
    "leaf",
    "njit",
    "remember",
    "set_hash",
    "terms",
    "unite",
]

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba import njit
except ImportError:

    def njit(**_: Any) -> Callable[[F], F]:
        """Leave the function as it is."""
        return lambda function: function


NOBODY: Final = -1
FAILED: Final = -(2**31)
_UNKNOWN: Final = 1 - 2**31

# Places in ``counters``.
NODES: Final = 0
ROWS: Final = 1
SETS: Final = 2
HEIGHT: Final = 3
MAX_ROWS: Final = 4
MAX_SETS: Final = 5
WORK: Final = 6
MAX_WORK: Final = 7
NEED: Final = 8
COUNTERS: Final = 9

# Values of ``counters[NEED]``.
NEED_NODES: Final = 1
NEED_ROWS: Final = 2
NEED_SETS: Final = 3
NEED_STACK: Final = 4
NEED_SCRATCH: Final = 5
NEED_LESS: Final = 6

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

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_S32 = np.uint64(32)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW32 = np.int64(0xFFFFFFFF)
_LOWER = np.uint64(0xFFFFFFFF)

# Of functions that others here call with many arrays and that make none: without a count of
# references they take two thirds of the time. (``_nrt`` is numba's own option for its helpers.)
_helper: Any = njit(cache=True, nogil=True, _nrt=False)


class Pool(NamedTuple):
    """The arrays; see the module. ``stack``, ``scratch_*`` and ``set_stack`` hold no result."""

    maxima: NDArray[np.uint64]
    optional: NDArray[np.uint8]
    counters: NDArray[np.int64]
    node_level: NDArray[np.int32]
    node_start: NDArray[np.int64]
    node_absent: NDArray[np.int32]
    node_hash: NDArray[np.uint32]
    node_table: NDArray[np.int32]
    row_low: NDArray[np.uint64]
    row_child: NDArray[np.int32]
    set_key: NDArray[np.uint64]
    set_height: NDArray[np.uint8]
    set_table: NDArray[np.int32]
    cache: NDArray[np.int32]
    stack: NDArray[np.int64]
    scratch_low: NDArray[np.uint64]
    scratch_child: NDArray[np.int32]
    set_stack: NDArray[np.int64]


@_helper
def _bits(number: Any) -> Any:
    """The lower 32 bits, as a word."""
    return np.uint64(np.int64(number) & _LOW32)


@_helper
def _mix(word: Any) -> Any:
    mixed = (word ^ (word >> _S32)) * _K2
    return mixed ^ (mixed >> _S32)


@_helper
def set_hash(key: Any, height: Any) -> Any:
    return np.int64(_mix(key * _K1 + _bits(height)) >> _ONE)


@_helper
def _intern_set(
    counters: Any, set_key: Any, set_height: Any, table: Any, key: Any, height: Any
) -> Any:
    """The number of a set; 0 for an empty one, FAILED without room."""
    result = np.int64(0)
    if key != _ZERO:
        mask = table.shape[0] - 1
        place = set_hash(key, height) & mask
        while table[place] != 0:
            result = np.int64(table[place]) - 1
            if set_key[result] == key and set_height[result] == height:
                break
            place = (place + 1) & mask
        if table[place] == 0:
            made = counters[SETS]
            if made >= counters[MAX_SETS]:
                counters[NEED] = NEED_LESS
                result = np.int64(FAILED)
            elif made == set_key.shape[0]:
                counters[NEED] = NEED_SETS
                result = np.int64(FAILED)
            else:
                set_key[made] = key
                set_height[made] = height
                table[place] = made + 1
                counters[SETS] = made + 1
                result = made
    return result


@njit(cache=True, nogil=True)
def leaf(pool: Any, words: Any) -> Any:
    """The leaf of the tokens whose bits are set in ``words`` (uint64[2 ** height], overwritten)."""
    counters, set_key, set_height = pool.counters, pool.set_key, pool.set_height
    table = pool.set_table
    height = 0
    width = words.shape[0]
    for k in range(width):
        made = _intern_set(counters, set_key, set_height, table, words[k], np.int64(0))
        if made < 0:
            return made
        words[k] = _bits(made)
    while width > 1:
        height += 1
        width >>= 1
        for k in range(width):
            key = (words[2 * k] << _S32) | words[2 * k + 1]
            made = _intern_set(counters, set_key, set_height, table, key, np.int64(height))
            if made < 0:
                return made
            words[k] = _bits(made)
    return np.int64(-1) - np.int64(words[0])


@_helper
def _unite_sets(
    counters: Any, set_key: Any, set_height: Any, table: Any, stack: Any, a: Any, b: Any
) -> Any:
    """The union of two sets of the pool's height; FAILED without room."""
    top = counters[HEIGHT]
    # Four places a height: the pair, and the union of its left halves once that is known.
    height = top
    stack[4 * height] = a
    stack[4 * height + 1] = b
    result = np.int64(-1)
    while result == -1:
        at = 4 * height
        x = stack[at]
        y = stack[at + 1]
        if x == y or y == 0:  # noqa: PLR1714
            result = x
        elif x == 0:
            result = y
        elif height == 0:
            key = set_key[x] | set_key[y]
            result = _intern_set(counters, set_key, set_height, table, key, height)
        else:
            stack[at + 2] = -1
            height -= 1
            stack[at - 4] = np.int64(set_key[x] >> _S32)
            stack[at - 3] = np.int64(set_key[y] >> _S32)
        while result >= 0 and height < top:
            height += 1
            at = 4 * height
            if stack[at + 2] < 0:
                stack[at + 2] = result
                stack[at - 4] = np.int64(set_key[stack[at]] & _LOWER)
                stack[at - 3] = np.int64(set_key[stack[at + 1]] & _LOWER)
                height -= 1
                result = np.int64(-1)
                break
            key = (_bits(stack[at + 2]) << _S32) | _bits(result)
            result = _intern_set(counters, set_key, set_height, table, key, height)
    return result


@_helper
def hash_node(level: Any, absent: Any, low: Any, child: Any, base: Any, end: Any) -> Any:
    """Of a node with the rows ``base..end`` of ``low`` and ``child``: uint32."""
    word = _mix((_bits(level) << _S32) ^ _bits(absent))
    for k in range(base, end):
        word = (word ^ low[k]) * _K1
        word = ((word ^ (word >> _S32)) + _bits(child[k])) * _K2
    word ^= word >> _S32
    return np.uint32(word & _LOWER)


@_helper
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
    """The node of the rows ``base..end`` of scratch; its child if all children are equal."""
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


@_helper
def _place(cache: Any, a: Any, b: Any) -> Any:
    """Where the cache would hold a pair, the lesser number first."""
    word = _mix(((_bits(a) << _S32) | _bits(b)) * _K1)
    return (np.int64(word >> _ONE) & ((cache.shape[0] >> 2) - 1)) << 2


@_helper
def remember(cache: Any, a: Any, b: Any, united: Any) -> None:
    """Put a union into the cache, in the place of whatever was there."""
    less, more = min(a, b), max(a, b)
    place = _place(cache, less, more)
    cache[place] = less
    cache[place + 1] = more
    cache[place + 2] = united


@_helper
def _known(cache: Any, a: Any, b: Any) -> Any:
    """The union if it is plain or remembered; else _UNKNOWN."""
    if a == b or b == NOBODY:  # noqa: PLR1714
        return a
    if a == NOBODY:
        return b
    less, more = min(a, b), max(a, b)
    place = _place(cache, less, more)
    if cache[place] == less and cache[place + 1] == more:
        return np.int64(cache[place + 2])
    return np.int64(_UNKNOWN)


@_helper
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
    """Begin the union of two different ones, not both leaves."""
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
    stack[at + _ABSENT] = _UNKNOWN if optional[min(level_a, level_b)] else NOBODY


@njit(cache=True, nogil=True)
def unite(pool: Any, begin: Any, tree: Any, places: Any) -> Any:
    """Unite the two below each of ``places`` of a heap, from ``places[begin]`` on, in their order.

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
            if result == _UNKNOWN and x < 0 and y < 0:
                result = _unite_sets(
                    counters, set_key, set_height, set_table, set_stack, -1 - x, -1 - y
                )
                if result == FAILED:
                    break
                result = -1 - result
                remember(cache, x, y, result)
            elif result == _UNKNOWN:
                depth += 1
                if (depth + 1) * FRAME > stack.shape[0]:
                    counters[NEED] = NEED_STACK
                    result = np.int64(FAILED)
                    break
                _push(optional, level, start, stack, depth, x, y, top)
            # Hand the union to the pair that waits for it, which may complete that, and so on.
            while result != _UNKNOWN and depth >= 0:
                at = depth * FRAME
                if stack[at + _ABSENT] == _UNKNOWN:
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
            if stack[at + _ABSENT] == _UNKNOWN:
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
    """Fill ``roots`` from term ``begin`` on; the term that lacked room, or their number."""
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
            if interval_low[first] > _ZERO:
                low[0] = 0
                child[0] = NOBODY
                top = np.int64(1)
            for k in range(first, end):
                low[top] = interval_low[k]
                child[top] = node
                top += 1
                if interval_high[k] < maxima[here]:
                    low[top] = interval_high[k] + _ONE
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
