"""Broadcast trees: each joins all hosts of the network under one label (WERNECKE 5.3.2)."""

from __future__ import annotations

from heapq import heappop, heappush

from udfs.trees.network import Network
from udfs.trees.steiner import SwitchGraph, edge
from udfs.trees.virtual_tree import VirtualTree


def broadcast_trees(network: Network, count: int = 1, first_id: int = 1) -> list[VirtualTree]:
    """Up to ``count`` different broadcast trees with ids from ``first_id`` on.

    A tree is the shortest paths from its root to all hosts that usable links lead to. Roots
    are the spine switches where the network names any (layer ``spine``), else all switches;
    those nearest to all hosts first, then by device id. Fewer trees come back where fewer
    differ, none for a network of no hosts.
    """
    graph = SwitchGraph(network)
    spines = [s.name for s in network.switches.values() if s.layer == "spine"]
    ranked = []
    for name in spines or graph.names:
        distance, parent = _shortest_paths(graph, graph.index[name])
        reached = [
            d for host in network.hosts.values() if (d := distance[graph.index[host.switch]]) >= 0
        ]
        ranked.append((-len(reached), sum(reached), graph.index[name], parent, distance))
    ranked.sort(key=lambda row: row[:3])
    trees: list[VirtualTree] = []
    known: set[frozenset[tuple[str, str]]] = set()
    for _, _, root, parent, distance in ranked:
        if len(trees) == count:
            break
        edges = _paths_to_hosts(network, graph, root, parent, distance)
        if edges and edges not in known:
            known.add(edges)
            trees.append(VirtualTree(first_id + len(trees), edges, "broadcast"))
    return trees


def _shortest_paths(graph: SwitchGraph, root: int) -> tuple[list[int], list[int]]:
    """Distances (-1: out of reach) and parents of the shortest-path tree from ``root``."""
    distance = [-1] * len(graph.names)
    parent = [-1] * len(graph.names)
    heap = [(0, root, -1)]
    while heap:
        reached, u, before = heappop(heap)
        if distance[u] >= 0:
            continue
        distance[u], parent[u] = reached, before
        for v, _, cost in graph.adjacency[u]:
            if distance[v] < 0:
                heappush(heap, (reached + cost, v, u))
    return distance, parent


def _paths_to_hosts(
    network: Network, graph: SwitchGraph, root: int, parent: list[int], distance: list[int]
) -> frozenset[tuple[str, str]]:
    edges: set[tuple[str, str]] = set()
    for host in network.hosts.values():
        u = graph.index[host.switch]
        if distance[u] < 0 or not network.link(host.switch, host.name).up:
            continue
        edges.add(edge(host.switch, host.name))
        while u != root:
            edges.add(edge(graph.names[parent[u]], graph.names[u]))
            u = parent[u]
    return _without_stub(edges, graph.names[root])


def _without_stub(edges: set[tuple[str, str]], root: str) -> frozenset[tuple[str, str]]:
    """Cut the way from the root down to the first branch: it leads to no host."""
    while True:
        at_root = [pair for pair in edges if root in pair]
        if len(at_root) != 1 or len(edges) == 1:
            return frozenset(edges)
        edges.remove(at_root[0])
        u, v = at_root[0]
        root = v if u == root else u
