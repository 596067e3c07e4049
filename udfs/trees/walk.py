"""A delivery tree walked branch by branch, to cut it where stacks would be too long."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class Walk:
    """The switches of a delivery tree in depth-first order.

    ``members``: int64, parents before children, the root first; ``parent``: the link that each came
    by, in the same order; ``source``: the links' sources. ``place[v]`` is a switch's place.
    """

    def __init__(self, members: Integers, parent: Integers, source: NDArray[np.int32]) -> None:
        found = members.tolist()
        above = dict(zip(found[1:], source[parent[1:]].tolist(), strict=True))
        children: dict[int, list[int]] = {u: [] for u in found}
        for v, u in above.items():
            children[u].append(v)
        order: list[int] = []
        waiting = [found[0]]
        while waiting:
            u = waiting.pop()
            order.append(u)
            waiting += reversed(children[u])
        self.place: dict[int, int] = {u: at for at, u in enumerate(order)}
        self._above = above
        self._order = order
        self._link = dict(zip(found, parent.tolist(), strict=True))

    def between(self, first: int, last: int) -> tuple[Integers, Integers]:
        """The part of the tree that the root needs for the switches from ``first`` to ``last`` in
        the walk: members, parents before children, and the links that they came by."""
        way = []
        at = first
        while at in self._above:
            at = self._above[at]
            way.append(at)
        part = way[::-1] + self._order[self.place[first] : self.place[last] + 1]
        return np.array(part, np.int64), np.array([self._link[v] for v in part], np.int64)
