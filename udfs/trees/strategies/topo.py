"""The strategy ``topo``: small trees of one switch and some of its down-links (WERNECKE 5.3.3).

Such trees share no link unless they have the switch in common, so they combine without cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.broadcast import spine_trees
from stackcast.udfs.trees.strategies.strategy import Edges, Situation, TreeCapacity
from stackcast.udfs.trees.switch_graph import edge


@dataclass(frozen=True)
class Topo:
    """Joins sets of 2^n down-links of each switch, and all of them, as far as all ends may hold
    more.

    A switch's down-links lead to its hosts and to switches one layer further from the spines, or
    from the most central switch where the network names no spines. Switches take turns, a tree
    each, so that rules are spread evenly over the network.
    """

    name: str = "topo"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        network = situation.network
        capacity = TreeCapacity(network, budget)
        waiting = [_stars(switch, ends, capacity) for switch, ends in down_links(network).items()]
        while waiting:
            again = []
            for stars in waiting:
                edges = next(stars, None)
                if edges is not None:
                    capacity.reserve(edges)
                    yield edges
                    again.append(stars)
            waiting = again


def down_links(network: Network) -> dict[str, list[str]]:
    """Returns the ends of each switch's usable down-links: hosts, then switches, in the network's
    order."""
    layer = _layers(network)
    place = {name: n for n, name in enumerate((*network.hosts, *network.switches))}
    ends: dict[str, set[str]] = {name: set() for name in network.switches}
    for link in network.links:
        u, v = link.switch, link.neighbor
        if network.usable(link) and (v in network.hosts or layer.get(v, 0) > layer.get(u, 0)):
            ends[u].add(v)
    return {name: sorted(down, key=place.__getitem__) for name, down in ends.items()}


def port_sets(count: int) -> Iterator[tuple[int, ...]]:
    """Yields the subsets of 0..count-1 to install, best first: 2^count of them, for who asks for
    all.

    First all together, then aligned blocks of a power of two, halves before quarters: with them
    each link is in one tree of every size. Then the other pairs, and the other sets of 4, 8, …
    """
    everything = tuple(range(count))
    sizes = [1 << n for n in range(1, count.bit_length()) if 1 << n < count]
    known = {everything}
    yield everything
    for size in reversed(sizes):
        for start in range(0, count - size + 1, size):
            block = everything[start : start + size]
            known.add(block)
            yield block
    for size in sizes:
        yield from (chosen for chosen in combinations(everything, size) if chosen not in known)


def _stars(switch: str, ends: list[str], capacity: TreeCapacity) -> Iterator[Edges]:
    """Yields the switch's trees that fit at the time they are asked for."""
    known: set[Edges] = set()
    while capacity.left[switch] > 0:
        # Sets are of the ends that may hold more now: of many ends most sets have one that may not.
        ends = [end for end in ends if capacity.left.get(end, 1) > 0]
        if len(ends) < 2:
            return
        for chosen in port_sets(len(ends)):
            edges = frozenset(edge(switch, ends[n]) for n in chosen)
            if not capacity.fits(edges):
                break
            if edges not in known:
                known.add(edges)
                yield edges
        else:
            return


def _layers(network: Network) -> dict[str, int]:
    """Counts the usable links between each switch and the nearest spine."""
    neighbors: dict[str, list[str]] = {name: [] for name in network.switches}
    for link in network.links:
        if link.neighbor in neighbors and network.usable(link):
            neighbors[link.switch].append(link.neighbor)
    tops = [tree.root for tree in spine_trees(network)]
    layer = dict.fromkeys(tops, 0)
    for name in tops:
        for neighbor in neighbors[name]:
            if neighbor not in layer:
                layer[neighbor] = layer[name] + 1
                tops.append(neighbor)
    return layer
