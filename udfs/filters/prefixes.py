"""Intervals as prefixes, for tables that match the longest one.

Source: R. Draves, C. King, S. Venkatachary, B. Zill, "Constructing Optimal IP Routing Tables",
INFOCOM 1999 (ORTC).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

__all__ = ["cover", "split"]

_Row = tuple[int, int, int]
# A node of the binary tree of prefixes: candidates, and both halves where they differ.
_Tree = tuple[frozenset[int], "_Tree | None", "_Tree | None"]


def split(low: int, high: int, bits: int) -> list[tuple[int, int]]:
    """Splits ``low..high`` into the fewest disjoint prefixes, ascending, each (first, last).

    ``bits``: width of the field. A prefix is an aligned block of a power of two values.
    """
    _check(low, high, bits)
    result = []
    while low <= high:
        # As large as the alignment of its first value allows, and not beyond the last one.
        size = min(low & -low if low else 1 << bits, 1 << (high - low + 1).bit_length() - 1)
        result.append((low, low + size - 1))
        low += size
    return result


def cover(rows: Sequence[_Row], bits: int, prefer: int | None = None) -> list[_Row]:
    """Covers rows by the fewest prefixes (first, last, child): the longest with a value has its
    child.

    ``rows``: (low, high, child), ascending, disjoint, covering 0..2^bits - 1; neighbours may have
    equal children. Prefixes may nest. They come by first value, the shorter block first, but the
    one of the whole domain, which is always there, is last. Among equally good children one takes
    ``prefer``, else the one that ``rows`` names first, so equal rows give equal prefixes however
    their children are numbered.
    """
    if not rows or rows[0][0] != 0 or rows[-1][1] != (1 << bits) - 1:
        raise ValueError(f"rows do not cover 0..{(1 << bits) - 1}")
    if any(left[1] + 1 != right[0] for left, right in pairwise(rows)):
        raise ValueError("rows leave gaps or overlap")
    rank: dict[int, int] = {} if prefer is None else {prefer: 0}
    for _, _, child in rows:
        rank.setdefault(child, len(rank))
    children = sorted(rank, key=rank.__getitem__)
    tree = _candidates([low for low, _, _ in rows], [rank[child] for _, _, child in rows], bits)
    first = min(tree[0])
    result = _chosen(tree, first, bits)
    result.sort()
    return [(low, high, children[c]) for low, high, c in [*result, (0, (1 << bits) - 1, first)]]


def _candidates(lows: Sequence[int], children: Sequence[int], bits: int) -> _Tree:
    """Runs passes one and two: children that a block can have at the fewest prefixes in it."""
    alone = {child: (frozenset((child,)), None, None) for child in set(children)}

    def node(low: int, height: int) -> _Tree:
        first = bisect_right(lows, low) - 1
        last = bisect_right(lows, low + (1 << height) - 1) - 1
        if first == last:
            return alone[children[first]]
        left = node(low, height - 1)
        right = node(low + (1 << height - 1), height - 1)
        both = left[0] & right[0]
        if left[1] is None and right[1] is None and left[0] == right[0]:
            return left
        return both or left[0] | right[0], left, right

    return node(0, bits)


def _chosen(tree: _Tree, inherited: int, bits: int) -> list[_Row]:
    """Runs pass three, from the top: a prefix only where the inherited child is no candidate."""
    result = []
    waiting = [(tree, inherited, 0, bits)]
    while waiting:
        (candidates, left, right), child, low, height = waiting.pop()
        if child not in candidates:
            child = min(candidates)
            result.append((low, low + (1 << height) - 1, child))
        if left is not None and right is not None:
            waiting.append((left, child, low, height - 1))
            waiting.append((right, child, low + (1 << height - 1), height - 1))
    return result


def _check(low: int, high: int, bits: int) -> None:
    if not 0 <= low <= high < 1 << bits:
        raise ValueError(f"{low}..{high} is no interval of {bits} bits")
