"""Sorting and copying of few integers. numpy's own, compiled, take seconds to compile each."""

from __future__ import annotations

import numpy as np

from stackcast.udfs.trees.kernels.search import helper, inner


@inner
def sorted_by(keys):  # type: ignore[no-untyped-def]
    """Returns places in the order of their keys, int64; equal ones stay in order (merge sort)."""
    order, merged = np.arange(keys.size), np.empty(keys.size, np.int64)
    width = np.int64(1)
    while width < keys.size:
        for first in range(0, keys.size, 2 * width):
            middle, end = min(first + width, keys.size), min(first + 2 * width, keys.size)
            left, right = first, middle
            for at in range(first, end):
                if left < middle and (right == end or keys[order[left]] <= keys[order[right]]):
                    merged[at] = order[left]
                    left += 1
                else:
                    merged[at] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order


@inner
def least(keys, most):  # type: ignore[no-untyped-def]
    """Returns the least keys, ``most`` of them, ascending."""
    found = np.empty(min(most, keys.size), np.int64)
    number = 0
    for key in keys:
        if number < found.size:
            number += 1
        elif number == 0 or key >= found[number - 1]:
            continue
        at = number - 1
        while at > 0 and found[at - 1] > key:
            found[at] = found[at - 1]
            at -= 1
        found[at] = key
    return found


@helper
def sort(keys, number):  # type: ignore[no-untyped-def]
    """Sorts the first few of these keys in place."""
    for last in range(1, number):
        key, at = keys[last], last
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            at -= 1
        keys[at] = key


@helper
def copy(target, source, number):  # type: ignore[no-untyped-def]
    """Copies the first few."""
    for at in range(number):
        target[at] = source[at]
