"""Compiled loops over a whole pool of diagrams: reachability, growth, and compaction.

``Pool`` and its arrays are described in ``stackcast.udfs.filters.diagrams.pool``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stackcast.udfs.filters.diagrams.kernels import hash_node, remember
from stackcast.udfs.filters.diagrams.pool import HEIGHT, NODES, ROWS, SETS, njit
from stackcast.udfs.filters.diagrams.token_sets import set_hash


@njit(cache=True, nogil=True)
def enter_nodes(node_hash: Any, count: Any, table: Any) -> None:
    """Enters the first ``count`` nodes into an empty table."""
    mask = table.shape[0] - 1
    for node in range(count):
        place = np.int64(node_hash[node]) & mask
        while table[place] != 0:
            place = (place + 1) & mask
        table[place] = node + 1


@njit(cache=True, nogil=True)
def enter_sets(set_key: Any, set_height: Any, count: Any, table: Any) -> None:
    """Enters sets 1 up to ``count`` into an empty table; the empty set is never looked up."""
    mask = table.shape[0] - 1
    for one in range(1, count):
        place = set_hash(set_key[one], np.int64(set_height[one])) & mask
        while table[place] != 0:
            place = (place + 1) & mask
        table[place] = one + 1


@njit(cache=True, nogil=True)
def enter_unions(old: Any, cache: Any) -> None:
    """Enters the unions of one cache into another."""
    for place in range(0, old.shape[0], 4):
        if old[place] != old[place + 1]:
            remember(
                cache, np.int64(old[place]), np.int64(old[place + 1]), np.int64(old[place + 2])
            )


@njit(cache=True, nogil=True)
def reach(pool: Any, root: Any, index: Any, leaf_index: Any, nodes: Any, leaves: Any) -> Any:
    """Finds nodes and leaves below a root, by level, then by first use.

    ``index`` (one a node) and ``leaf_index`` (one a set) come filled with -1, and hold
    afterwards each one's place in ``nodes`` and ``leaves``. Returns the numbers of nodes, leaves
    and rows.
    """
    levels = pool.maxima.shape[0]
    # Nodes that wait for their level, in order: a chain for each, through ``chain``.
    head = np.full(levels + 1, -1, np.int64)
    tail = np.full(levels + 1, -1, np.int64)
    chain = np.empty(index.shape[0], np.int32)
    node_start, row_child = pool.node_start, pool.row_child
    found = 0
    found_leaves = 0
    rows = 0
    if root >= 0:
        first = np.int64(pool.node_level[root])
        head[first] = root
        tail[first] = root
        index[root] = 0
        chain[root] = -1
    else:
        leaf_index[-1 - root] = 0
        leaves[0] = root
        found_leaves = 1
    for level in range(levels):
        node = head[level]
        while node >= 0:
            nodes[found] = node
            index[node] = found
            found += 1
            start = node_start[node]
            end = node_start[node + 1]
            rows += end - start
            for row in range(start, end + 1):
                if row < end:
                    child = np.int64(row_child[row])
                elif pool.optional[level] != 0:
                    child = np.int64(pool.node_absent[node])
                else:
                    break
                if child >= 0:
                    if index[child] < 0:
                        index[child] = 0
                        chain[child] = -1
                        below = np.int64(pool.node_level[child])
                        if head[below] < 0:
                            head[below] = child
                        else:
                            chain[tail[below]] = child
                        tail[below] = child
                elif leaf_index[-1 - child] < 0:
                    leaf_index[-1 - child] = found_leaves
                    leaves[found_leaves] = child
                    found_leaves += 1
            node = np.int64(chain[node])
    return found, found_leaves, rows


@njit(cache=True, nogil=True)
def copy_rows(
    pool: Any,
    nodes: Any,
    row_start: Any,
    low: Any,
    high: Any,
    child: Any,
) -> None:
    """Copies the rows of ``nodes`` one after the other, with the last value of each."""
    at = np.int64(0)
    for k in range(nodes.shape[0]):
        node = nodes[k]
        start = pool.node_start[node]
        end = pool.node_start[node + 1]
        row_start[k] = at
        for row in range(start, end):
            low[at] = pool.row_low[row]
            child[at] = pool.row_child[row]
            if row + 1 < end:
                high[at] = pool.row_low[row + 1] - np.uint64(1)
            else:
                high[at] = pool.maxima[pool.node_level[node]]
            at += 1
    row_start[nodes.shape[0]] = at


@njit(cache=True, nogil=True)
def set_words(pool: Any, one: Any, height: Any, words: Any) -> None:
    """Writes the words of a set into ``words``, which come empty."""
    # Sets whose words are still to be written, and where each begins and how high it is.
    stack = np.empty((height + 2, 3), np.int64)
    stack[0, 0] = one
    stack[0, 1] = 0
    stack[0, 2] = height
    depth = 1
    while depth > 0:
        depth -= 1
        this = stack[depth, 0]
        at = stack[depth, 1]
        high = stack[depth, 2]
        if this == 0:
            continue
        key = pool.set_key[this]
        if high == 0:
            words[at] = key
            continue
        stack[depth, 0] = np.int64(key & np.uint64(0xFFFFFFFF))
        stack[depth, 1] = at + (1 << (high - 1))
        stack[depth, 2] = high - 1
        stack[depth + 1, 0] = np.int64(key >> np.uint64(32))
        stack[depth + 1, 1] = at
        stack[depth + 1, 2] = high - 1
        depth += 2


@njit(cache=True, nogil=True)
def compact(pool: Any, keep: Any, new_node: Any, new_set: Any) -> None:
    """Keeps all that ``keep`` reaches, in its order; the maps hold the new number of each.

    ``new_node`` and ``new_set`` come filled with -1. The tables and the cache are the caller's to
    fill anew.
    """
    counters = pool.counters
    node_start, row_child, row_low = pool.node_start, pool.row_child, pool.row_low
    new_set[0] = 0
    for k in range(keep.shape[0]):
        if keep[k] >= 0:
            new_node[keep[k]] = 0
        else:
            new_set[-1 - keep[k]] = 0
    # Children have lower numbers than their parents.
    for node in range(counters[NODES] - 1, -1, -1):
        if new_node[node] < 0:
            continue
        for row in range(node_start[node], node_start[node + 1] + 1):
            if row < node_start[node + 1]:
                child = np.int64(row_child[row])
            else:
                child = np.int64(pool.node_absent[node])
            if child >= 0:
                new_node[child] = 0
            else:
                new_set[-1 - child] = 0
    for one in range(counters[SETS] - 1, 0, -1):
        if new_set[one] >= 0 and pool.set_height[one] > 0:
            key = pool.set_key[one]
            new_set[np.int64(key & np.uint64(0xFFFFFFFF))] = 0
            new_set[np.int64(key >> np.uint64(32))] = 0
    kept = np.int64(1)
    for one in range(1, counters[SETS]):
        if new_set[one] < 0:
            continue
        key = pool.set_key[one]
        height = pool.set_height[one]
        if height > 0:
            left = np.uint64(new_set[np.int64(key >> np.uint64(32))])
            right = np.uint64(new_set[np.int64(key & np.uint64(0xFFFFFFFF))])
            key = (left << np.uint64(32)) | right
        pool.set_key[kept] = key
        pool.set_height[kept] = height
        new_set[one] = kept
        kept += 1
    counters[SETS] = kept
    kept = np.int64(0)
    rows = np.int64(0)
    start = node_start[0]
    for node in range(counters[NODES]):
        end = node_start[node + 1]
        if new_node[node] >= 0:
            for row in range(start, end):
                child = np.int64(row_child[row])
                row_low[rows] = row_low[row]
                row_child[rows] = new_node[child] if child >= 0 else -1 - new_set[-1 - child]
                rows += 1
            child = np.int64(pool.node_absent[node])
            moved = new_node[child] if child >= 0 else -1 - new_set[-1 - child]
            pool.node_absent[kept] = moved
            pool.node_level[kept] = pool.node_level[node]
            new_node[node] = kept
            kept += 1
            node_start[kept] = rows
        start = end
    counters[NODES] = kept
    counters[ROWS] = rows


@njit(cache=True, nogil=True)
def rehash_nodes(pool: Any) -> None:
    """Hashes every node again, after its children's numbers have changed."""
    for node in range(pool.counters[NODES]):
        start = pool.node_start[node]
        end = pool.node_start[node + 1]
        pool.node_hash[node] = hash_node(
            np.int64(pool.node_level[node]),
            np.int64(pool.node_absent[node]),
            pool.row_low,
            pool.row_child,
            start,
            end,
        )


