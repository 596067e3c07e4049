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
    "repair",
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

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xD6E8FEB86659FD93)
_S32 = np.uint64(32)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW32 = np.int64(0xFFFFFFFF)
_LOWER = np.uint64(0xFFFFFFFF)


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


@njit(cache=True, nogil=True)
def _bits(number: Any) -> Any:
    """The lower 32 bits, as a word."""
    return np.uint64(np.int64(number) & _LOW32)


@njit(cache=True, nogil=True)
def _mix(word: Any) -> Any:
    mixed = (word ^ (word >> _S32)) * _K2
    return mixed ^ (mixed >> _S32)


@njit(cache=True, nogil=True)
def set_hash(key: Any, height: Any) -> Any:
    return np.int64(_mix(key * _K1 + _bits(height)) >> _ONE)


@njit(cache=True, nogil=True)
def _intern_set(pool: Any, key: Any, height: Any) -> Any:
    """The number of a set; 0 for an empty one, FAILED without room."""
    if key == _ZERO:
        return np.int64(0)
    table = pool.set_table
    mask = table.shape[0] - 1
    place = set_hash(key, height) & mask
    while table[place] != 0:
        found = np.int64(table[place]) - 1
        if pool.set_key[found] == key and pool.set_height[found] == height:
            return found
        place = (place + 1) & mask
    counters = pool.counters
    made = counters[SETS]
    if made >= counters[MAX_SETS]:
        counters[NEED] = NEED_LESS
        return np.int64(FAILED)
    if made == pool.set_key.shape[0]:
        counters[NEED] = NEED_SETS
        return np.int64(FAILED)
    pool.set_key[made] = key
    pool.set_height[made] = height
    table[place] = made + 1
    counters[SETS] = made + 1
    return made


@njit(cache=True, nogil=True)
def leaf(pool: Any, words: Any) -> Any:
    """The leaf of the tokens whose bits are set in ``words`` (uint64[2 ** height], overwritten)."""
    height = 0
    width = words.shape[0]
    for k in range(width):
        made = _intern_set(pool, words[k], np.int64(0))
        if made < 0:
            return made
        words[k] = _bits(made)
    while width > 1:
        height += 1
        width >>= 1
        for k in range(width):
            key = (words[2 * k] << _S32) | words[2 * k + 1]
            made = _intern_set(pool, key, np.int64(height))
            if made < 0:
                return made
            words[k] = _bits(made)
    return np.int64(-1) - np.int64(words[0])


@njit(cache=True, nogil=True)
def _unite_sets(pool: Any, a: Any, b: Any) -> Any:
    """The union of two sets of the pool's height."""
    counters, key, stack = pool.counters, pool.set_key, pool.set_stack
    top = counters[HEIGHT]
    # Four places a height: the pair, and the union of its left halves once that is known.
    height = top
    stack[4 * height] = a
    stack[4 * height + 1] = b
    while True:
        at = 4 * height
        x = stack[at]
        y = stack[at + 1]
        if x == y or y == 0:  # noqa: PLR1714
            result = x
        elif x == 0:
            result = y
        elif height == 0:
            result = _intern_set(pool, key[x] | key[y], np.int64(0))
            if result < 0:
                return result
        else:
            stack[at + 2] = -1
            height -= 1
            stack[at - 4] = np.int64(key[x] >> _S32)
            stack[at - 3] = np.int64(key[y] >> _S32)
            continue
        while height < top:
            height += 1
            at = 4 * height
            if stack[at + 2] < 0:
                stack[at + 2] = result
                stack[at - 4] = np.int64(key[stack[at]] & _LOWER)
                stack[at - 3] = np.int64(key[stack[at + 1]] & _LOWER)
                height -= 1
                result = np.int64(-1)
                break
            pair = (_bits(stack[at + 2]) << _S32) | _bits(result)
            result = _intern_set(pool, pair, height)
            if result < 0:
                return result
        if result >= 0:
            return result


