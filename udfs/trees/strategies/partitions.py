"""partitions: groups with hubs all over the network, and backbones between them (WERNECKE
6.3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from udfs.trees.strategies.communities import communities
from udfs.trees.strategies.hub_and_spoke import Group, hub_and_spoke
from udfs.trees.strategies.nodes import Nodes
from udfs.trees.strategies.strategy import Edges, Situation


@dataclass(frozen=True)
class Partitions:
    """Partitions are communities of great modularity, all their nodes with subscribers members.

    It looks at the topology alone; nodes with many subscribers come first.
    """

    name: str = "partitions"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        groups = []
        for area in partitions_of(nodes):
            populated = [node for node in area if nodes.hosts[node]]
            populated.sort(key=lambda node: -len(nodes.hosts[node]))
            if populated:
                groups.append(Group(area, populated))
        yield from hub_and_spoke(nodes, groups)


def partitions_of(nodes: Nodes) -> list[list[int]]:
    """Nodes of each community, in ascending order."""
    return communities([[neighbor for neighbor, _ in near] for near in nodes.neighbors])