@njit(cache=True, nogil=True)
def sets_words(pool: Any, leaves: Any, height: Any, words: Any) -> None:
    """Writes the words of each leaf's set into a row of ``words`` (empty before)."""
    for k in range(leaves.shape[0]):
        set_words(pool, -1 - np.int64(leaves[k]), height, words[k])


def double_leaves(pool: Any, moved: Any) -> None:
    """Makes each leaf the left half of a set twice as wide; the pool must be large enough.

    ``moved``: int64, what old sets have become; follows the leaves.
    """
    height, made = int(pool.counters[HEIGHT]), int(pool.counters[SETS])
    # Without the empty set, which is 0 at every height.
    whole = np.flatnonzero(pool.set_height[moved] == height)
    whole = whole[whole > 0]
    end = made + len(whole)
    pool.set_key[made:end] = moved[whole].astype(np.uint64) << np.uint64(32)
    pool.set_height[made:end] = height + 1
    moved[whole] = np.arange(made, end)
    pool.counters[SETS], pool.counters[HEIGHT] = end, height + 1


def tokens_in(pool: Any, leaves: Any) -> Any:
    """Returns the tokens that are in any of these leaves (int32): int64, ascending."""
    # Distinct pairs of where a set's words begin and which set it is, from the top down.
    sets = np.unique(-1 - leaves.astype(np.int64))
    place = np.zeros(len(sets), np.int64)
    for _ in range(int(pool.counters[HEIGHT])):
        key = pool.set_key[sets]
        below = np.concatenate([key >> np.uint64(32), key & np.uint64(0xFFFFFFFF)])
        places = np.concatenate([2 * place, 2 * place + 1]).astype(np.uint64) << np.uint64(32)
        pairs = np.unique((places | below)[below > 0])
        place = (pairs >> np.uint64(32)).astype(np.int64)
        sets = (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)
    words = np.zeros(int(place.max(initial=0)) + 1, "<u8")
    np.bitwise_or.at(words, place[sets > 0], pool.set_key[sets[sets > 0]])
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