@njit(cache=True, nogil=True)
def hash_node(level: Any, absent: Any, low: Any, child: Any, base: Any, end: Any) -> Any:
    """Of a node with the rows ``base..end`` of ``low`` and ``child``: uint32."""
    word = _mix((_bits(level) << _S32) ^ _bits(absent))
    for k in range(base, end):
        word = (word ^ low[k]) * _K1
        word = ((word ^ (word >> _S32)) + _bits(child[k])) * _K2
    word ^= word >> _S32
    return np.uint32(word & _LOWER)


@njit(cache=True, nogil=True)
def _intern(pool: Any, level: Any, absent: Any, base: Any, end: Any) -> Any:
    """The node of the rows ``base..end`` of scratch; its child if all children are equal."""
    counters, low, child = pool.counters, pool.scratch_low, pool.scratch_child
    first = np.int64(child[base])
    if end - base == 1 and (pool.optional[level] == 0 or first == absent):
        return first
    hashed = hash_node(level, absent, low, child, base, end)
    node_level, node_start, node_absent = pool.node_level, pool.node_start, pool.node_absent
    node_hash, table, row_low, row_child = (
        pool.node_hash,
        pool.node_table,
        pool.row_low,
        pool.row_child,
    )
    mask = table.shape[0] - 1
    place = np.int64(hashed) & mask
    while table[place] != 0:
        found = np.int64(table[place]) - 1
        if (
            node_hash[found] == hashed
            and node_level[found] == level
            and node_absent[found] == absent
            and node_start[found + 1] - node_start[found] == end - base
        ):
            start = node_start[found]
            same = True
            for k in range(end - base):
                if row_low[start + k] != low[base + k] or row_child[start + k] != child[base + k]:
                    same = False
                    break
            if same:
                return found
        place = (place + 1) & mask
    made = counters[NODES]
    rows = counters[ROWS]
    if rows + end - base > counters[MAX_ROWS]:
        counters[NEED] = NEED_LESS
        return np.int64(FAILED)
    if made == node_level.shape[0]:
        counters[NEED] = NEED_NODES
        return np.int64(FAILED)
    if rows + end - base > row_low.shape[0]:
        counters[NEED] = NEED_ROWS
        return np.int64(FAILED)
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
    return made


@njit(cache=True, nogil=True)
def _place(cache: Any, a: Any, b: Any) -> Any:
    """Where the cache would hold a pair, the lesser number first."""
    word = _mix(((_bits(a) << _S32) | _bits(b)) * _K1)
    return (np.int64(word >> _ONE) & ((cache.shape[0] >> 2) - 1)) << 2


@njit(cache=True, nogil=True)
def remember(cache: Any, a: Any, b: Any, united: Any) -> None:
    """Put a union into the cache, in the place of whatever was there."""
    less, more = min(a, b), max(a, b)
    place = _place(cache, less, more)
    cache[place] = less
    cache[place + 1] = more
    cache[place + 2] = united


@njit(cache=True, nogil=True)
def _known(pool: Any, a: Any, b: Any) -> Any:
    """The union if it is plain, of leaves, or remembered; else _UNKNOWN."""
    if a == b or b == NOBODY:  # noqa: PLR1714
        return a
    if a == NOBODY:
        return b
    cache = pool.cache
    less, more = min(a, b), max(a, b)
    place = _place(cache, less, more)
    if cache[place] == less and cache[place + 1] == more:
        return np.int64(cache[place + 2])
    if more >= 0:
        return np.int64(_UNKNOWN)
    result = _unite_sets(pool, -1 - a, -1 - b)
    if result < 0:
        return result
    result = -1 - result
    remember(cache, a, b, result)
    return result


