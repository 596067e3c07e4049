"""Shortest paths from switch to switch, as one link a switch on the way to each other."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from stackcast.udfs.network.network import Link, Network


def next_links(network: Network, goals: Iterable[str] | None = None) -> dict[tuple[str, str], Link]:
    """Maps ``(switch, other switch)`` to the link by which the shortest path leaves the first.

    The shortest by the sum of the links' weights, then by the lowest link id, over usable links.
    goals: switches that paths lead to, all with hosts if not given.
    """
    towards: dict[str, list[Link]] = {name: [] for name in network.switches}
    for link in network.links:
        if link.neighbor in network.switches and network.usable(link):
            towards[link.neighbor].append(link)
    found: dict[tuple[str, str], Link] = {}
    if goals is None:
        goals = {host.switch for host in network.hosts.values()}
    for goal in goals:
        # The paths to one goal are a tree, so they cannot make a loop whatever the weights.
        waiting: list[tuple[float, int, str]] = [(0.0, 0, goal)]
        done: set[str] = set()
        while waiting:
            distance, by, name = heapq.heappop(waiting)
            if name in done:
                continue
            done.add(name)
            if by:
                found[name, goal] = network.link_by_id[by]
            for link in towards[name]:
                if link.switch not in done:
                    heapq.heappush(waiting, (distance + link.weight, link.id, link.switch))
    return found
