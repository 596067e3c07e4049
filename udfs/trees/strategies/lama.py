"""The strategy ``lama``: a shared tree a cluster of publishers that are near each other (WERNECKE
5.5.2, [76]).

It is the Locality-Aware Multicast Approach of Lin, Lai, Teng, Liao and Kao, "Scalable multicasting
with multiple shared trees in software defined networking", Journal of Network and Computer
Applications 78, 2017. The rendezvous point of a cluster is the switch with the least distance to
all its publishers, and its tree the shortest paths from there to the publishers and to the
receivers of any of them. The public part of the paper leaves open how near is near: here the
publishers of a cluster are at most ``radius`` apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.steiner import check_attached
from stackcast.udfs.trees.strategies.strategy import Edges, Situation
from stackcast.udfs.trees.switch_graph import SwitchGraph, edge

#: Lightest links between publishers of a cluster: on the fabric, those of a pod are near each
#: other.
RADIUS = 2


@dataclass(frozen=True)
class Lama:
    """Gives publishers at most ``radius`` lightest links apart one tree to all who may subscribe.

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
            distance, _ = graph.shortest_paths(graph.index[network.hosts[cluster[0]].switch])
            wanted = set[str]().union(*(potential[name] for name in cluster))
            receivers = [
                name
                for name, host in network.hosts.items()
                if name in wanted and name in attached and distance[graph.index[host.switch]] >= 0
            ]
            yield shared_tree(network, cluster, receivers, graph)


def shared_tree(
    network: Network,
    sources: Sequence[str],
    receivers: Iterable[str],
    graph: SwitchGraph | None = None,
) -> Edges:
    """Returns the undirected edges (sorted pairs) of the tree that a cluster of ``sources`` shares.

    Sources and receivers are hosts or switches. No tree for no sources.

    Raises NetworkError ``UNREACHABLE``, ``UNKNOWN_HOST``.
    """
    if not sources:
        return frozenset()
    graph = graph or SwitchGraph(network)
    names = [*sources, *receivers]
    hosts = [network.host(name) for name in names if name not in graph.index]
    check_attached(network, [host.name for host in hosts])
    root = graph.index[rendezvous_point(network, sources, graph)]
    distance, parent = graph.shortest_paths(root)
    edges = {edge(host.switch, host.name) for host in hosts}
    for end in _switches(network, names, graph):
        if distance[end] < 0:
            raise NetworkError(
                "UNREACHABLE",
                f"there is no usable path from {graph.names[root]!r} to {graph.names[end]!r}",
                switches=[graph.names[end]],
            )
        node = end
        while (above := parent[node]) >= 0:
            edges.add(edge(graph.names[above], graph.names[node]))
            node = above
    return frozenset(edges)


def rendezvous_point(
    network: Network, sources: Sequence[str], graph: SwitchGraph | None = None
) -> str:
    """Returns the switch with the least sum of distances to the sources; ties by device id.

    Raises NetworkError ``UNREACHABLE`` if no switch reaches them all, ``UNKNOWN_HOST``.
    """
    graph = graph or SwitchGraph(network)
    total = dict.fromkeys(range(len(graph.names)), 0)
    for root in _switches(network, sources, graph):
        distance, _ = graph.shortest_paths(root)
        total = {u: far + distance[u] for u, far in total.items() if distance[u] >= 0}
    if not total:
        raise NetworkError(
            "UNREACHABLE",
            f"no switch can reach all of {', '.join(sources)}",
            switches=list(sources),
        )
    return graph.names[min(total, key=lambda u: (total[u], u))]


def source_clusters(
    network: Network,
    sources: Iterable[str],
    radius: float = RADIUS,
    graph: SwitchGraph | None = None,
) -> list[list[str]]:
    """Groups the sources, none more than ``radius`` lightest links away from another of its group.

    A source joins the first cluster that it is near to, in the order given; so every source is in
    exactly one. Raises NetworkError ``UNKNOWN_HOST``, and ``BAD_SIZE`` for a radius below 0.
    """
    if not radius >= 0:
        raise NetworkError("BAD_SIZE", f"the radius is {radius} links, but must be at least 0")
    graph = graph or SwitchGraph(network)
    lightest = min((cost for row in graph.adjacency for _, _, cost in row), default=1)
    clusters: list[list[str]] = []
    places: list[set[int]] = []
    reach: dict[int, set[int]] = {}
    for source, root in zip(names := list(sources), _switches(network, names, graph), strict=True):
        if root not in reach:
            distance, _ = graph.shortest_paths(root)
            reach[root] = {u for u, far in enumerate(distance) if 0 <= far <= radius * lightest}
        for cluster, place in zip(clusters, places, strict=True):
            if place <= reach[root]:
                cluster.append(source)
                place.add(root)
                break
        else:
            clusters.append([source])
            places.append({root})
    return clusters


def _switches(network: Network, names: Iterable[str], graph: SwitchGraph) -> list[int]:
    return [
        graph.index[name] if name in graph.index else graph.index[network.host(name).switch]
        for name in names
    ]
