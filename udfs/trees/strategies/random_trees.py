"""random: Steiner trees over nodes drawn by lot (WERNECKE 6.2.2)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from udfs.trees.strategies.nodes import Nodes
from udfs.trees.strategies.strategy import Edges, Room, Situation

#: Trees in a row that are known or do not fit, after which no more are drawn.
_TRIES = 50


@dataclass(frozen=True)
class RandomTrees:
    """Joins two or more nodes, how many and which ones drawn from ``situation.seed``.

    Drawn among nodes that have room left. Where failed links have cut the network, a tree joins
    nodes of one part, drawn by the number of nodes in it.
    """

    name: str = "random"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        room = Room(situation.network, budget)
        parts = nodes.components()
        lots = random.Random(situation.seed)
        known: set[Edges] = set()
        misses = 0
        while misses < _TRIES:
            open_parts = [part for each in parts if len(part := with_room(nodes, each, room)) > 1]
            if not open_parts:
                return
            (part,) = lots.choices(open_parts, [len(part) for part in open_parts])
            edges = nodes.steiner(lots.sample(part, lots.randint(2, len(part))))
            if edges not in known and room.fits(edges):
                room.take(edges)
                known.add(edges)
                misses = 0
                yield edges
            else:
                misses += 1


def with_room(nodes: Nodes, part: list[int], room: Room) -> list[int]:
    """Those of ``part`` that have subscribers and whose switch may hold another tree."""
    return [node for node in part if nodes.hosts[node] and room.left[nodes.names[node]] > 0]
