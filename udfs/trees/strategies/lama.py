"""The strategy ``lama``: a shared tree a cluster of near publishers (WERNECKE 5.5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from udfs.trees.aggregated.locality_aware import RADIUS, locality_aware_tree, source_clusters
from udfs.trees.aggregated.terminals import costs, search
from udfs.trees.strategies.strategy import Edges, Situation
from udfs.trees.switch_graph import SwitchGraph


@dataclass(frozen=True)
class Lama:
    """Publishers at most ``radius`` lightest links apart share a tree to all who may subscribe.

    Clusters with most notifications come first. Stop labels keep notifications from those that only
    others of the cluster publish to, where LAMA itself would deliver to all.
    """

    radius: float = RADIUS
    name: str = "lama"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        network, potential = situation.network, situation.clients.potential
        graph = SwitchGraph(network)
        attached = {
            name for name, host in network.hosts.items() if network.link(host.switch, name).up
        }
        publishers = [name for name in network.hosts if name in attached and potential.get(name)]
        clusters = source_clusters(network, publishers, self.radius, graph)

        def notifications(cluster: list[str]) -> int:
            return sum(map(situation.statistics.notifications, cluster))

        for cluster in sorted(clusters, key=notifications, reverse=True):
            first = graph.index[network.hosts[cluster[0]].switch]
            reached, _ = search(graph, [first], costs(graph, ()))
            wanted = set[str]().union(*(potential[name] for name in cluster))
            receivers = [
                name
                for name, host in network.hosts.items()
                if name in wanted and name in attached and graph.index[host.switch] in reached
            ]
            yield locality_aware_tree(network, cluster, receivers, graph=graph)
