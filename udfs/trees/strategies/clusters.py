"""clusters: groups with hubs where clients are dense, and backbones between them (WERNECKE
6.4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from udfs.trees.strategies.hub_and_spoke import Group, hub_and_spoke
from udfs.trees.strategies.nodes import Nodes
from udfs.trees.strategies.partitions import partitions_of
from udfs.trees.strategies.strategy import Edges, Situation

#: Share of the average traffic of a populated node from which on a node counts as dense.
_DENSE = 0.5


@dataclass(frozen=True)
class Clusters:
    """A cluster is what is dense of a partition; the nodes with most traffic come first.

    Its trees may pass through other nodes of the partition, whose hosts they leave out. Nothing
    without clients.
    """

    name: str = "clusters"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        traffic = traffic_by_node(nodes, situation)
        yield from hub_and_spoke(nodes, clusters_of(nodes, traffic))


def traffic_by_node(nodes: Nodes, situation: Situation) -> list[int]:
    """Notifications from and to the hosts of each node, int by node.

    Of publishers without statistics, one notification to all that may receive it.
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
    """The partitions that have dense nodes, with those as members."""
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
