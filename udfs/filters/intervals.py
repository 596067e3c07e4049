"""Sets of raw values as disjoint closed intervals, ascending and never adjacent: one form a set."""

from __future__ import annotations

from collections.abc import Iterable

Intervals = tuple[tuple[int, int], ...]


def union(sets: Iterable[Intervals]) -> Intervals:
    """Returns all values that are in any of the sets."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(interval for one in sets for interval in one):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def intersection(left: Intervals, right: Intervals) -> Intervals:
    """Returns all values that are in both sets."""
    common: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low <= high:
            common.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def complement(one: Intervals, maximum: int) -> Intervals:
    """Returns the values of 0..maximum that are not in the set."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for low, high in one:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= maximum:
        gaps.append((start, maximum))
    return tuple(gaps)


def comparison(operator: str, constants: Intervals, maximum: int) -> Intervals:
    """Returns the values of 0..maximum for which ``x operator constants`` holds."""
    if operator in ("==", "in"):
        return union((constants,))
    if operator in ("!=", "not in"):
        return complement(union((constants,)), maximum)
    value = constants[0][0]
    if operator == "<":
        return ((0, value - 1),) if value > 0 else ()
    if operator == "<=":
        return ((0, value),)
    if operator == ">":
        return ((value + 1, maximum),) if value < maximum else ()
    return ((value, maximum),)
