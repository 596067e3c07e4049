"""Multicast trees by other authors, to compare with: branch-aware Steiner trees, and shortest paths
over weights of switches.

- The Branch-aware Steiner Tree problem (BST), and the Branch-Aware Edge Reduction Algorithm (BAERA)
  for it: Huang, Hung, Lin and Yang, "Scalable and bandwidth-efficient multicast for
  software-defined networks", GLOBECOM 2014, arXiv:1404.3454 (WERNECKE 7.2, [55]). A switch where a
  tree branches needs a rule of the group, others forward as for one receiver; so BST asks for the
  tree with the least weight of links plus ``branch_weight`` for each node of three or more tree
  links. It is NP-hard. BAERA first grows a tree as Takahashi and Matsuyama do, preferring branches
  that are there, then tries to do without each branch node, or with a neighbor in its place.
- The Extended Dijkstra's Shortest Path algorithm (EDSP): Jiang, Huang, Liao and Chen, "Extending
  Dijkstra's shortest path algorithm for software defined networking", APNOMS 2014 (WERNECKE 7.2,
  [65]). Its definition is Dijkstra's, but for a way that also pays the weight of each switch it
  passes: the delay of the device, as a link's weight is that of the link. Where the weights come
  from (there: the bits that the flows put on a device, by its speed) is the caller's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from math import isfinite

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.steiner import check_attached
from stackcast.udfs.trees.strategies.strategy import Edges
from stackcast.udfs.trees.switch_graph import SwitchGraph, edge

#: A branch node, in lightest links. What it is worth is the operator's to say.
BRANCH_WEIGHT = 5

_Pairs = frozenset[tuple[int, int]]


def branch_aware_tree(
    network: Network,
    terminals: Iterable[str],
    free: Collection[tuple[str, str]] = frozenset(),
    graph: SwitchGraph | None = None,
    branch_weight: float = BRANCH_WEIGHT,
) -> Edges:
    """Returns undirected edges (sorted pairs) of a tree of few links and branch nodes (BAERA).

    As ``steiner_tree``; the first terminal is the source, from which the tree grows. Hosts'
    links count as branches of their switches.

    Raises NetworkError ``UNREACHABLE``, ``UNKNOWN_HOST``, and ``BAD_WEIGHT`` for a
    ``branch_weight`` below 0.
    """
    if not branch_weight >= 0:
        raise NetworkError("BAD_WEIGHT", f"a branch weighs {branch_weight}: it must be at least 0")
    graph = graph or SwitchGraph(network)
    ends = locate(network, graph, terminals)
    if not ends.switches:
        return frozenset()
    problem = _Problem(graph, ends, costs(graph, free), branch_weight)
    tree = problem.grown()
    tree = problem.without_branches(tree)
    tree = problem.with_branches_moved(tree)
    return named(graph, tree, ends)


def branch_nodes(edges: Edges) -> list[str]:
    """Returns the nodes of three or more edges, sorted: those where a copy is made."""
    degree: dict[str, int] = {}
    for pair in edges:
        for node in pair:
            degree[node] = degree.get(node, 0) + 1
    return sorted(node for node, links in degree.items() if links > 2)


@dataclass(frozen=True)
class _Problem:
    graph: SwitchGraph
    ends: Terminals
    cost: Cost
    branch_weight: float

    def value(self, tree: _Pairs) -> float:
        """Cost of the links, and of the branch nodes in units of the lightest link."""
        links = self.graph.adjacency
        lightest = min((cost for row in links for _, _, cost in row), default=1)
        total = 0
        for u, v in tree:
            total += next(self.cost(number, cost) for w, number, cost in links[u] if w == v)
        return total + self.branch_weight * lightest * len(self.branches(tree))

    def degrees(self, tree: Iterable[tuple[int, int]]) -> dict[int, int]:
        degree = dict(self.ends.hanging)
        for pair in tree:
            for u in pair:
                degree[u] = degree.get(u, 0) + 1
        return degree

    def branches(self, tree: _Pairs) -> list[int]:
        """Branch nodes, those of the fewest links first, then by index."""
        degree = self.degrees(tree)
        return sorted((u for u in degree if degree[u] > 2), key=lambda u: (degree[u], u))

    def grown(self) -> _Pairs:
        """Grows a tree: the nearest terminal joins, at a branch node where distances are equal."""
        source = self.ends.switches[0]
        place = {u: n for n, u in enumerate(self.ends.switches)}
        inside = {source}
        tree: set[tuple[int, int]] = set()
        waiting = [u for u in self.ends.switches if u != source]
        while waiting:
            degree = self.degrees(tree)
            roots = sorted(inside, key=lambda u: (degree.get(u, 0) < 3, u))
            distance, parent = search(self.graph, roots, self.cost)
            apart = sorted(self.graph.names[u] for u in waiting if u not in distance)
            if apart:
                raise NetworkError(
                    "UNREACHABLE",
                    f"no usable link leads from {self.graph.names[source]!r} to {', '.join(apart)}",
                    switches=apart,
                )
            nearest = min(waiting, key=lambda u: (distance[u], place[u]))
            path = way(parent, nearest)
            tree.update(_pairs(path))
            inside.update(path)
            waiting = [u for u in waiting if u not in inside]
        return frozenset(tree)

    def without_branches(self, tree: _Pairs) -> _Pairs:
        """Deletion: a branch node goes, and the parts that it held join nearby branch nodes."""
        for node in self.branches(tree):
            if node in self.ends.switches:
                continue
            rest = _neighbors(pair for pair in tree if node not in pair)
            others = [u for u in self.branches(tree) if u != node]
            for start in sorted(_neighbors(tree).get(node, ())):
                part = _part(rest, start)
                distance, parent = search(self.graph, [start], self.cost, avoid=node)
                near = [u for u in others if u in distance and u not in part]
                near = near or [u for u in sorted(rest) if u in distance and u not in part]
                if near:
                    goal = min(near, key=lambda u: (distance[u], u))
                    _add(rest, _pairs(way(parent, goal)))
            tree = self._better(tree, rest)
        return tree

    def with_branches_moved(self, tree: _Pairs) -> _Pairs:
        """Alternation: a branch node's place is taken by a switch next to it."""
        for node in self.branches(tree):
            if node in self.ends.switches:
                continue
            for neighbor, _, _ in self.graph.adjacency[node]:
                around = sorted(_neighbors(tree).get(node, ()))
                rest = _neighbors(pair for pair in tree if node not in pair)
                _, parent = search(self.graph, [neighbor], self.cost, avoid=node)
                for end in around:
                    if end in parent:
                        _add(rest, _pairs(way(parent, end)))
                moved = self._better(tree, rest)
                if moved != tree:
                    tree = moved
                    break
        return tree

    def _better(self, tree: _Pairs, graph: dict[int, set[int]]) -> _Pairs:
        """The tree of ``graph`` if it joins all terminals and is worth more than ``tree``."""
        source = self.ends.switches[0]
        if not _part(graph, source).issuperset(self.ends.switches):
            return tree
        other = frozenset(cut(graph, source, self.ends.switches))
        return other if self.value(other) < self.value(tree) else tree


