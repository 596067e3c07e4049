"""Communities of a graph by greedy modularity (Clauset, Newman and Moore 2004; WERNECKE 6.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush


def communities(neighbors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Groups of nodes such that merging no two of them would raise the modularity.

    neighbors: undirected, ``neighbors[u]`` holds v where ``neighbors[v]`` holds u. Every node is in
    one group; groups ascend by their first node, nodes ascend within. Of equal merges the one with
    the lowest nodes is taken; gains are compared as integers, so the answer is one on any machine.
    Each merge takes the pair with the largest gain: O(m d log n) with d the depth of the merges.
    """
    links = sum(map(len, neighbors)) // 2
    members = {node: [node] for node in range(len(neighbors))}
    degree = [len(reached) for reached in neighbors]
    between: list[dict[int, int]] = [dict.fromkeys(reached, 1) for reached in neighbors]

    def gain(u: int, v: int) -> int:
        """Rise of the modularity, in units of 1 / (2 links²)."""
        return 2 * links * between[u][v] - degree[u] * degree[v]

    heap = [(-gain(u, v), u, v) for u, reached in enumerate(between) for v in reached if u < v]
    heapify(heap)
    while heap:
        negative, u, v = heappop(heap)
        if negative >= 0:
            break
        if u not in members or v not in members or negative != -gain(u, v):
            continue
        members[u] += members.pop(v)
        degree[u] += degree[v]
        for other, count in between[v].items():
            del between[other][v]
            if other != u:
                between[u][other] = between[other][u] = between[u].get(other, 0) + count
        between[v] = {}
        for other in between[u]:
            first, second = min(u, other), max(u, other)
            heappush(heap, (-gain(first, second), first, second))
    return sorted(sorted(group) for group in members.values())
