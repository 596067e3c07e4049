"""Parts of a sequence in sizes that halve: the whole, its halves, their halves, … (WERNECKE 5.3.3,
6.2.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def halving(items: Sequence[_Item], smallest: int = 1) -> Iterator[Sequence[_Item]]:
    """Consecutive parts of ``items``, largest first, down to ``smallest`` items each.

    Each step cuts every part in two, of which the first has one item more if the count is odd.
    Two parts of a step never share an item.
    """
    step = [items]
    while step:
        kept = [part for part in step if len(part) >= smallest]
        yield from kept
        step = []
        for part in kept:
            if len(part) > 1:
                middle = (len(part) + 1) // 2
                step += [part[:middle], part[middle:]]
