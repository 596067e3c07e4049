"""Trees of groups around hubs, and backbones between the hubs (WERNECKE 6.3.2, Figure 6.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from stackcast.udfs.trees.strategies.nodes import Nodes, halving
from stackcast.udfs.trees.strategies.strategy import Edges

#: Mean number of links between hub and members up to which these are near.
_NEAR = 2


@dataclass(frozen=True)
class Group:
    """One part of the network with trees of its own.

    area: nodes that usable links within the area join. members: those of the area whose hosts its
    trees reach, the most important first.
    """

    area: Sequence[int]
    members: Sequence[int]


def hub_and_spoke(nodes: Nodes, groups: Sequence[Group]) -> Iterator[Edges]:
    """Yields trees within each group and between the hubs of the groups, in turns.

    A group's hub is the node of its area with the most links. All its trees are branches of one
    tree of shortest paths from the hub, so any of them combine without a cycle, and all contain the
    hub.
    """
    hubs = [hub_of(nodes, group) for group in groups]
    sources = [backbones(nodes, hubs)]
    sources += [spokes(nodes, hub, group) for hub, group in zip(hubs, groups, strict=True)]
    yield from in_turns(sources)


def hub_of(nodes: Nodes, group: Group) -> int:
    """Returns the node with the most links (degree centrality), then the lowest number."""
    return max(group.area, key=lambda node: (nodes.degree(node), -node))


def spokes(nodes: Nodes, hub: int, group: Group) -> Iterator[Edges]:
    """Yields branches from the hub to each member, and to all, to halves, quarters, …; then to
    pairs, triples, ….

    If members are near the hub, single ones come first: a notification to a tenth of them takes
    those that it needs, and would have to stop the others of a half. If they are far, each branch
    takes a place in many switches, so the large sets come first, which need few.
    """
    parents = nodes.shortest_paths(hub, frozenset(group.area))
    single: list[Sequence[int]] = [[member] for member in group.members]
    large = list(halving(group.members, smallest=2))
    depth = depths(parents)
    far = sum(depth[member] for member in group.members) > _NEAR * len(single)
    for ends in large + single if far else single + large:
        yield nodes.branches(parents, ends)
    for size in range(2, len(group.members)):
        for chosen in combinations(group.members, size):
            yield nodes.branches(parents, chosen)


def backbones(nodes: Nodes, hubs: Sequence[int]) -> Iterator[Edges]:
    """Yields trees over all hubs that links join, over halves, …, over pairs; then other
    combinations.

    Hosts are left out: those on a hub are in the trees of its group.
    """
    for component in nodes.components():
        joined = [hub for hub in hubs if hub in component]
        if len(joined) < 2:
            continue
        near = nodes.shortest_paths(joined[0])
        order = [node for node in depth_first(near) if node in joined]
        for ends in halving(order, smallest=2):
            yield nodes.steiner(ends, with_hosts=False)
        for size in range(2, len(order)):
            for chosen in combinations(order, size):
                yield nodes.steiner(chosen, with_hosts=False)


def depths(parents: dict[int, int]) -> dict[int, int]:
    """Counts the links from the root to each node."""
    found: dict[int, int] = {}
    for node, parent in parents.items():
        found[node] = 0 if node == parent else found[parent] + 1
    return found


def depth_first(parents: dict[int, int]) -> list[int]:
    """Lists the nodes of a rooted tree such that each branch is a run of the list; nearest child
    first."""
    root = next(iter(parents))
    children: dict[int, list[int]] = {node: [] for node in parents}
    for node, parent in parents.items():
        if node != root:
            children[parent].append(node)
    order, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += reversed(children[node])
    return order


def in_turns(sources: Sequence[Iterator[Edges]]) -> Iterator[Edges]:
    """Yields one tree of each source in turn, until all have ended."""
    left = list(sources)
    while left:
        going = []
        for source in left:
            edges = next(source, None)
            if edges is not None:
                yield edges
                going.append(source)
        left = going
