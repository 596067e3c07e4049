"""Parts of the other builders of multicast trees: terminals on the graph of switches, distances,
and trees cut to what joins the terminals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from udfs.network.network import Network
from udfs.trees.steiner import check_attached
from udfs.trees.strategies.strategy import Edges
from udfs.trees.switch_graph import SwitchGraph, edge

Cost = Callable[[int, int], int]
"""Returns the cost of an edge, by its number and what it costs unless it is free."""


@dataclass(frozen=True)
class Terminals:
    """Terminals by switch index.

    ``switches``: in the order of first mention, the source's first. ``links``: those of the hosts
    among the terminals. ``hanging``: how many such hosts a switch has.
    """

    switches: tuple[int, ...]
    links: frozenset[tuple[str, str]]
    hanging: Mapping[int, int]


def locate(network: Network, graph: SwitchGraph, names: Iterable[str]) -> Terminals:
    """Finds the switches of terminals, which are hosts or switches.

    Raises NetworkError ``UNKNOWN_HOST`` and, for a host whose link has failed, ``UNREACHABLE``.
    """
    switches: dict[int, None] = {}
    links: dict[tuple[str, str], int] = {}
    for name in names:
        if name in graph.index:
            switches[graph.index[name]] = None
            continue
        host = network.host(name)
        check_attached(network, [name])
        links[edge(host.switch, name)] = graph.index[host.switch]
        switches[graph.index[host.switch]] = None
    return Terminals(tuple(switches), frozenset(links), Counter(links.values()))


def costs(graph: SwitchGraph, free: Collection[tuple[str, str]]) -> Cost:
    """Returns the cost of an edge: those of ``free`` (sorted pairs) no more than their count."""
    numbers = {graph.edges[pair] for pair in free if pair in graph.edges}
    return lambda number, cost: 1 if number in numbers else cost


def search(
    graph: SwitchGraph, roots: Iterable[int], cost: Cost, avoid: int = -1
) -> tuple[dict[int, int], dict[int, int]]:
    """Distances from the nearest root, and the switch before each on the way (Dijkstra).

    Equal distances are settled by the order of ``roots``, then by index. ``avoid``: a switch that
    no path may cross.
    """
    distance: dict[int, int] = {}
    parent: dict[int, int] = {}
    heap = [(0, place, root, -1) for place, root in enumerate(roots)]
    heap.sort()
    while heap:
        far, place, u, before = heappop(heap)
        if u in distance or u == avoid:
            continue
        distance[u], parent[u] = far, before
        for v, number, length in graph.adjacency[u]:
            if v not in distance:
                heappush(heap, (far + cost(number, length), place, v, u))
    return distance, parent


def way(parent: Mapping[int, int], end: int) -> list[int]:
    """The switches from the root of a search to ``end``."""
    path = [end]
    while parent[path[-1]] >= 0:
        path.append(parent[path[-1]])
    return path[::-1]


def cut(
    neighbors: Mapping[int, Collection[int]], root: int, wanted: Iterable[int]
) -> set[tuple[int, int]]:
    """The edges, lower index first, of a breadth-first tree from ``root`` that lead to ``wanted``.

    ``neighbors``: a graph that joins all of them; it may have cycles and stubs.
    """
    parent = {root: -1}
    order = [root]
    for u in order:
        for v in sorted(neighbors.get(u, ())):
            if v not in parent:
                parent[v] = u
                order.append(v)
    return upwards(parent, wanted)


def upwards(parent: Mapping[int, int], ends: Iterable[int]) -> set[tuple[int, int]]:
    """The edges, lower index first, from ``ends`` up to the root of a search."""
    kept: set[tuple[int, int]] = set()
    for end in ends:
        u = end
        while parent[u] >= 0 and (pair := _pair(u, parent[u])) not in kept:
            kept.add(pair)
            u = parent[u]
    return kept


def _pair(u: int, v: int) -> tuple[int, int]:
    return (u, v) if u < v else (v, u)


def named(graph: SwitchGraph, pairs: Iterable[tuple[int, int]], terminals: Terminals) -> Edges:
    """A tree of switches by name, with the links of the hosts."""
    return frozenset(edge(graph.names[u], graph.names[v]) for u, v in pairs) | terminals.links
