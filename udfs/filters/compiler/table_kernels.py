"""Compiled loops that slice a diagram into tables (CAMUS, Algorithm 1) and compare two of them.

``pool`` is that of ``stackcast.udfs.filters.diagrams.pool``. Nodes whose rows are prefixes come
with their rows made: ``special[n]`` is the number of node n's in ``special_start``,
``special_low``, ``special_high`` and ``special_child``, the default row last, or -1; it is empty if
there are none.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from stackcast.udfs.filters.compiler.tables import ABSENT, DEFAULT, EXACT, LPM, RANGE
from stackcast.udfs.filters.diagrams.pool import NOBODY, NODES, SETS, helper, njit

# A range of at most so many values in a field annotated exact becomes exact rows.
MAX_EXACT_SPLIT: Final = 256

_ONE = np.uint64(1)
_SPLIT = np.uint64(MAX_EXACT_SPLIT)
_VISITS: Final = 4


@helper
def _after(pool: Any, node: Any, row: Any) -> Any:
    """Returns the last value of a row."""
    if row + 1 < pool.node_start[node + 1]:
        return pool.row_low[row + 1] - _ONE
    return pool.maxima[pool.node_level[node]]


@helper
def _default(
    pool: Any, node: Any, exact: Any, slots: Any, held: Any, count: Any, width: Any
) -> Any:
    """Returns the child that becomes the default row.

    It is the child that saves most rows, and among equals nobody's leaf: a value that no rule
    asks for then needs no row. In an exact table it is the child of most values. The first
    of those that are equal in all of this is taken.
    """
    start = pool.node_start[node]
    end = pool.node_start[node + 1]
    level = pool.node_level[node]
    if end - start == 1:
        return np.int64(pool.row_child[start])
    nodes = pool.counters[NODES]
    used = np.int64(0)
    for row in range(start, end):
        child = np.int64(pool.row_child[row])
        key = child if child >= 0 else nodes - 1 - child
        slot = np.int64(slots[key])
        # A place that was never written may hold anything: the way back decides.
        if slot < 0 or slot >= used or held[slot] != child:
            slot = used
            slots[key] = slot
            held[slot] = child
            count[slot] = 0
            width[slot] = np.uint64(0)
            used += np.int64(1)
        count[slot] += 1
        width[slot] += _after(pool, node, row) - pool.row_low[row] + _ONE
    if pool.optional[level] != 0:
        for other in range(used):
            if held[other] == pool.node_absent[node]:
                count[other] += 1
    best = np.int64(0)
    for one in range(1, used):
        if exact[level]:
            better = width[one] > width[best] or (
                width[one] == width[best] and count[one] > count[best]
            )
        elif count[one] != count[best]:
            better = count[one] > count[best]
        elif held[one] == NOBODY or held[best] == NOBODY:
            better = held[one] == NOBODY
        else:
            better = width[one] > width[best]
        if better:
            best = np.int64(one)
    return np.int64(held[best])


@helper
def _reach(child: Any, pool: Any, seen: Any, seen_leaf: Any, ends: Any, chain: Any) -> Any:
    """Notes a child; returns 1 if it is a leaf seen for the first time."""
    if child < 0:
        if seen_leaf[-1 - child]:
            return 0
        seen_leaf[-1 - child] = True
        return 1
    if not seen[child]:
        seen[child] = True
        chain[child] = -1
        below = pool.node_level[child]
        if ends[below, 0] < 0:
            ends[below, 0] = child
        else:
            chain[ends[below, 1]] = child
        ends[below, 1] = child
    return 0


@njit(cache=True, nogil=True)
def visit(
    pool: Any, root: Any, exact: Any, special: Any, special_start: Any, special_child: Any
) -> Any:
    """Visits all below a root, level by level in order of first use.

    Returns the inner nodes, the default child and the number of rows of each, and the leaves, of
    which nobody's is always the last.
    """
    nodes = pool.counters[NODES]
    sets = pool.counters[SETS]
    levels = pool.maxima.shape[0]
    seen = np.zeros(nodes, np.bool_)
    seen_leaf = np.zeros(sets, np.bool_)
    ends = np.full((levels, 2), -1, np.int64)
    chain = np.empty(nodes, np.int32)
    most = np.int64(1)
    for one in range(nodes):
        most = max(most, pool.node_start[one + 1] - pool.node_start[one])
    slots = np.empty(nodes + sets, np.int32)
    held = np.empty(most, np.int64)
    count = np.empty(most, np.int64)
    width = np.empty(most, np.uint64)
    inner = np.empty(nodes, np.int32)
    chosen = np.empty(nodes, np.int32)
    rows = np.empty(nodes, np.int64)
    leaves = np.empty(sets + 1, np.int32)
    found = 0
    found_leaves = 0
    seen_leaf[0] = True
    if root < NOBODY:
        leaves[0] = root
        found_leaves = 1
    elif root >= 0:
        _reach(np.int64(root), pool, seen, seen_leaf, ends, chain)
    for level in range(levels):
        node = ends[level, 0]
        while node >= 0:
            inner[found] = node
            made = np.int64(0)
            if special.shape[0] > 0 and special[node] >= 0:
                start = special_start[special[node]]
                end = special_start[special[node] + 1]
                default = np.int64(special_child[end - 1])
                for row in range(start, end - 1):
                    child = np.int64(special_child[row])
                    made += 1
                    if _reach(child, pool, seen, seen_leaf, ends, chain):
                        leaves[found_leaves] = child
                        found_leaves += 1
            else:
                default = _default(pool, node, exact, slots, held, count, width)
                for row in range(pool.node_start[node], pool.node_start[node + 1]):
                    child = np.int64(pool.row_child[row])
                    if child == default:
                        continue
                    wide = _after(pool, node, row) - pool.row_low[row]
                    made += np.int64(wide) + 1 if exact[level] and wide < _SPLIT else 1
                    if _reach(child, pool, seen, seen_leaf, ends, chain):
                        leaves[found_leaves] = child
                        found_leaves += 1
            made += 1
            if _reach(default, pool, seen, seen_leaf, ends, chain):
                leaves[found_leaves] = default
                found_leaves += 1
            absent = np.int64(pool.node_absent[node])
            if pool.optional[level] != 0 and absent != default:
                made += 1
                if _reach(absent, pool, seen, seen_leaf, ends, chain):
                    leaves[found_leaves] = absent
                    found_leaves += 1
            chosen[found] = default
            rows[found] = made
            found += 1
            node = np.int64(chain[node])
    leaves[found_leaves] = NOBODY
    return (
        inner[:found].copy(),
        chosen[:found].copy(),
        rows[:found].copy(),
        leaves[: found_leaves + 1].copy(),
    )


@njit(cache=True, nogil=True)
def emit(
    pool: Any,
    nodes: Any,
    chosen: Any,
    exact: Any,
    special: Any,
    special_start: Any,
    special_low: Any,
    special_high: Any,
    special_child: Any,
    state_of_node: Any,
    state_of_set: Any,
    out_level: Any,
    out_state: Any,
    out_low: Any,
    out_high: Any,
    out_kind: Any,
    out_next: Any,
) -> None:
    """Emits the rows of ``nodes`` one after the other."""
    at = 0
    for k in range(nodes.shape[0]):
        node = nodes[k]
        level = pool.node_level[node]
        default = np.int64(chosen[k])
        first = at
        if special.shape[0] > 0 and special[node] >= 0:
            for row in range(special_start[special[node]], special_start[special[node] + 1] - 1):
                out_low[at] = special_low[row]
                out_high[at] = special_high[row]
                out_kind[at] = LPM
                child = np.int64(special_child[row])
                out_next[at] = state_of_node[child] if child >= 0 else state_of_set[-1 - child]
                at += 1
        else:
            for row in range(pool.node_start[node], pool.node_start[node + 1]):
                child = np.int64(pool.row_child[row])
                if child == default:
                    continue
                following = state_of_node[child] if child >= 0 else state_of_set[-1 - child]
                low = pool.row_low[row]
                high = _after(pool, node, row)
                if exact[level] and high - low < _SPLIT:
                    for offset in range(np.int64(high - low) + 1):
                        out_low[at] = low + np.uint64(offset)
                        out_high[at] = low + np.uint64(offset)
                        out_kind[at] = EXACT
                        out_next[at] = following
                        at += 1
                else:
                    out_low[at] = low
                    out_high[at] = high
                    out_kind[at] = EXACT if low == high else RANGE
                    out_next[at] = following
                    at += 1
        out_low[at] = np.uint64(0)
        out_high[at] = pool.maxima[level]
        out_kind[at] = DEFAULT
        out_next[at] = state_of_node[default] if default >= 0 else state_of_set[-1 - default]
        at += 1
        absent = np.int64(pool.node_absent[node])
        if pool.optional[level] != 0 and absent != default:
            out_low[at] = np.uint64(0)
            out_high[at] = np.uint64(0)
            out_kind[at] = ABSENT
            out_next[at] = state_of_node[absent] if absent >= 0 else state_of_set[-1 - absent]
            at += 1
        for row in range(first, at):
            out_level[row] = level
            out_state[row] = state_of_node[node]


@njit(cache=True, nogil=True)
def export_sets(pool: Any, leaves: Any) -> Any:
    """Exports the parts of the leaves' sets, without others: keys, and each leaf's place in them.

    A key is as in the pool, but for the numbers in it; number 0 is the empty set.
    """
    sets = pool.counters[SETS]
    place = np.full(sets, -1, np.int32)
    place[0] = 0
    for k in range(leaves.shape[0]):
        place[-1 - leaves[k]] = 0
    for one in range(sets - 1, 0, -1):
        if place[one] >= 0 and pool.set_height[one] > 0:
            key = pool.set_key[one]
            place[np.int64(key & np.uint64(0xFFFFFFFF))] = 0
            place[np.int64(key >> np.uint64(32))] = 0
    kept = 1
    for one in range(1, sets):
        if place[one] >= 0:
            place[one] = kept
            kept += 1
    keys = np.zeros(kept, np.uint64)
    for one in range(1, sets):
        if place[one] > 0:
            key = pool.set_key[one]
            if pool.set_height[one] > 0:
                left = np.uint64(place[np.int64(key >> np.uint64(32))])
                right = np.uint64(place[np.int64(key & np.uint64(0xFFFFFFFF))])
                key = (left << np.uint64(32)) | right
            keys[place[one]] = key
    roots = np.empty(leaves.shape[0], np.int32)
    for k in range(leaves.shape[0]):
        roots[k] = place[-1 - leaves[k]]
    return keys, roots


@helper
def _level(pool: Any, node: Any) -> Any:
    return np.int64(pool.node_level[node]) if node >= 0 else np.int64(2**40)


@njit(cache=True, nogil=True)
def pair(pool: Any, old_root: Any, new_root: Any, old: Any, new: Any, partner: Any) -> None:
    """Pairs nodes and sets that a change took away with those that it put in the same place.

    ``old``, ``new``: for each node, and behind the nodes for each set, True if the old or the new
    diagram has it. ``partner``, as long, comes filled with -1; afterwards it holds, for a new one,
    the place of the one that it replaces.

    Both diagrams are walked side by side from their roots; each new node a few times at most.
    """
    nodes = pool.counters[NODES]
    taken = np.zeros(old.shape[0], np.bool_)
    visits = np.zeros(old.shape[0], np.uint8)
    stack = np.empty((1024, 2), np.int64)
    stack[0, 0] = old_root
    stack[0, 1] = new_root
    depth = 1
    while depth > 0:
        depth -= 1
        a = stack[depth, 0]
        b = stack[depth, 1]
        place_a = a if a >= 0 else nodes - 1 - a
        place_b = b if b >= 0 else nodes - 1 - b
        # What is in both diagrams has nothing but such below it.
        if old[place_b] or new[place_a] or visits[place_b] >= _VISITS:
            continue
        level_a = _level(pool, a)
        level_b = _level(pool, b)
        if level_a == level_b and partner[place_b] < 0 and not taken[place_a]:
            partner[place_b] = place_a
            taken[place_a] = True
        visits[place_b] += 1
        if a < 0 and b < 0:
            continue
        needed = 1
        if level_a <= level_b:
            needed += pool.node_start[a + 1] - pool.node_start[a]
        if level_b <= level_a:
            needed += pool.node_start[b + 1] - pool.node_start[b]
        if depth + needed > stack.shape[0]:
            larger = np.empty((2 * (depth + needed), 2), np.int64)
            larger[:depth] = stack[:depth]
            stack = larger
        first = depth
        if level_a < level_b:
            for row in range(pool.node_start[a], pool.node_start[a + 1]):
                stack[depth, 0] = pool.row_child[row]
                stack[depth, 1] = b
                depth += 1
        elif level_b < level_a:
            for row in range(pool.node_start[b], pool.node_start[b + 1]):
                stack[depth, 0] = a
                stack[depth, 1] = pool.row_child[row]
                depth += 1
        else:
            i = pool.node_start[a]
            j = pool.node_start[b]
            while i < pool.node_start[a + 1] and j < pool.node_start[b + 1]:
                x = pool.row_child[i]
                y = pool.row_child[j]
                if x != y:
                    stack[depth, 0] = x
                    stack[depth, 1] = y
                    depth += 1
                end_a = _after(pool, a, i)
                end_b = _after(pool, b, j)
                if end_a <= end_b:
                    i += 1
                if end_b <= end_a:
                    j += 1
        if pool.optional[min(level_a, level_b)] != 0:
            stack[depth, 0] = pool.node_absent[a] if level_a <= level_b else a
            stack[depth, 1] = pool.node_absent[b] if level_b <= level_a else b
            depth += 1
        # The last put is the first taken: what comes first in the tables pairs first.
        left = first
        right = depth - 1
        while left < right:
            for column in range(2):
                kept = stack[left, column]
                stack[left, column] = stack[right, column]
                stack[right, column] = kept
            left += 1
            right -= 1
