"""Trees of groups around hubs, and backbones between the hubs (WERNECKE 6.3.2, Figure 6.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from udfs.trees.strategies.halving import halving
from udfs.trees.strategies.nodes import Nodes
from udfs.trees.strategies.strategy import Edges


def hub_and_spoke(
    nodes: Nodes, groups: Sequence[Sequence[int]], weight: Callable[[int], float]
) -> Iterator[Edges]:
    """Trees within each group and between the hubs of the groups, in turns.

    groups: nodes that usable links within the group join. weight: how often notifications reach a
    node; the heaviest come first where a choice remains.

    A group's hub is its node with the most links. All its trees are branches of one tree of
    shortest paths from the hub, so any of them combine without a cycle, and all contain the hub.
    """
    hubs = [hub_of(nodes, group, weight) for group in groups]
    sources = [backbones(nodes, hubs)]
    sources += [spokes(nodes, hub, group, weight) for hub, group in zip(hubs, groups, strict=True)]
    yield from in_turns(sources)


def hub_of(nodes: Nodes, group: Sequence[int], weight: Callable[[int], float]) -> int:
    """The node with the most links, then the heaviest, then the first (degree centrality)."""
    return max(group, key=lambda node: (nodes.degree(node), weight(node), -node))


def spokes(
    nodes: Nodes, hub: int, group: Sequence[int], weight: Callable[[int], float]
) -> Iterator[Edges]:
    """Branches from the hub to all populated nodes of the group, to halves, …, to single ones; then
    to pairs and larger combinations."""
    parents = nodes.shortest_paths(hub, frozenset(group))
    order = [node for node in depth_first(parents) if nodes.hosts[node]]
    for ends in halving(order):
        yield nodes.branches(parents, ends)
    heavy = sorted(order, key=lambda node: -weight(node))
    for size in range(2, len(heavy)):
        for ends in combinations(heavy, size):
            yield nodes.branches(parents, ends)


def backbones(nodes: Nodes, hubs: Sequence[int]) -> Iterator[Edges]:
    """Trees over all hubs, over halves, …, over pairs; then over other combinations.

    Hosts are left out: those on a hub are in the trees of its group.
    """
    if len(hubs) < 2:
        return
    parents = nodes.shortest_paths(hubs[0])
    order = [node for node in depth_first(parents) if node in hubs]
    for ends in halving(order, smallest=2):
        yield nodes.steiner(ends, with_hosts=False)
    for size in range(2, len(order)):
        for ends in combinations(order, size):
            yield nodes.steiner(ends, with_hosts=False)


def depth_first(parents: dict[int, int]) -> list[int]:
    """Nodes of a rooted tree such that each branch is a run of the list; first child first."""
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
    """One tree of each source in turn, until all have ended."""
    left = list(sources)
    while left:
        going = []
        for source in left:
            edges = next(source, None)
            if edges is not None:
                yield edges
                going.append(source)
        left = going
