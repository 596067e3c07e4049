"""The tree that one notification takes, and the labels that make switches follow it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from udfs.stacks.labels import HOP, STOP, TREE, label
from udfs.trees.network import Network
from udfs.trees.steiner import SwitchGraph
from udfs.trees.virtual_tree import VirtualTree, tree_ports


class StoredTree:
    """A virtual tree by switch index: ``masks[u]`` of ports, ``free`` numbers of edges."""

    def __init__(self, network: Network, graph: SwitchGraph, tree: VirtualTree) -> None:
        self.id = tree.id
        self.masks = [0] * len(graph.names)
        for name, mask in tree_ports(network, tree).items():
            self.masks[graph.index[name]] = mask
        self.free = frozenset(graph.edges[pair] for pair in tree.edges if pair in graph.edges)


class DeliveryTree:
    """A Steiner tree for which the edges of the stored ``trees`` cost nothing.

    Parameters
    ----------
    root, entry: the publisher's switch and the bit of the port that its frames come in by.
    leaves: switch → bits of the ports towards its receivers.

    Every switch on the way must send out of exactly the ports ``needed``. What the stored trees
    lack of them are hops; what they flood besides, the ingress port excepted, are stops.
    ``cost`` counts the labels (Algorithm 5.1, line 9). Raises NetworkError ``UNREACHABLE``.
    """

    __slots__ = ("_graph", "_hops", "_parent", "_stops", "cost", "members", "needed", "trees")

    def __init__(
        self,
        graph: SwitchGraph,
        root: int,
        entry: int,
        leaves: Mapping[int, int],
        trees: Sequence[StoredTree] = (),
    ) -> None:
        self.trees = trees
        self._graph = graph
        free: frozenset[int] = frozenset().union(*(tree.free for tree in trees))
        self.members, self._parent = graph.grow(root, leaves, free)
        needed = dict.fromkeys(self.members, 0)
        needed.update(leaves)
        ingress = {root: entry}
        for v in self.members[1:]:
            u = self._parent[v]
            needed[u] |= graph.bits[u][v]
            ingress[v] = graph.bits[v][u]
        self.needed = needed
        self._hops: dict[int, int] = {}
        self._stops: dict[int, int] = {}
        cost = len(trees)
        for u in self.members:
            flooded = 0
            for tree in trees:
                flooded |= tree.masks[u]
            self._hops[u] = hops = needed[u] & ~flooded
            self._stops[u] = stops = flooded & ~(needed[u] | ingress[u])
            cost += hops.bit_count() + stops.bit_count()
        self.cost = cost

    def overlap(self, tree: StoredTree) -> int:
        """How many of the needed ports ``tree`` would serve."""
        masks = tree.masks
        return sum((mask & masks[u]).bit_count() for u, mask in self.needed.items())

    def labels(self, link_ids: Sequence[Mapping[int, int]]) -> tuple[int, ...]:
        """The stack: trees, then hops and stops in the order of the flow.

        Trees stand first because a switch that scans the stack once must have copied before
        it meets the stop (WERNECKE 5.2.5). ``link_ids[u]`` maps port bits to link ids.
        """
        labels = [label(TREE, tree.id) for tree in self.trees]
        for u in self.members:
            labels += [label(HOP, link_ids[u][bit]) for bit in _bits(self._hops[u])]
            labels += [label(STOP, link_ids[u][bit]) for bit in _bits(self._stops[u])]
        return tuple(labels)

    def edges(self) -> list[tuple[str, str]]:
        """``(parent, child)`` between switches, parents first."""
        names = self._graph.names
        return [(names[self._parent[v]], names[v]) for v in self.members[1:]]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest
