"""Broadcast trees: each joins all hosts of the network under one label (WERNECKE 5.3.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.trees.strategies.strategy import Edges
from stackcast.udfs.trees.switch_graph import SwitchGraph, edge

#: Roots that are tried where the network names no spines, and links that their searches may follow
#: together: seconds in a network of ten thousand switches.
_MOST_ROOTS = 256
_MOST_LINKS = 1_000_000


@dataclass(frozen=True)
class RootedTree:
    """One tree: the shortest paths from ``root``, a switch, to all switches and hosts.

    ``parent`` names the next node towards the root, for each node that usable links lead to but
    the root itself.
    """

    root: str
    parent: Mapping[str, str]

    def path(self, node: str) -> Edges:
        """Returns the edges from ``node`` up to the root; none for a node that is out of reach."""
        return frozenset(self._up(node, set()))

    def joining(self, terminals: Iterable[str]) -> Edges:
        """Returns the part of the tree that joins ``terminals`` (WERNECKE, Algorithm 5.2).

        Pruning leaf after leaf until every leaf is a terminal keeps the paths between terminals,
        so those are collected upwards, and the way from the root down to their first branch, if
        no terminal is on it, is cut. Terminals out of reach are left out.
        """
        wanted = {node for node in terminals if node == self.root or node in self.parent}
        joined: set[str] = set()
        edges = [pair for node in wanted for pair in self._up(node, joined)]
        return _without_stub(edges, self.root, wanted)

    def _up(self, node: str, joined: set[str]) -> Iterator[tuple[str, str]]:
        """Yields edges from ``node`` towards the root, as far as the first node already
        ``joined``."""
        while node in self.parent and node not in joined:
            joined.add(node)
            above = self.parent[node]
            yield edge(above, node)
            node = above


def rooted_trees(network: Network) -> Iterator[RootedTree]:
    """Yields shortest-path trees of the whole network, those nearest to all hosts first.

    Roots are the spine switches where the network names any (layer ``spine``), else all switches;
    of a large network those with the most links, at most 256 and fewer of a very large one.
    Trees that reach the most hosts come first, then those of the least distance, then by device id.
    """
    graph = SwitchGraph(network)
    attached = [
        (host.name, graph.index[host.switch])
        for host in network.hosts.values()
        if network.link(host.switch, host.name).up
    ]
    hanging = Counter(switch for _, switch in attached)
    ranked = []
    for root in _roots(network, graph):
        distance, _ = graph.shortest_paths(root)
        reached = [(distance[u], count) for u, count in hanging.items() if distance[u] >= 0]
        hosts = sum(count for _, count in reached)
        ranked.append((-hosts, sum(far * count for far, count in reached), root))
    for _, _, root in sorted(ranked):
        distance, parents = graph.shortest_paths(root)
        parent = {graph.names[v]: graph.names[u] for v, u in enumerate(parents) if u >= 0}
        parent |= {host: graph.names[u] for host, u in attached if distance[u] >= 0}
        yield RootedTree(graph.names[root], parent)


def spine_trees(network: Network) -> list[RootedTree]:
    """Returns the rooted trees among which publishers are spread.

    One a spine switch; a network that names no spines has one, of its most central switch.
    """
    spines = sum(switch.layer == "spine" for switch in network.switches.values())
    return list(islice(rooted_trees(network), spines or 1))


def broadcast_edges(network: Network) -> Iterator[Edges]:
    """Yields the edges of all different broadcast trees, in the order of :func:`rooted_trees`."""
    known: set[Edges] = set()
    for tree in rooted_trees(network):
        edges = tree.joining(network.hosts)
        if edges and edges not in known:
            known.add(edges)
            yield edges


def broadcast_trees(network: Network, count: int = 1, first_id: int = 1) -> list[VirtualTree]:
    """Returns up to ``count`` different broadcast trees with ids from ``first_id`` on.

    A tree is the shortest paths from its root to all hosts that usable links lead to, the roots
    those of :func:`rooted_trees`. Fewer trees come back where fewer differ, none for a network of
    no hosts.
    """
    return [
        VirtualTree(first_id + n, edges, "broadcast")
        for n, edges in enumerate(islice(broadcast_edges(network), max(count, 0)))
    ]


def _roots(network: Network, graph: SwitchGraph) -> list[int]:
    spines = [graph.index[s.name] for s in network.switches.values() if s.layer == "spine"]
    if spines:
        return spines
    most_links = sorted(range(len(graph.names)), key=lambda u: (-len(graph.adjacency[u]), u))
    followed = sum(map(len, graph.adjacency))
    return most_links[: max(1, min(_MOST_ROOTS, _MOST_LINKS // max(followed, 1)))]


def _without_stub(pairs: Iterable[tuple[str, str]], root: str, terminals: set[str]) -> Edges:
    """Cuts the way from the root down to the first branch or terminal: it leads to nobody else."""
    edges = set(pairs)
    below: dict[str, list[str]] = {}
    for u, v in edges:
        below.setdefault(u, []).append(v)
        below.setdefault(v, []).append(u)
    above = ""
    while root not in terminals:
        children = [node for node in below.get(root, ()) if node != above]
        if len(children) != 1:
            break
        edges.discard(edge(root, children[0]))
        above, root = root, children[0]
    return frozenset(edges)
