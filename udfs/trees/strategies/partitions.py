"""The strategies ``partitions`` and ``clusters``: groups of nodes with hubs, and backbones between
the hubs (WERNECKE 6.3.2, 6.4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stackcast.udfs.trees.strategies.hub_and_spoke import Group, hub_and_spoke
from stackcast.udfs.trees.strategies.nodes import Nodes
from stackcast.udfs.trees.strategies.strategy import Edges, Situation

#: Share of the average traffic of a populated node from which on a node counts as dense.
_DENSE = 0.5


@dataclass(frozen=True)
class Partitions:
    """Groups the whole network by its topology: every node with subscribers of a partition is a
    member, those with the most subscribers first."""

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


@dataclass(frozen=True)
class Clusters:
    """Groups the dense nodes of each partition, those with the most traffic first.

    Its trees may pass through other nodes of the partition, whose hosts they leave out. It yields
    nothing without clients.
    """

    name: str = "clusters"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        traffic = traffic_by_node(nodes, situation)
        yield from hub_and_spoke(nodes, clusters_of(nodes, traffic))


def partitions_of(nodes: Nodes) -> list[list[int]]:
    """Returns the nodes of each partition, in ascending order."""
    return communities([[neighbor for neighbor, _ in near] for near in nodes.neighbors])


def communities(neighbors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Returns groups of nodes such that merging no two of them would raise the modularity (Clauset,
    Newman and Moore 2004).

    neighbors: undirected, ``neighbors[u]`` holds v where ``neighbors[v]`` holds u, in any order.
    Every node is in one group; groups ascend by their first node, nodes ascend within.
    """
    # Only the retuning comes here: Spark's workers need not load networkx.
    import networkx as nx  # noqa: PLC0415

    # Integers in ascending order: no hash that differs by process settles which of equal merges is
    # taken.
    graph = nx.Graph()
    graph.add_nodes_from(range(len(neighbors)))
    graph.add_edges_from((u, v) for u, near in enumerate(neighbors) for v in sorted(near) if u < v)
    return sorted(sorted(group) for group in nx.community.greedy_modularity_communities(graph))


def traffic_by_node(nodes: Nodes, situation: Situation) -> list[int]:
    """Counts notifications from and to the hosts of each node, int by node.

    A publisher without statistics counts as one notification to all that may receive it.
    """
    network, statistics = situation.network, situation.statistics
    traffic = [0] * len(nodes.names)

    def count(hosts: frozenset[str], notifications: int) -> None:
        for name in hosts:
            if name in network.hosts:
                traffic[nodes.index[network.hosts[name].switch]] += notifications

    for each in statistics.publications:
        count(each.receivers | {each.publisher}, each.notifications)
    for publisher, receivers in situation.clients.potential.items():
        if not statistics.notifications(publisher):
            count(receivers | {publisher}, 1)
    return traffic


def clusters_of(nodes: Nodes, traffic: list[int]) -> list[Group]:
    """Returns the partitions that have dense nodes, with those as members."""
    busy = [node for node in nodes.populated() if traffic[node]]
    if not busy:
        return []
    least = _DENSE * sum(traffic[node] for node in busy) / len(nodes.populated())
    groups = []
    for area in partitions_of(nodes):
        dense = [n for n in area if nodes.hosts[n] and traffic[n] and traffic[n] >= least]
        if dense:
            groups.append(Group(area, sorted(dense, key=lambda node: -traffic[node])))
    return groups
