"""partitions: groups with hubs all over the network, and backbones between them (WERNECKE
6.3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from udfs.trees.strategies.communities import communities
from udfs.trees.strategies.hub_and_spoke import hub_and_spoke
from udfs.trees.strategies.nodes import Nodes
from udfs.trees.strategies.strategy import Edges, Situation


@dataclass(frozen=True)
class Partitions:
    """Partitions are communities of greatest modularity. Needs the topology alone."""

    name: str = "partitions"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        groups = communities([[v for v, _ in reached] for reached in nodes.neighbors])
        populated = [group for group in groups if any(nodes.hosts[node] for node in group)]
        yield from hub_and_spoke(nodes, populated, lambda node: len(nodes.hosts[node]))
