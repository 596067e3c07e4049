"""The 4-ary tree of STARE IV-B, and what an update costs on it, at best and at worst."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import networkx as nx

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import NetworkBuilder

CHILDREN, LAYERS = 4, 4
SUBSCRIBERS = 16
GRAPH = nx.balanced_tree(CHILDREN, LAYERS - 1)
LEAVES = tuple(node for node in GRAPH if GRAPH.degree(node) == 1)


def links_of_tree(publisher: int, leaves: Iterable[int]) -> set[tuple[int, int]]:
    """Returns the links of the tree from a publisher's switch to these leaves."""
    paths = nx.single_source_shortest_path(GRAPH, publisher)
    return {(min(u, v), max(u, v)) for leaf in leaves for u, v in pairwise(paths[leaf])}


def unicast(publisher: int, leaves: Iterable[int]) -> int:
    """Returns the links that a copy for each crosses."""
    far = nx.single_source_shortest_path_length(GRAPH, publisher)
    return sum(far[leaf] for leaf in leaves)


def extremes(count: int = SUBSCRIBERS) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Returns publisher and leaves where the tree has fewest (``best``) and most links
    (``worst``), and where unicast has: ``unicast best``, ``unicast worst``. Exact, over all
    publishers and all sets of so many leaves."""
    found = {}
    for name, most in (("best", False), ("worst", True)):
        choices = ((p, _leaves(p, count, most)) for p in GRAPH)
        pick = max if most else min
        found[name] = pick(choices, key=lambda choice: len(links_of_tree(*choice)))
        ways = []
        for publisher in GRAPH:
            far = nx.single_source_shortest_path_length(GRAPH, publisher)
            leaves = sorted(LEAVES, key=lambda leaf: far[leaf], reverse=most)[:count]
            ways.append((publisher, tuple(leaves)))
        found[f"unicast {name}"] = pick(ways, key=lambda way: unicast(*way))
    return found


def _leaves(publisher: int, count: int, most: bool) -> tuple[int, ...]:
    """The leaves with which the tree from a publisher has fewest, or most, links: by the best of
    each number of leaves below each switch, the tree hung up at the publisher's."""
    hung = nx.bfs_tree(GRAPH, publisher)
    best = max if most else min

    @cache
    def below(node: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """By number of leaves: links below the node, and the leaves."""
        own = [(0, ())] if node not in LEAVES else [(0, ()), (0, (node,))]
        for child in hung[node]:
            theirs = below(child)
            joined: dict[int, tuple[int, tuple[int, ...]]] = {}
            for a, (links, leaves) in enumerate(own):
                for b, (more, others) in enumerate(theirs):
                    each = links + more + (b > 0), leaves + others
                    seen = joined.get(a + b)
                    joined[a + b] = each if seen is None else best(seen, each, key=lambda e: e[0])
            own = [joined[number] for number in sorted(joined)]
        return tuple(own)

    return below(publisher)[count][1]


def network(publisher: int) -> Network:
    """Returns the tree with a host on each switch, and the publisher ``feed1``."""
    build = NetworkBuilder()
    names = [f"s{node}" for node in GRAPH]
    build.add_switches(names)
    first = f"s{publisher}"
    build.add_hosts([first, *(name for name in names if name != first)], 1, 1)
    for u, v in GRAPH.edges:
        build.connect(f"s{u}", f"s{v}")
    return build.network()
