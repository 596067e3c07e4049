"""The links of a Jellyfish: a random regular graph of switches (Singla, Hong, Popa, Godfrey:
Jellyfish, Networking Data Centers Randomly, NSDI 2012, section 3)."""

from __future__ import annotations

import random

from stackcast.udfs.errors import NetworkError

_TRIES = 64


def jellyfish_links(switches: int, degree: int, seed: int) -> list[tuple[int, int]]:
    """Makes links between switches 0 … ``switches`` - 1, ``degree`` at each, as sorted pairs in
    order.

    Two switches with free ports are joined at random until none are left to join; where two ports
    or more stay free then, a link is taken apart and its ends are joined to two of them. Where
    ``switches`` × ``degree`` is odd one port stays free. Parts that are apart are joined by
    crossing two links.
    The same arguments give the same links on any machine and in any version of Python.

    Raises NetworkError ``BAD_SIZE``: there is no connected simple graph of these sizes.
    """
    if switches < 1 or not 0 <= degree < switches or (degree < 2 and switches > degree + 1):
        raise NetworkError(
            "BAD_SIZE",
            f"a connected Jellyfish network of {switches} switches with degree {degree} is not "
            "possible: the degree must be at least 2 (1 for two switches, 0 for one) and less "
            "than the number of switches",
            switches=switches,
            degree=degree,
        )
    rng = random.Random(seed)
    while True:
        graph = _Graph(switches, degree, rng)
        if graph.join_all():
            graph.connect()
            return sorted(graph.links)


class _Graph:
    def __init__(self, switches: int, degree: int, rng: random.Random) -> None:
        self._rng = rng
        self._degree = degree
        self._neighbors: list[set[int]] = [set() for _ in range(switches)]
        self.links: list[tuple[int, int]] = []
        self._place: dict[tuple[int, int], int] = {}

    def join_all(self) -> bool:
        """Joins all ports; returns False if it gets stuck, which small graphs may."""
        while True:
            self._join_free()
            ports = [
                node
                for node, neighbors in enumerate(self._neighbors)
                for _ in range(self._degree - len(neighbors))
            ]
            if len(ports) < 2:
                return True
            if not self._insert(ports[0], ports[1]):
                return False

    def _join_free(self) -> None:
        free = [n for n, near in enumerate(self._neighbors) if len(near) < self._degree]
        places = {node: place for place, node in enumerate(free)}
        while pair := self._free_pair(free):
            self._add(*pair)
            for node in pair:
                if len(self._neighbors[node]) == self._degree:
                    # Its place is taken by the last: the order does not matter to a random draw.
                    place, last = places.pop(node), free.pop()
                    if last != node:
                        free[place] = last
                        places[last] = place

    def _free_pair(self, free: list[int]) -> tuple[int, int] | None:
        for _ in range(_TRIES if len(free) > 1 else 0):
            u, v = free[self._below(len(free))], free[self._below(len(free))]
            if u != v and v not in self._neighbors[u]:
                return u, v
        # Few are left, and nearly all are neighbors of each other.
        pairs = [
            (u, v)
            for place, u in enumerate(free)
            for v in free[place + 1 :]
            if v not in self._neighbors[u]
        ]
        return pairs[self._below(len(pairs))] if pairs else None

    def _insert(self, u: int, v: int) -> bool:
        """Takes a link apart and joins its ends to a free port of ``u`` and one of ``v``."""
        start = self._below(len(self.links)) if self.links else 0
        for step in range(len(self.links)):
            x, y = self.links[(start + step) % len(self.links)]
            for a, b in ((x, y), (y, x)):
                # Nothing is its own neighbor, and no two links are parallel.
                apart = not {a, b} & {u, v}
                if apart and a not in self._neighbors[u] and b not in self._neighbors[v]:
                    self._remove(x, y)
                    self._add(u, a)
                    self._add(v, b)
                    return True
        return False

    def connect(self) -> None:
        """Crosses a link of a cycle with one of another part until there is one part."""
        while len(parts := self._parts()) > 1:
            a, b = self._on_cycle(parts[0])
            c = parts[1][self._below(len(parts[1]))]
            d = min(self._neighbors[c])
            self._remove(a, b)
            self._remove(c, d)
            self._add(a, c)
            self._add(b, d)

    def _parts(self) -> list[list[int]]:
        parts: list[list[int]] = []
        seen: set[int] = set()
        for start in range(len(self._neighbors)):
            if start not in seen:
                part = [start]
                seen.add(start)
                for node in part:
                    fresh = sorted(self._neighbors[node] - seen)
                    seen.update(fresh)
                    part += fresh
                parts.append(part)
        return parts

    def _on_cycle(self, part: list[int]) -> tuple[int, int]:
        """Returns a link without which the part still hangs together.

        There is one: all switches of a part have two neighbors or more, but at most one switch.
        """
        above = {part[0]: part[0]}
        for node in part:
            for neighbor in sorted(self._neighbors[node]):
                if neighbor not in above:
                    above[neighbor] = node
        # The part is in breadth-first order, so that these are a spanning tree of it.
        return next(
            (u, v)
            for u in part
            for v in sorted(self._neighbors[u])
            if above[u] != v and above[v] != u
        )

    def _below(self, limit: int) -> int:
        # random() is the one method whose values Python promises to keep.
        return int(self._rng.random() * limit)

    def _add(self, u: int, v: int) -> None:
        self._neighbors[u].add(v)
        self._neighbors[v].add(u)
        pair = (u, v) if u < v else (v, u)
        self._place[pair] = len(self.links)
        self.links.append(pair)

    def _remove(self, u: int, v: int) -> None:
        self._neighbors[u].remove(v)
        self._neighbors[v].remove(u)
        place = self._place.pop((u, v) if u < v else (v, u))
        last = self.links.pop()
        if place < len(self.links):
            self.links[place] = last
            self._place[last] = place