def _pairs(path: list[int]) -> Iterator[tuple[int, int]]:
    return ((min(u, v), max(u, v)) for u, v in pairwise(path))


def _neighbors(tree: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    _add(found, tree)
    return found


def _add(graph: dict[int, set[int]], pairs: Iterable[tuple[int, int]]) -> None:
    for u, v in pairs:
        graph.setdefault(u, set()).add(v)
        graph.setdefault(v, set()).add(u)


def _part(graph: dict[int, set[int]], start: int) -> set[int]:
    """The nodes that are joined with ``start``."""
    seen, waiting = {start}, [start]
    while waiting:
        for v in graph.get(waiting.pop(), ()):
            if v not in seen:
                seen.add(v)
                waiting.append(v)
    return seen


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
    """Returns the switches from the root of a search to ``end``."""
    path = [end]
    while parent[path[-1]] >= 0:
        path.append(parent[path[-1]])
    return path[::-1]


def cut(
    neighbors: Mapping[int, Collection[int]], root: int, wanted: Iterable[int]
) -> set[tuple[int, int]]:
    """Returns the edges, lower index first, of a breadth-first tree from ``root`` that lead to
    ``wanted``.

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
    """Returns the edges, lower index first, from ``ends`` up to the root of a search."""
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
    """Returns a tree of switches by name, with the links of the hosts."""
    return frozenset(edge(graph.names[u], graph.names[v]) for u, v in pairs) | terminals.links


_NOTHING: Mapping[str, float] = {}


def extended_shortest_path_tree(
    network: Network,
    terminals: Iterable[str],
    free: Collection[tuple[str, str]] = frozenset(),
    graph: SwitchGraph | None = None,
    switch_weights: Mapping[str, float] = _NOTHING,
) -> Edges:
    """Returns undirected edges (sorted pairs) of the shortest paths from the first terminal to the
    others.

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
