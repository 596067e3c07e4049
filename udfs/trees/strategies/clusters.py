"""clusters: groups with hubs where clients are dense, and backbones between them (WERNECKE
6.4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from udfs.trees.strategies.communities import communities
from udfs.trees.strategies.hub_and_spoke import hub_and_spoke
from udfs.trees.strategies.nodes import Nodes
from udfs.trees.strategies.strategy import Edges, Situation


@dataclass(frozen=True)
class Clusters:
    """As partitions, in the densely populated part of the network only; nothing without clients."""

    name: str = "clusters"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        weights = client_weights(nodes, situation)
        groups = dense_groups(nodes, weights)
        yield from hub_and_spoke(nodes, groups, weights.__getitem__)


def client_weights(nodes: Nodes, situation: Situation) -> list[float]:
    """Expected notifications to each node's hosts, or from them.

    A publisher without statistics counts as one that sent one notification to all that may receive.
    """
    network, statistics = situation.network, situation.statistics
    weights = [0.0] * len(nodes.names)
    counted = set()
    for publication in statistics.publications:
        counted.add(publication.publisher)
        for name in sorted({publication.publisher} | publication.receivers):
            if name in network.hosts:
                weights[nodes.index[network.hosts[name].switch]] += publication.notifications
    for publisher, receivers in sorted(situation.clients.potential.items()):
        if publisher not in counted:
            for name in sorted({publisher} | receivers):
                if name in network.hosts:
                    weights[nodes.index[network.hosts[name].switch]] += 1
    return weights


def dense_groups(nodes: Nodes, weights: list[float]) -> list[list[int]]:
    """Communities among the nodes that, with their neighbors, are heavier than the average.

    Of a node's neighborhood half is its own weight, half the mean of its neighbors': so a node
    without clients in a dense region belongs to it, and a lonely busy one may not. Groups of one
    node are left out.
    """
    total = sum(weights)
    if not total:
        return []
    density = [
        (weight + sum(weights[v] for v, _ in reached) / len(reached)) / 2 if reached else 0.0
        for weight, reached in zip(weights, nodes.neighbors, strict=True)
    ]
    mean = sum(density) / len(density)
    dense = [node for node, each in enumerate(density) if each >= mean]
    place = {node: number for number, node in enumerate(dense)}
    within = [[place[v] for v, _ in nodes.neighbors[node] if v in place] for node in dense]
    groups = [[dense[number] for number in group] for group in communities(within)]
    return [group for group in groups if len(group) > 1]
