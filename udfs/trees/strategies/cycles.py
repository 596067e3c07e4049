"""The strategy ``cycles``: the rings of the network, then rings joined (WERNECKE 6.3.1, Figure
6.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stackcast.udfs.trees.strategies.cycle_basis import cycle_basis
from stackcast.udfs.trees.strategies.nodes import Nodes
from stackcast.udfs.trees.strategies.strategy import Edges, Situation


@dataclass(frozen=True)
class Cycles:
    """Takes each simple cycle, then each combination of two, three, … that hang together.

    A tree cannot be a ring: it is the shortest ways from the busiest crossing to all other nodes of
    the ring, so what is left open lies farthest from there. Nodes on no ring get no tree.
    """

    name: str = "cycles"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        rings = cycle_basis([[v for v, _ in reached] for reached in nodes.neighbors])
        for combination in combined(rings):
            yield ring_tree(nodes, [rings[number] for number in combination])


def ring_tree(nodes: Nodes, rings: Sequence[Sequence[int]]) -> Edges:
    """Returns a tree over the links of the rings, with the hosts of all their nodes."""
    allowed: dict[int, set[int]] = {}
    for ring in rings:
        for u, v in zip(ring, [*ring[1:], ring[0]], strict=True):
            allowed.setdefault(u, set()).add(v)
            allowed.setdefault(v, set()).add(u)
    root = max(sorted(allowed), key=lambda node: (len(allowed[node]), nodes.degree(node), -node))
    parents = {root: root}
    for node in (order := [root]):
        for neighbor in sorted(allowed[node]):
            if neighbor not in parents:
                parents[neighbor] = node
                order.append(neighbor)
    return nodes.branches(parents, order)


def combined(rings: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yields numbers of rings that together are connected, each set once: single ones, pairs, ….

    Two rings are neighbors if they share a node.
    """
    at: dict[int, list[int]] = {}
    for number, ring in enumerate(rings):
        for node in ring:
            at.setdefault(node, []).append(number)
    near = [
        sorted({other for node in ring for other in at[node]} - {number})
        for number, ring in enumerate(rings)
    ]
    for size in range(1, len(rings) + 1):
        found = False
        for number in range(len(rings)):
            for combination in _grown(number, near, size):
                found = True
                yield combination
        if not found:
            return


def _grown(start: int, near: Sequence[Sequence[int]], size: int) -> Iterator[tuple[int, ...]]:
    """Yields connected sets of ``size`` numbers, ``start`` the lowest of each (Wernicke 2006,
    ESU)."""
    # Each entry: the set, numbers that may join it, and those that it holds or touches.
    waiting: list[tuple[tuple[int, ...], list[int], set[int]]] = [
        ((start,), [n for n in near[start] if n > start], {start, *near[start]})
    ]
    while waiting:
        inside, border, touched = waiting.pop()
        if len(inside) == size:
            yield inside
            continue
        grown = []
        for place, number in enumerate(border):
            fresh = [n for n in near[number] if n > start and n not in touched]
            grown.append(
                ((*inside, number), border[place + 1 :] + fresh, touched.union(near[number]))
            )
        waiting += reversed(grown)
