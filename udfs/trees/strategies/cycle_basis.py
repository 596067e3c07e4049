"""A minimum cycle basis: the fewest links that make up all rings of a graph (Horton 1987)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numba import njit

# networkx finds the same number of links, and takes 4.6 s in place of 35 ms for 64 switches with 6
# links each; the rings of its quick cycle_basis have twice the links there, ten times for 1,024
# switches.

# A link costs one, plus a fraction of its own that makes every shortest path the only one:
# without it, paths that tie could hide a ring of the basis.
_LINK = 1 << 80
_FRACTION_BITS = 56
# Nodes × links up to which the basis is exact: seconds. Beyond, rings are taken link by link.
_EXACT = 500_000


def cycle_basis(neighbors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Returns rings, shortest first, each as its nodes in their order, from the lowest on.

    neighbors: undirected, ``neighbors[u]`` holds v where ``neighbors[v]`` holds u. Every ring of
    the graph is a sum (exclusive or of links) of these, and no such set has fewer links. In graphs
    of more than 500,000 nodes times links: the shortest ring through each link, which may be fewer.
    """
    links = [(u, v) for u, reached in enumerate(neighbors) for v in sorted(reached) if u < v]
    fractions = random.Random(0)
    cost = {pair: _LINK + fractions.getrandbits(_FRACTION_BITS) for pair in links}
    if len(neighbors) * len(links) > _EXACT:
        found = _through_each(neighbors, cost)
    else:
        found = list(_independent(_candidates(neighbors, cost), cost))
    return [_from_lowest(ring) for _, ring in found]


_Costs = dict[tuple[int, int], int]
_Ring = tuple[int, list[int]]


def _pair(u: int, v: int) -> tuple[int, int]:
    return (u, v) if u < v else (v, u)


def _shortest(
    neighbors: Sequence[Sequence[int]], cost: _Costs, root: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Returns (distance, parent) from ``root``."""
    distance: dict[int, int] = {}
    parents: dict[int, int] = {}
    heap = [(0, root, root)]
    while heap:
        reached, node, parent = heappop(heap)
        if node in distance:
            continue
        distance[node], parents[node] = reached, parent
        for neighbor in neighbors[node]:
            if neighbor not in distance:
                heappush(heap, (reached + cost[_pair(node, neighbor)], neighbor, node))
    return distance, parents


def _path(parents: dict[int, int], node: int) -> list[int]:
    path = [node]
    while parents[node] != node:
        node = parents[node]
        path.append(node)
    return path


def _candidates(neighbors: Sequence[Sequence[int]], cost: _Costs) -> list[_Ring]:
    """Returns the ring through each node and each link that closes one: a basis is among them."""
    rings = []
    for root in range(len(neighbors)):
        distance, parents = _shortest(neighbors, cost, root)
        for (u, v), weight in cost.items():
            # A ring is found from each of its nodes: taking the lowest of them is enough.
            if u < root or u not in distance or parents[u] == v or parents[v] == u:
                continue
            there, back = _path(parents, u), _path(parents, v)
            if min(*there, *back) == root and not set(there[:-1]) & set(back[:-1]):
                rings.append((distance[u] + distance[v] + weight, there[::-1] + back[:-1]))
    return sorted(rings)


def _independent(candidates: list[_Ring], cost: _Costs) -> Iterator[_Ring]:
    """Yields the rings that are no sum of shorter ones: Gaussian elimination over the links'
    bits."""
    bit = {pair: 1 << number for number, pair in enumerate(cost)}
    reduced: dict[int, int] = {}
    for weight, ring in candidates:
        row = 0
        for u, v in pairwise([*ring, ring[0]]):
            row ^= bit[_pair(u, v)]
        while row and (pivot := row.bit_length()) in reduced:
            row ^= reduced[pivot]
        if row:
            reduced[row.bit_length()] = row
            yield weight, ring


def _through_each(neighbors: Sequence[Sequence[int]], cost: _Costs) -> list[_Ring]:
    offset = np.cumsum([0, *map(len, neighbors)])
    target = np.array([v for reached in neighbors for v in reached], np.int64)
    # A way through all nodes has a sum that an int64 holds.
    room = 62 - len(neighbors).bit_length()
    fraction = np.array(
        [
            (cost[_pair(u, v)] - _LINK) >> max(0, _FRACTION_BITS - room)
            for u, reached in enumerate(neighbors)
            for v in reached
        ],
        np.int64,
    )
    rings = {}
    memory = np.full(len(neighbors), -1), *(np.zeros(len(neighbors), np.int64) for _ in range(3))
    for u, v in cost:
        count, rest = _way(offset, target, fraction, u, v, *memory)
        if count > 0:
            ring = memory[3][:count].tolist()
            rings[count, rest] = ring
    return [(count, ring) for (count, _), ring in sorted(rings.items())]


@njit(cache=True, nogil=True)
def _way(offset, target, fraction, root, end, level, parent, least, order):  # type: ignore[no-untyped-def]
    """Finds the shortest way from ``root`` to ``end`` beside the link between both, of least
    fractions among those of as few links.

    Leaves its nodes in ``order``, the end first; returns how many they are, and the fractions of
    the ring that the link closes, or 0 and 0. ``level`` is -1 before and after.
    """
    level[root], parent[root], least[root], order[0] = 0, root, 0, root
    count, at = 1, 0
    direct = np.int64(0)
    while at < count:
        node = order[at]
        if level[end] >= 0 and level[node] >= level[end]:
            break
        at += 1
        for place in range(offset[node], offset[node + 1]):
            neighbor = target[place]
            if node == root and neighbor == end:
                direct = fraction[place]
                continue
            reached = least[node] + fraction[place]
            if level[neighbor] < 0:
                level[neighbor] = level[node] + 1
                order[count] = neighbor
                count += 1
            elif level[neighbor] != level[node] + 1 or reached >= least[neighbor]:
                continue
            least[neighbor], parent[neighbor] = reached, node
    there = level[end] >= 0
    for place in range(count):
        level[order[place]] = -1
    if not there:
        return 0, np.int64(0)
    order[0] = end
    links = 0
    while order[links] != root:
        order[links + 1] = parent[order[links]]
        links += 1
    return links + 1, least[end] + direct


def _from_lowest(ring: list[int]) -> list[int]:
    place = ring.index(min(ring))
    ring = ring[place:] + ring[:place]
    return ring if ring[1] < ring[-1] else [ring[0], *ring[:0:-1]]
