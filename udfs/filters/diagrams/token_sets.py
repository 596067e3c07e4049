"""Sets of tokens in a pool: hash-consed binary trees over words of 64 tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from stackcast.udfs.filters.diagrams.pool import (
    FAILED,
    HEIGHT,
    K1,
    LOWER,
    MAX_SETS,
    NEED,
    NEED_LESS,
    NEED_SETS,
    ONE,
    S32,
    SETS,
    ZERO,
    bits,
    helper,
    mix,
    njit,
)


@helper
def set_hash(key: Any, height: Any) -> Any:
    return np.int64(mix(key * K1 + bits(height)) >> ONE)


@helper
def intern_set(
    counters: Any, set_key: Any, set_height: Any, table: Any, key: Any, height: Any
) -> Any:
    """Returns the number of a set; 0 for an empty one, FAILED if the pool is full."""
    result = np.int64(0)
    if key != ZERO:
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
    """Returns the leaf of the tokens of the bits in ``words`` (uint64[2 ** height],
    overwritten)."""
    counters, set_key, set_height = pool.counters, pool.set_key, pool.set_height
    table = pool.set_table
    height = 0
    width = words.shape[0]
    for k in range(width):
        made = intern_set(counters, set_key, set_height, table, words[k], np.int64(0))
        if made < 0:
            return made
        words[k] = bits(made)
    while width > 1:
        height += 1
        width >>= 1
        for k in range(width):
            key = (words[2 * k] << S32) | words[2 * k + 1]
            made = intern_set(counters, set_key, set_height, table, key, np.int64(height))
            if made < 0:
                return made
            words[k] = bits(made)
    return np.int64(-1) - np.int64(words[0])


@helper
def unite_sets(
    counters: Any, set_key: Any, set_height: Any, table: Any, stack: Any, a: Any, b: Any
) -> Any:
    """Returns the union of two sets of the pool's height; FAILED if the pool is full."""
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
            result = intern_set(counters, set_key, set_height, table, key, height)
        else:
            stack[at + 2] = -1
            height -= 1
            stack[at - 4] = np.int64(set_key[x] >> S32)
            stack[at - 3] = np.int64(set_key[y] >> S32)
        while result >= 0 and height < top:
            height += 1
            at = 4 * height
            if stack[at + 2] < 0:
                stack[at + 2] = result
                stack[at - 4] = np.int64(set_key[stack[at]] & LOWER)
                stack[at - 3] = np.int64(set_key[stack[at + 1]] & LOWER)
                height -= 1
                result = np.int64(-1)
                break
            key = (bits(stack[at + 2]) << S32) | bits(result)
            result = intern_set(counters, set_key, set_height, table, key, height)
    return result
