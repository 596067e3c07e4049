"""Shortest-path trees over weights of links and of switches: the Extended Dijkstra's Shortest Path
algorithm (EDSP) of Jiang, Huang, Liao and Chen, "Extending Dijkstra's shortest path algorithm for
software defined networking", APNOMS 2014 (WERNECKE 7.2, [65]).

Its definition is Dijkstra's, but for a way that also pays the weight of each switch it passes: the
delay of the device, as a link's weight is that of the link. Where the weights come from (there:
the bits that the flows put on a device, by its speed) is the caller's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
from math import isfinite

from benchmarks.trees.terminals import costs, locate, named, upwards
from udfs.errors import NetworkError
from udfs.network.network import Network
from udfs.trees.strategies.strategy import Edges
from udfs.trees.switch_graph import SwitchGraph

_NOTHING: Mapping[str, float] = {}


def extended_shortest_path_tree(
    network: Network,
    terminals: Iterable[str],
    free: Collection[tuple[str, str]] = frozenset(),
    graph: SwitchGraph | None = None,
    switch_weights: Mapping[str, float] = _NOTHING,
) -> Edges:
    """Undirected edges (sorted pairs) of the shortest paths from the first terminal to the others.

    As ``steiner_tree``, but for the first terminal, which is the source. ``switch_weights``: in
    the unit of links' weights, at least 0; switches without one weigh nothing, and with none the
    tree is that of plain shortest paths. Ties are settled by device id.

    Raises NetworkError ``UNREACHABLE``, ``UNKNOWN_HOST``, and ``BAD_WEIGHT`` for the weight of a
    switch that is below 0 or no number.
    """
    for name, weight in switch_weights.items():
        if not (isfinite(weight) and weight >= 0):
            raise NetworkError(
                "BAD_WEIGHT", f"switch {name!r} weighs {weight}: it must be at least 0", switch=name
            )
    graph = graph or SwitchGraph(network)
    ends = locate(network, graph, terminals)
    if not ends.switches:
        return frozenset()
    cost = costs(graph, free)
    # What a unit of weight costs in the graph: links of one weight cost the same both ways.
    scale = _unit(network, graph)
    passing = [switch_weights.get(name, 0.0) * scale for name in graph.names]
    parent: dict[int, int] = {}
    heap = [(0.0, ends.switches[0], -1)]
    while heap:
        far, u, before = heappop(heap)
        if u in parent:
            continue
        parent[u] = before
        for v, number, length in graph.adjacency[u]:
            if v not in parent:
                heappush(heap, (far + passing[u] + cost(number, length), v, u))
    apart = sorted(graph.names[u] for u in ends.switches if u not in parent)
    if apart:
        raise NetworkError(
            "UNREACHABLE",
            f"no usable link leads from {graph.names[ends.switches[0]]!r} to {', '.join(apart)}",
            switches=apart,
        )
    return named(graph, upwards(parent, ends.switches), ends)


def _unit(network: Network, graph: SwitchGraph) -> float:
    """Cost in the graph of a weight of 1."""
    for u, name in enumerate(graph.names):
        for v, _, cost in graph.adjacency[u]:
            return cost / network.link(name, graph.names[v]).weight
    return 1.0
