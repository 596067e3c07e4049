"""Nodes of a network as topology-aware strategies see it, each a switch with its subscribers
(WERNECKE 6.5.2), and the choice of sets of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from typing import TypeVar

from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.strategies.strategy import Edges
from stackcast.udfs.trees.switch_graph import SwitchGraph, edge

_Item = TypeVar("_Item")


class Nodes:
    """The usable network by node number, in the order of ``network.switches``.

    graph: the links that trees are grown on. names: switch of each node. neighbors: (node, cost)
    over usable links, ascending. hosts: subscribers on each node whose link is up, in the order of
    ``network.hosts``. Hosts that only publish are left out: each would need a stop label.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.graph = SwitchGraph(network)
        self.names = self.graph.names
        self.index = self.graph.index
        self.neighbors = [[(v, cost) for v, _, cost in row] for row in self.graph.adjacency]
        self.hosts: list[list[str]] = [[] for _ in self.names]
        for host in network.hosts.values():
            if host.role == "subscriber" and network.link(host.switch, host.name).up:
                self.hosts[self.index[host.switch]].append(host.name)

    def degree(self, node: int) -> int:
        """Returns the number of usable links to other switches."""
        return len(self.neighbors[node])

    def populated(self) -> list[int]:
        """Returns the nodes with subscribers, ascending."""
        return [node for node, hosts in enumerate(self.hosts) if hosts]

    @cached_property
    def part(self) -> list[int]:
        """The number of each node's component, as :meth:`components` has them."""
        found = [0] * len(self.names)
        for number, component in enumerate(self.components()):
            for node in component:
                found[node] = number
        return found

    def components(self) -> list[list[int]]:
        """Returns the connected components over usable links, each ascending."""
        left = set(range(len(self.names)))
        found = []
        for start in range(len(self.names)):
            if start not in left:
                continue
            left.discard(start)
            component = [start]
            for node in component:
                for neighbor, _ in self.neighbors[node]:
                    if neighbor in left:
                        left.discard(neighbor)
                        component.append(neighbor)
            found.append(sorted(component))
        return found

    def shortest_paths(self, root: int, inside: Collection[int] | None = None) -> dict[int, int]:
        """Returns the parent of each node on the shortest way from ``root`` through ``inside``.

        In the order of distance, ``root`` first, as its own parent; equal costs are settled by
        node number.
        """
        parents: dict[int, int] = {}
        best = {root: 0}
        heap = [(0, root, root)]
        while heap:
            reached, node, parent = heappop(heap)
            if node in parents:
                continue
            parents[node] = parent
            for neighbor, cost in self.neighbors[node]:
                if neighbor in parents or (inside is not None and neighbor not in inside):
                    continue
                if reached + cost <= best.get(neighbor, reached + cost):
                    best[neighbor] = reached + cost
                    heappush(heap, (reached + cost, neighbor, node))
        return parents

    def branches(
        self, parents: Mapping[int, int], ends: Iterable[int], with_hosts: bool = True
    ) -> Edges:
        """Returns the ways from the root of ``parents`` to ``ends``, with the hosts of ``ends``."""
        edges: set[tuple[str, str]] = set()
        for end in ends:
            if with_hosts:
                edges.update(edge(self.names[end], host) for host in self.hosts[end])
            node = end
            while (parent := parents[node]) != node:
                pair = edge(self.names[parent], self.names[node])
                if pair in edges:
                    break
                edges.add(pair)
                node = parent
        return frozenset(edges)

    def steiner(self, terminals: Iterable[int], with_hosts: bool = True) -> Edges:
        """Returns a Steiner tree over nodes that usable links join, with their hosts."""
        nodes = list(terminals)
        hosts = [host for node in nodes for host in self.hosts[node]] if with_hosts else []
        switches = [self.names[node] for node in nodes]
        return steiner_tree(self.network, [*switches, *hosts], graph=self.graph)


def halving(items: Sequence[_Item], smallest: int = 1) -> Iterator[Sequence[_Item]]:
    """Yields consecutive parts of ``items``, largest first, down to ``smallest`` items each: the
    whole, its halves, their halves, … (WERNECKE 5.3.3, 6.2.2).

    Each step cuts every part in two, of which the first has one item more if the count is odd.
    Two parts of a step never share an item.
    """
    step = [items]
    while step:
        kept = [part for part in step if len(part) >= smallest]
        yield from kept
        step = []
        for part in kept:
            if len(part) > 1:
                middle = (len(part) + 1) // 2
                step += [part[:middle], part[middle:]]
