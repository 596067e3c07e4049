"""Steiner trees by shortest paths (Takahashi and Matsuyama): the nearest terminal is joined to
the tree by a shortest path, again and again. At most twice the cost of the best tree."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import heappop, heappush

from udfs.errors import NetworkError
from udfs.trees.network import Link, Network

# Above any path: 16,383 links of weight 1e12 cost less than 2^91.
_UNREACHED = 1 << 100
# A cost is an integer: the weight in 2^-20, then the number of links, which breaks ties.
_HOP_BITS = 16
_WEIGHT_SCALE = 1 << 20


class SwitchGraph:
    """The usable links between switches, by index, ready for many trees.

    ``names`` and ``index`` translate switches; ``edges`` numbers undirected edges, each a
    sorted pair of names; ``bits[u][v]`` is the port bit (``1 << port - 1``) of u towards v.
    """

    def __init__(self, network: Network) -> None:
        self.names: tuple[str, ...] = tuple(network.switches)
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        self.edges: dict[tuple[str, str], int] = {}
        self.bits: list[dict[int, int]] = [{} for _ in self.names]
        self.adjacency: list[list[tuple[int, int, int]]] = [[] for _ in self.names]
        for link in network.links:
            if link.neighbor in self.index and network.usable(link):
                self._add(link)
        for neighbors in self.adjacency:
            neighbors.sort()

    def _add(self, link: Link) -> None:
        u, v = self.index[link.switch], self.index[link.neighbor]
        pair = edge(link.switch, link.neighbor)
        number = self.edges.setdefault(pair, len(self.edges))
        cost = (round(link.weight * _WEIGHT_SCALE) << _HOP_BITS) + 1
        self.bits[u][v] = 1 << link.port - 1
        self.adjacency[u].append((v, number, cost))

    def grow(
        self, root: int, terminals: Iterable[int], free: Collection[int] = frozenset()
    ) -> tuple[list[int], list[int]]:
        """A Steiner tree, rooted: ``(members, parent)``.

        ``members`` holds its switches, parents before children, ``root`` first; ``parent[v]``
        is defined for all of them but the root. Edges of ``free`` (numbers) cost nothing but
        break ties by their count. Equal costs are settled by index, so the answer is one.

        Raises NetworkError ``UNREACHABLE`` with the switches that no usable link leads to.
        """
        adjacency = self.adjacency
        distance = [_UNREACHED] * len(adjacency)
        parent = [-1] * len(adjacency)
        waiting = set(terminals)
        waiting.discard(root)
        members, inside = [root], {root}
        distance[root] = 0
        heap = [(0, root)]
        # One search for the whole tree: a path that joins becomes distance 0, and the search
        # goes on from there; what was learnt about other switches stays an upper bound.
        while waiting:
            if not heap:
                apart = sorted(self.names[switch] for switch in waiting)
                raise NetworkError(
                    "UNREACHABLE",
                    f"no usable link leads from {self.names[root]!r} to {', '.join(apart)}",
                    switches=apart,
                )
            reached, u = heappop(heap)
            if reached > distance[u]:
                continue
            if u in waiting:
                path = []
                while u not in inside:
                    path.append(u)
                    u = parent[u]
                path.reverse()
                members += path
                inside.update(path)
                waiting.difference_update(path)
                for v in path:
                    distance[v] = 0
                    heappush(heap, (0, v))
                continue
            for v, number, cost in adjacency[u]:
                further = reached + (1 if number in free else cost)
                if further < distance[v]:
                    distance[v] = further
                    parent[v] = u
                    heappush(heap, (further, v))
        return members, parent


def edge(u: str, v: str) -> tuple[str, str]:
    """An undirected edge: the pair in sorted order."""
    return (u, v) if u < v else (v, u)


def steiner_tree(
    network: Network, terminals: Iterable[str], free: Collection[tuple[str, str]] = frozenset()
) -> frozenset[tuple[str, str]]:
    """Undirected edges (sorted pairs) of a light tree that joins ``terminals``.

    Terminals are hosts or switches; a host always brings its link and is never passed through.
    Edges of ``free`` (sorted pairs) cost nothing. Failed links are not used. Ties are settled
    by device id.

    Raises NetworkError ``UNREACHABLE``, ``UNKNOWN_HOST``.
    """
    graph = SwitchGraph(network)
    joined: set[tuple[str, str]] = set()
    switches: set[int] = set()
    for name in terminals:
        if name in graph.index:
            switches.add(graph.index[name])
            continue
        host = network.host(name)
        check_attached(network, [name])
        joined.add(edge(host.switch, name))
        switches.add(graph.index[host.switch])
    if switches:
        numbers = {graph.edges[pair] for pair in free if pair in graph.edges}
        members, parent = graph.grow(min(switches), switches, numbers)
        joined.update(edge(graph.names[parent[v]], graph.names[v]) for v in members[1:])
    return frozenset(joined)


def check_attached(network: Network, hosts: Iterable[str]) -> None:
    """Raise NetworkError ``UNREACHABLE`` if a host's only link has failed."""
    cut = sorted(name for name in hosts if not network.link(network.hosts[name].switch, name).up)
    if cut:
        raise NetworkError("UNREACHABLE", f"the link to {', '.join(cut)} has failed", receivers=cut)
