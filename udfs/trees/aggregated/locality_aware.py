"""Shared trees for senders that are near each other: the Locality-Aware Multicast Approach (LAMA)
of Lin, Lai, Teng, Liao and Kao, "Scalable multicasting with multiple shared trees in software
defined networking", Journal of Network and Computer Applications 78, 2017 (WERNECKE 5.5.2, [76]).

Sources in each other's vicinity form a cluster. Its rendezvous point is the switch with the least
distance to all of them, and its tree the shortest paths from there to the sources and to the
receivers of any of them. How near is near is not said in what is public of the paper: here the
sources of a cluster are at most ``radius`` apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from udfs.errors import NetworkError
from udfs.network.network import Network
from udfs.trees.aggregated.extended_dijkstra import extended_shortest_path_tree
from udfs.trees.aggregated.terminals import costs, search
from udfs.trees.strategies.strategy import Edges
from udfs.trees.switch_graph import SwitchGraph

#: Lightest links between sources of a cluster: on the fabric, those of a pod are near each other.
RADIUS = 2


def locality_aware_tree(
    network: Network,
    sources: Sequence[str],
    receivers: Iterable[str],
    free: Collection[tuple[str, str]] = frozenset(),
    graph: SwitchGraph | None = None,
) -> Edges:
    """Undirected edges (sorted pairs) of the tree that a cluster of ``sources`` shares.

    Sources and receivers are hosts or switches. No tree for no sources.

    Raises NetworkError ``UNREACHABLE``, ``UNKNOWN_HOST``.
    """
    if not sources:
        return frozenset()
    graph = graph or SwitchGraph(network)
    point = rendezvous_point(network, sources, graph)
    return extended_shortest_path_tree(network, (point, *sources, *receivers), free, graph)


def rendezvous_point(
    network: Network, sources: Sequence[str], graph: SwitchGraph | None = None
) -> str:
    """The switch with the least sum of distances to the sources; ties by device id.

    Raises NetworkError ``UNREACHABLE`` where no switch reaches them all, ``UNKNOWN_HOST``.
    """
    graph = graph or SwitchGraph(network)
    total: dict[int, int] = {}
    for n, root in enumerate(_switches(network, sources, graph)):
        distance, _ = search(graph, [root], costs(graph, ()))
        total = {u: far + total.get(u, 0) for u, far in distance.items() if n == 0 or u in total}
    if not total:
        raise NetworkError(
            "UNREACHABLE", f"no switch reaches all of {', '.join(sources)}", switches=list(sources)
        )
    return graph.names[min(total, key=lambda u: (total[u], u))]


def source_clusters(
    network: Network,
    sources: Iterable[str],
    radius: float = RADIUS,
    graph: SwitchGraph | None = None,
) -> list[list[str]]:
    """The sources in groups, none more than ``radius`` lightest links away from another of its own.

    A source joins the first cluster that it is near to, in the order given; so every source is in
    exactly one. Raises NetworkError ``UNKNOWN_HOST``, and ``BAD_SIZE`` for a radius below 0.
    """
    if not radius >= 0:
        raise NetworkError("BAD_SIZE", f"a radius of {radius} links: it must be at least 0")
    graph = graph or SwitchGraph(network)
    lightest = min((cost for row in graph.adjacency for _, _, cost in row), default=1)
    clusters: list[list[str]] = []
    places: list[set[int]] = []
    reach: dict[int, set[int]] = {}
    for source, root in zip(names := list(sources), _switches(network, names, graph), strict=True):
        if root not in reach:
            distance, _ = search(graph, [root], costs(graph, ()))
            reach[root] = {u for u, far in distance.items() if far <= radius * lightest}
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