@njit(cache=True, nogil=True)
def _push(pool: Any, depth: Any, a: Any, b: Any, base: Any) -> Any:
    """Begin the union of two different ones, not both leaves; False without room."""
    stack = pool.stack
    at = depth * FRAME
    if at + FRAME > stack.shape[0]:
        pool.counters[NEED] = NEED_STACK
        return False
    level_a = np.int64(pool.node_level[a]) if a >= 0 else np.int64(2**40)
    level_b = np.int64(pool.node_level[b]) if b >= 0 else np.int64(2**40)
    if level_b < level_a:
        a, b = b, a
        level_a, level_b = level_b, level_a
    stack[at + _A] = a
    stack[at + _B] = b
    stack[at + _I] = pool.node_start[a]
    stack[at + _END_I] = pool.node_start[a + 1]
    if level_a == level_b:
        stack[at + _J] = pool.node_start[b]
        stack[at + _END_J] = pool.node_start[b + 1]
    else:
        stack[at + _J] = -1
        stack[at + _END_J] = 0
    stack[at + _BASE] = base
    stack[at + _ABSENT] = _UNKNOWN if pool.optional[level_a] else NOBODY
    return True


@njit(cache=True, nogil=True)
def unite(pool: Any, a: Any, b: Any) -> Any:
    """The diagram that gives each event the tokens of both; FAILED without room."""
    counters = pool.counters
    result = _known(pool, a, b)
    if result != _UNKNOWN:
        return result
    stack, low, child = pool.stack, pool.scratch_low, pool.scratch_child
    row_low, row_child, node_absent = pool.row_low, pool.row_child, pool.node_absent
    top = np.int64(0)
    depth = np.int64(0)
    if not _push(pool, depth, a, b, top):
        return np.int64(FAILED)
    while True:
        at = depth * FRAME
        i = stack[at + _I]
        j = stack[at + _J]
        other = stack[at + _B]
        if stack[at + _ABSENT] == _UNKNOWN:
            x = np.int64(node_absent[stack[at + _A]])
            y = other if j < 0 else np.int64(node_absent[other])
        else:
            x = np.int64(row_child[i])
            y = other if j < 0 else np.int64(row_child[j])
        result = _known(pool, x, y)
        if result == FAILED:
            return result
        if result == _UNKNOWN:
            depth += 1
            if not _push(pool, depth, x, y, top):
                return np.int64(FAILED)
            continue
        while True:
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
                    return np.int64(FAILED)
                low[top] = row_low[i] if j < 0 else max(row_low[i], row_low[j])
                child[top] = result
                top += 1
            # To the next point at which either of them changes.
            more_i = i + 1 < stack[at + _END_I]
            more_j = j >= 0 and j + 1 < stack[at + _END_J]
            if more_i and more_j:
                if row_low[i + 1] <= row_low[j + 1]:
                    stack[at + _I] = i + 1
                if row_low[j + 1] <= row_low[i + 1]:
                    stack[at + _J] = j + 1
                break
            if more_i:
                stack[at + _I] = i + 1
                break
            if more_j:
                stack[at + _J] = j + 1
                break
            a = stack[at + _A]
            b = stack[at + _B]
            counters[WORK] += i + 1 - pool.node_start[a]
            if counters[WORK] > counters[MAX_WORK]:
                counters[NEED] = NEED_LESS
                return np.int64(FAILED)
            level = np.int64(pool.node_level[a])
            result = _intern(pool, level, stack[at + _ABSENT], base, top)
            if result == FAILED:
                return result
            remember(pool.cache, a, b, result)
            if depth == 0:
                return result
            depth -= 1
            top = base


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
                pool.counters[NEED] = NEED_SCRATCH
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
                if interval_high[k] < pool.maxima[here]:
                    low[top] = interval_high[k] + _ONE
                    child[top] = NOBODY
                    top += 1
            node = _intern(pool, here, np.int64(NOBODY), np.int64(0), top)
            if node == FAILED:
                return np.int64(term)
        roots[term] = node
    return np.int64(roots.shape[0])


@njit(cache=True, nogil=True)
def repair(pool: Any, begin: Any, tree: Any, places: Any) -> Any:
    """Unite the two below each of ``places`` of a heap, from ``places[begin]`` on, in their order.

    Returns the index of the place that lacked room, or the number of places.
    """
    for k in range(begin, places.shape[0]):
        place = places[k]
        made = unite(pool, np.int64(tree[2 * place]), np.int64(tree[2 * place + 1]))
        if made == FAILED:
            return np.int64(k)
        tree[place] = made
    return np.int64(places.shape[0])
