"""Algorithm 5.1 written plainly with networkx, as a reader of WERNECKE 5.2.7 would write it.

The yardstick of the encoder: of its labels, and of its speed. It shares no code with the encoder,
and keeps the letters of the text in its comments.

Where the text leaves something open, this does as follows.

- ``sort(T_virt)``: trees that replace the most hops of the first tree come first, then by id.
- Line 8 counts edges. An edge between two switches of the delivery tree that is none of its own
  is flooded from either end, so it takes two stop labels: each is counted.
- Virtual edges over failed links carry nothing but are flooded, so they are stopped, too.
- A host hangs on one switch only: Steiner trees are taken over switches, and each receiver's own
  link is joined to them. That is the same tree in less time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import networkx as nx
from networkx.algorithms.approximation import steiner_tree

from stackcast.udfs.network.labels import HOP, STOP, TREE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree

Pair = tuple[str, str]
Steiner = Callable[[nx.Graph, list[str]], Iterable[Pair]]


def kou(graph: nx.Graph, terminals: list[str]) -> Iterable[Pair]:
    """Kou, Markowsky and Berman's tree; equal costs are settled by Python's hashes."""
    return steiner_tree(graph, terminals, weight="weight", method="kou").edges


def mehlhorn(graph: nx.Graph, terminals: list[str]) -> Iterable[Pair]:
    """Mehlhorn's tree, a faster way to the bound of Kou's."""
    return steiner_tree(graph, terminals, weight="weight", method="mehlhorn").edges


def takahashi_matsuyama(graph: nx.Graph, terminals: list[str]) -> Iterable[Pair]:
    """The nearest terminal is joined by a shortest path, again and again; the first one is the
    root."""
    inside, waiting, edges = {terminals[0]: None}, dict.fromkeys(terminals[1:]), []
    while waiting:
        distances, paths = nx.multi_source_dijkstra(graph, inside, weight="weight")
        path = paths[min(waiting, key=lambda node: (distances[node], node))]
        edges += nx.utils.pairwise(path)
        for node in path:
            inside[node] = None
            waiting.pop(node, None)
    return edges


STEINER: dict[str, Steiner] = {
    "kou": kou,
    "mehlhorn": mehlhorn,
    "takahashi-matsuyama": takahashi_matsuyama,
}


@dataclass(frozen=True)
class PlainEncoding:
    """The result of Algorithm 5.1: ids of trees, and directed links of hops (E+) and stops (E-).

    edges: ``(u, v)`` as the notification flows, without the publisher's own link.
    """

    trees: tuple[int, ...] = ()
    hops: frozenset[Pair] = frozenset()
    stops: frozenset[Pair] = frozenset()
    edges: tuple[Pair, ...] = field(default=(), repr=False)

    @property
    def cost(self) -> int:
        """Labels of the stack (line 9)."""
        return len(self.trees) + len(self.hops) + len(self.stops)

    def labels(self, network: Network) -> tuple[int, ...]:
        """Returns the stack: trees, then hops and stops."""
        make = network.labels.label
        return (
            *(make(TREE, number) for number in self.trees),
            *(make(HOP, network.link(*pair).id) for pair in sorted(self.hops)),
            *(make(STOP, network.link(*pair).id) for pair in sorted(self.stops)),
        )


class PlainGreedy:
    """Encodes for one network and its active ``trees``; ``steiner`` is a key of ``STEINER``."""

    def __init__(
        self, network: Network, trees: Iterable[VirtualTree], steiner: str = "mehlhorn"
    ) -> None:
        self._network = network
        self._steiner = STEINER[steiner]
        self._trees = [tree for tree in trees if tree.state == "active"]
        self._links = nx.Graph()
        self._links.add_nodes_from(network.switches)
        for link in network.links:
            if link.neighbor in network.switches and network.usable(link):
                self._links.add_edge(link.switch, link.neighbor, weight=link.weight)

    def encode(self, publisher: str, receivers: Iterable[str]) -> PlainEncoding:
        """Algorithm 5.1. Stacks may exceed what a switch parses.

        Receivers must be within reach of the publisher, and the publisher none of them.
        """
        hosts = sorted(set(receivers))
        if not hosts:
            return PlainEncoding()
        source = self._network.hosts[publisher].switch
        reached = nx.node_connected_component(self._links, source)
        graph = self._links.subgraph(reached).copy()
        switches = {self._network.hosts[host].switch for host in hosts} - {source}
        terminals = [source, *sorted(switches)]
        leaves = {_pair(self._network.hosts[host].switch, host) for host in hosts}

        chosen: list[VirtualTree] = []  # T
        virtual: set[Pair] = set()  # E_virt
        plain = self._delivery(graph, terminals, leaves)
        best = self._encoding(publisher, chosen, virtual, plain)  # E+, E-, C
        for tree in sorted(self._trees, key=lambda tree: (-len(tree.edges & plain), tree.id)):
            more = virtual | tree.edges  # E'_virt
            for u, v in more - virtual:
                if graph.has_edge(u, v):
                    graph[u][v]["weight"] = 0
            delivery = self._delivery(graph, terminals, leaves)  # E_dist
            tried = self._encoding(publisher, [*chosen, tree], more, delivery)
            if tried.cost < best.cost:
                chosen.append(tree)
                virtual, best = more, tried
                continue
            for u, v in more - virtual:
                if graph.has_edge(u, v):
                    graph[u][v]["weight"] = self._links[u][v]["weight"]
        return best

    def _delivery(self, graph: nx.Graph, terminals: list[str], leaves: set[Pair]) -> set[Pair]:
        if len(terminals) == 1:
            return set(leaves)
        return {_pair(u, v) for u, v in self._steiner(graph, terminals)} | leaves

    def _encoding(
        self, publisher: str, trees: list[VirtualTree], virtual: set[Pair], delivery: set[Pair]
    ) -> PlainEncoding:
        """Lines 7 and 8: what the trees lack of ``delivery``, and what they flood besides."""
        around: dict[str, list[str]] = {}
        for u, v in delivery:
            around.setdefault(u, []).append(v)
            around.setdefault(v, []).append(u)
        flooded: dict[str, list[str]] = {}
        for u, v in virtual:
            flooded.setdefault(u, []).append(v)
            flooded.setdefault(v, []).append(u)
        source = self._network.hosts[publisher].switch
        edges: list[Pair] = []
        hops: set[Pair] = set()
        stops: set[Pair] = set()
        waiting, came_from = deque([source]), {source: publisher}
        while waiting:
            u = waiting.popleft()
            for v in sorted(around.get(u, ())):
                if v == came_from[u]:
                    continue
                edges.append((u, v))
                if _pair(u, v) not in virtual:
                    hops.add((u, v))
                if v in self._network.switches:
                    came_from[v] = u
                    waiting.append(v)
            stops |= {
                (u, v)
                for v in flooded.get(u, ())
                if v != came_from[u] and _pair(u, v) not in delivery
            }
        ids = tuple(tree.id for tree in trees)
        return PlainEncoding(ids, frozenset(hops), frozenset(stops), tuple(edges))


def _pair(u: str, v: str) -> Pair:
    return (u, v) if u < v else (v, u)
