"""Figures of a network, by which people see whether it is the one they meant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.network.network import Network

_WORDS = 8
"""Sources are searched in groups of so many words of 64 bits."""
_MOST_WORK = 4e10
"""Words to be joined, at most, for an exact diameter: a minute or so."""


@dataclass(frozen=True)
class Measures:
    """Figures of a network. Degrees count links to other switches; ``diameter`` is in such links.

    ``exact`` is False where the diameter is only known to be no less. Failed links count for
    degrees, and not for the diameter, which is None where they leave switches apart.
    """

    switches: int
    hosts: int
    publishers: int
    links: int
    """Directed, to hosts too: the ids that labels must be able to name."""
    failed: int
    """Directed links between switches that cannot be used."""
    least_degree: int
    mean_degree: float
    largest_degree: int
    most_ports: int
    diameter: int | None
    exact: bool
    lightest: float
    heaviest: float
    """Weights of links between switches; both 1 where there is none."""


def measure(network: Network) -> Measures:
    """Measures a network. Raises nothing. 10,000 switches of 16 links take seconds."""
    index = {name: place for place, name in enumerate(network.switches)}
    inner = [link for link in network.links if link.neighbor in index]
    tails = np.array([index[link.switch] for link in inner], np.int64)
    degrees = np.bincount(tails, minlength=len(index))
    ports = np.bincount(
        np.array([index[link.switch] for link in network.links], np.int64), minlength=len(index)
    )
    usable = np.array([network.usable(link) for link in inner], bool)
    heads = np.array([index[link.neighbor] for link in inner], np.int64)
    diameter, exact = _diameter(len(index), tails[usable], heads[usable])
    weights = [link.weight for link in inner] or [1.0]
    return Measures(
        switches=len(index),
        hosts=len(network.hosts),
        publishers=len(network.publishers()),
        links=len(network.links),
        failed=len(inner) - int(usable.sum()),
        least_degree=int(degrees.min()),
        mean_degree=float(degrees.mean()),
        largest_degree=int(degrees.max()),
        most_ports=int(ports.max()),
        diameter=diameter,
        exact=exact,
        lightest=min(weights),
        heaviest=max(weights),
    )


def _diameter(
    count: int, tails: NDArray[np.int64], heads: NDArray[np.int64]
) -> tuple[int | None, bool]:
    """Returns the longest of the shortest paths, and True if it is surely that."""
    order = np.argsort(tails, kind="stable")
    starts = np.searchsorted(tails[order], np.arange(count + 1))
    near = heads[order]
    first = _distances(starts, near, 0)
    if (first < 0).any():
        return None, True
    # From one end of the network to the other: often the diameter, never more.
    seen = int(_distances(starts, near, int(first.argmax())).max())
    work = -(-count // 64) * (len(near) + count) * max(seen, 1)
    if count == 1 or work > _MOST_WORK:
        return seen, count == 1
    return _longest(count, starts, near), True


def _distances(
    starts: NDArray[np.int64], near: NDArray[np.int64], source: int
) -> NDArray[np.int64]:
    """Counts the links from ``source`` to each switch; -1 where none leads."""
    distances = np.full(len(starts) - 1, -1, np.int64)
    distances[source] = steps = 0
    front = np.array([source])
    while len(front):
        steps += 1
        lengths = starts[front + 1] - starts[front]
        places = np.repeat(starts[front] - np.cumsum(lengths) + lengths, lengths)
        reached = np.unique(near[places + np.arange(len(places))])
        front = reached[distances[reached] < 0]
        distances[front] = steps
    return distances


def _longest(count: int, starts: NDArray[np.int64], near: NDArray[np.int64]) -> int:
    """Searches breadth-first from all switches of a connected network, 512 at once.

    A row of bits a switch says which sources have reached it; a step joins those of its neighbors.
    """
    longest = 0
    for begin in range(0, count, 64 * _WORDS):
        sources = np.arange(begin, min(begin + 64 * _WORDS, count))
        reached = np.zeros((count, _WORDS), np.uint64)
        bits = sources - begin
        reached[sources, bits // 64] = np.uint64(1) << (bits % 64).astype(np.uint64)
        everyone = np.bitwise_or.reduce(reached)
        steps = 0
        while not (reached == everyone).all():
            reached |= np.bitwise_or.reduceat(reached[near], starts[:-1])
            steps += 1
        longest = max(longest, steps)
    return longest
