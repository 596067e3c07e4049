"""Virtual trees: trees of the network that switches hold under one label (WERNECKE 5.2.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.encodings import can_widen
from stackcast.udfs.network.labels import WIDE, LabelFormat
from stackcast.udfs.network.network import Link, Network

State = Literal["installing", "active", "retiring", "retired"]


@dataclass(frozen=True)
class VirtualTree:
    """One stored tree.

    ``id`` (1..1,073,741,823, and what the network's labels have room for) is never used again for
    another tree. ``edges`` are undirected, each a sorted pair of names; hosts may be ends. Stacks
    name ``active`` trees only; switches hold all but ``retired`` ones, which are kept as rows so
    that nobody takes their id again.

    Raises NetworkError ``BAD_TREE_ID``, ``NOT_A_TREE`` (unsorted pair, cycle, not connected,
    no edge).
    """

    id: int
    edges: frozenset[tuple[str, str]]
    strategy: str
    state: State = "active"

    def __post_init__(self) -> None:
        if not 0 < self.id <= WIDE.max_id:
            raise NetworkError(
                "BAD_TREE_ID",
                f"virtual tree {self.id} is not valid: ids are 1..{WIDE.max_id}",
                tree=self.id,
            )
        fault = _fault(self.edges)
        if fault:
            raise NetworkError("NOT_A_TREE", f"virtual tree {self.id}: {fault}", tree=self.id)


def _fault(edges: frozenset[tuple[str, str]]) -> str | None:
    if not edges:
        return "it has no edges"
    leader: dict[str, str] = {}

    def find(node: str) -> str:
        while leader.setdefault(node, node) != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for u, v in sorted(edges):
        if u >= v:
            return f"the ends of edge ({u}, {v}) must be two different nodes in sorted order"
        a, b = find(u), find(v)
        if a == b:
            return f"edge ({u}, {v}) closes a cycle"
        leader[a] = b
    if len(leader) != len(edges) + 1:
        return "its edges do not form a connected graph"
    return None


def stored(trees: Iterable[VirtualTree]) -> list[VirtualTree]:
    """Returns the trees that switches hold: all but the retired ones."""
    return [tree for tree in trees if tree.state != "retired"]


def check_ids(trees: Iterable[VirtualTree], labels: LabelFormat) -> None:
    """Raises NetworkError ``BAD_TREE_ID`` for a tree that labels of this format cannot name."""
    for tree in trees:
        if tree.id > labels.max_id:
            advice = "; 32-bit labels allow more" if can_widen(labels) else ""
            raise NetworkError(
                "BAD_TREE_ID",
                f"virtual tree {tree.id} does not fit in a label: ids are 1..{labels.max_id} "
                f"({labels.max_id.bit_length()} bits){advice}",
                tree=tree.id,
            )


def tree_ports(network: Network, tree: VirtualTree) -> dict[str, int]:
    """Returns the ports of each switch that the tree floods: ``{switch: bitmask, bit port - 1}``.

    Edges over failed links are among them: a tree's label keeps its meaning while links
    fail and come back, so no switch has to be written then. The encoder stops copies that would
    leave by a failed link; one that does so all the same is lost there. For the same reason a tree
    takes one of parallel links, up or down: the encoder sends by another while that one is down.
    Raises NetworkError ``UNKNOWN_LINK`` if an edge is no link of the network.
    """
    ports: dict[str, int] = {}
    for pair in sorted(tree.edges):
        link = edge_link(network, pair)
        ports[link.switch] = ports.get(link.switch, 0) | 1 << link.port - 1
        if link.neighbor_port is not None:
            ports[link.neighbor] = ports.get(link.neighbor, 0) | 1 << link.neighbor_port - 1
    return ports


def edge_link(network: Network, edge: tuple[str, str]) -> Link:
    """Return the link that a stored tree takes for one of its edges, out of a switch.

    Raises:
        NetworkError: ``UNKNOWN_LINK`` if the edge is not a link of the network.
    """
    switch, neighbor = edge if edge[0] in network.switches else (edge[1], edge[0])
    return network.tree_link(switch, neighbor)
