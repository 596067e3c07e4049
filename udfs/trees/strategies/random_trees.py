"""The strategies ``random`` and ``random-variant``: Steiner trees over nodes drawn by lot (WERNECKE
6.2.2, Figure 6.4)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from stackcast.udfs.trees.strategies.nodes import Nodes, halving
from stackcast.udfs.trees.strategies.strategy import FEWEST_EDGES, Edges, Situation, TreeCapacity

#: Trees in a row that are known or do not fit, after which no more are drawn.
_TRIES = 50
#: Nodes of orders, after which no other is drawn: about as many trees are grown. Networks of 1,500
#: switches do with them, 10,000 would take minutes to find some small trees more.
_ORDERED = 30_000


@dataclass(frozen=True)
class RandomTrees:
    """Joins two or more nodes, how many and which ones drawn from ``situation.seed``.

    They are drawn among nodes whose switch may hold another tree. If failed links have cut the
    network, a tree joins nodes of one part, drawn by the number of nodes in it.
    """

    name: str = "random"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        capacity = TreeCapacity(situation.network, budget)
        parts = nodes.components()
        lots = random.Random(situation.seed)
        known: set[Edges] = set()
        misses = 0
        while misses < _TRIES:
            open_parts = [
                part for each in parts if len(part := with_capacity(nodes, each, capacity)) > 1
            ]
            if not open_parts:
                return
            (part,) = lots.choices(open_parts, [len(part) for part in open_parts])
            edges = nodes.steiner(lots.sample(part, lots.randint(2, len(part))))
            if edges not in known and capacity.fits(edges):
                capacity.reserve(edges)
                known.add(edges)
                misses = 0
                yield edges
            else:
                misses += 1


def with_capacity(nodes: Nodes, part: list[int], capacity: TreeCapacity) -> list[int]:
    """Returns those of ``part`` that have subscribers and whose switch may hold another tree."""
    return [node for node in part if nodes.hosts[node] and capacity.left[nodes.names[node]] > 0]


@dataclass(frozen=True)
class RandomVariant:
    """Joins all nodes, then parts of an order that is drawn from ``situation.seed``.

    When all parts are as small as can be, another order of the nodes whose switch may hold another
    tree is drawn, as long as one of its trees fits, and orders have had fewer than 30,000 nodes. A
    part has two terminals or more, and its tree two links or more between switches.
    """

    name: str = "random-variant"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        capacity = TreeCapacity(situation.network, budget)
        lots = random.Random(situation.seed)
        orders = [
            part for each in nodes.components() if (part := with_capacity(nodes, each, capacity))
        ]
        for order in orders:
            edges = nodes.steiner(order)
            if capacity.fits(edges):
                capacity.reserve(edges)
                yield edges
        known: set[Edges] = set()
        fitting, ordered = True, 0
        while fitting and ordered < _ORDERED:
            fitting = False
            for each in orders:
                order = with_capacity(nodes, each, capacity)
                ordered += len(order)
                lots.shuffle(order)
                for edges in trees_of_parts(nodes, order, capacity):
                    if edges not in known and capacity.fits(edges):
                        capacity.reserve(edges)
                        known.add(edges)
                        fitting = True
                        yield edges


def trees_of_parts(nodes: Nodes, order: Sequence[int], capacity: TreeCapacity) -> Iterator[Edges]:
    """Yields trees over the halves of ``order``, its quarters and so on, but for parts with a node
    whose switch may hold no more tree by then."""
    for terminals in islice(halving(order, smallest=2), 1, None):
        # A tree is not grown to be thrown away: of 10,000 switches most would be.
        if any(capacity.left[nodes.names[node]] <= 0 for node in terminals):
            continue
        edges = nodes.steiner(terminals)
        hosts = sum(len(nodes.hosts[node]) for node in terminals)
        if len(edges) - hosts >= FEWEST_EDGES:
            yield edges
