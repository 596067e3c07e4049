"""The graph that trees are grown on: usable links between switches, by index."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Link, Network
from stackcast.udfs.trees.kernels.arrays import WORD, Links, Work, workspace
from stackcast.udfs.trees.kernels.search import BY_WEIGHT, COVERED, NOWHERE, grow

# A link costs its weight in 64ths of a unit and 1, a stored tree's edge 1: what costs no label is
# short all the same, and no way of more than 64 edges is taken to spare a unit.
_UNIT = 64
_KINDS = (*[np.int32] * 2, *[np.int64] * 2, *[np.int32] * 4)
_MOST_UNITS = 511


class SwitchGraph:
    """The usable links between switches, ready for many trees. For one thread; it pickles.

    ``names`` and ``index`` translate switches; ``edges`` numbers undirected edges, each a
    sorted pair of names: of parallel links, that which stored trees take. ``adjacency[u]`` holds
    ``(v, number, cost)``, one for each neighbor. ``links`` has the same as arrays, for the kernels.
    """

    def __init__(self, network: Network) -> None:
        self.names: tuple[str, ...] = tuple(network.switches)
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        self.edges: dict[tuple[str, str], int] = {}
        usable = [
            link for link in network.links if link.neighbor in self.index and network.usable(link)
        ]
        weights = [link.weight for link in usable]
        self._unit = _unit(weights)
        heaviest = max(weights, default=1.0)
        classes = 15 if min(weights, default=1.0) < heaviest else 1
        beyond = [0] * len(self.names)
        for link in network.links:
            at = self.index[link.switch]
            beyond[at] = max(beyond[at], (link.port - 1) // WORD)
        self._more = list(accumulate(beyond, initial=len(self.names)))
        self._link_ids = np.zeros((self._more[-1], WORD), np.int32)
        for link in network.links:
            word, _ = self.word_of(self.index[link.switch], link.port)
            self._link_ids[word, (link.port - 1) % WORD] = link.id
        cables: dict[int, int] = {}
        rows = []
        for link in usable:
            u, v = self.index[link.switch], self.index[link.neighbor]
            assert link.neighbor_port is not None
            back = network.link_at(link.neighbor, link.neighbor_port)
            number = cables.setdefault(min(link.id, back.id), len(cables))
            if network.tree_link(link.switch, link.neighbor) == link:
                self.edges[edge(link.switch, link.neighbor)] = number
            (port_word, port), (back_word, arriving) = (
                self.word_of(u, link.port),
                self.word_of(v, link.neighbor_port),
            )
            weight = max(1, round(link.weight / heaviest * classes))
            rows.append(
                (u, v, number, port, arriving, self._cost(link), weight, port_word, back_word)
            )
        rows.sort()
        self._cables = [row[2] for row in rows]
        over: list[list[int]] = [[] for _ in cables]
        for at, number in enumerate(self._cables):
            over[number].append(at)
        self._over = {pair: over[number] for pair, number in self.edges.items()}
        table = np.array([row[:2] + row[3:] for row in rows], np.int64)
        table = table.reshape(len(rows), len(_KINDS))
        counts = np.bincount(table[:, 0], minlength=len(self.names))
        columns = (table[:, column].astype(kind) for column, kind in enumerate(_KINDS))
        offset = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        further = np.repeat(np.arange(len(self.names)), beyond)
        self.links = Links._make((offset, *columns, further, np.array(self._more, np.int64)))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "work"}

    def word_of(self, u: int, port: int) -> tuple[int, int]:
        """Returns the word that a switch's port is in, and its bit there."""
        word, bit = divmod(port - 1, WORD)
        return self._more[u] + word - 1 if word else u, 1 << bit

    def words_of(self, members: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the words of these switches in order."""
        more = self.links.more
        counts = 1 + more[members + 1] - more[members]
        switches = np.repeat(members, counts)
        place = np.arange(len(switches)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.where(place == 0, switches, more[switches] + place - 1)

    def links_of(
        self, words: NDArray[np.int64], *masks: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Returns the ids of the links at the ports that the masks of these words have, and of each
        the number of its mask; by word, then mask, then port."""
        bits = np.stack(masks, axis=1).astype("<i8").view(np.uint8).reshape(-1, 8)
        rows, places = np.nonzero(np.unpackbits(bits, axis=1, bitorder="little"))
        return rows % len(masks), self._link_ids[words[rows // len(masks)], places]

    def switches_of(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the switches that these words, ascending, are of, each once."""
        if not words.size or words[-1] < len(self.names):
            return words
        first = words < len(self.names)
        further = self.links.further[words[~first] - len(self.names)]
        return np.union1d(words[first], further)

    @cached_property
    def adjacency(self) -> list[list[tuple[int, int, int]]]:
        found: list[list[tuple[int, int, int]]] = [[] for _ in self.names]
        links = self.links
        for u, v, number, cost in zip(
            links.source.tolist(),
            links.target.tolist(),
            self._cables,
            links.cost.tolist(),
            strict=True,
        ):
            # Of parallel links, which stand together, the cheapest.
            before = found[u].pop() if found[u] and found[u][-1][0] == v else (v, number, cost)
            found[u].append(min(before, (v, number, cost), key=itemgetter(2)))
        return found

    @cached_property
    def work(self) -> Work:
        """The memory that all searches and encoders of this graph take turns in."""
        return workspace(len(self.names), self._more[-1], len(self.links.source))

    def links_over(self, pairs: Iterable[tuple[str, str]]) -> list[int]:
        """Returns the links over these edges, both ways, of those that are usable."""
        return [link for pair in pairs for link in self._over.get(pair, ())]

    def grow(
        self, root: int, terminals: Iterable[int], free: Iterable[tuple[str, str]] = ()
    ) -> tuple[list[int], list[int]]:
        """Grows a Steiner tree and returns it rooted, as ``(members, parent)``.

        ``members`` holds its switches, parents before children, ``root`` first; ``parent[v]``
        is defined for all of them but the root. Edges of ``free`` (sorted pairs) cost nothing
        but break ties by their count. Equal costs are settled by index, so the answer is one.

        Raises NetworkError ``UNREACHABLE`` with the switches that no usable link leads to.
        """
        work = self.work
        work.by_weight[:] = self.links.cost
        work.by_weight[self.links_over(free)] = COVERED
        wanted = np.array(sorted(set(terminals)), np.int64)
        count = grow(self.links, work, root, wanted, 0, BY_WEIGHT, NOWHERE, NOWHERE, False)
        if count < 0:
            raise self.unreachable(root, wanted)
        members = work.members[:count].tolist()
        parent = [-1] * len(self.names)
        for v in members[1:]:
            parent[v] = int(self.links.source[work.parent[v]])
        return members, parent

    def shortest_paths(self, root: int) -> tuple[list[int], list[int]]:
        """Returns the costs from ``root`` and the parents of the shortest-path tree, by switch.

        Both are -1 where no usable link leads, the parent of ``root`` too. Equal costs are settled
        by index.
        """
        distance = [-1] * len(self.names)
        parent = [-1] * len(self.names)
        heap = [(0, root, -1)]
        while heap:
            reached, u, before = heappop(heap)
            if distance[u] >= 0:
                continue
            distance[u], parent[u] = reached, before
            for v, _, cost in self.adjacency[u]:
                if distance[v] < 0:
                    heappush(heap, (reached + cost, v, u))
        return distance, parent

    def unreachable(self, root: int, terminals: Iterable[int]) -> NetworkError:
        """Makes the error that names the terminals which the last search did not find."""
        apart = sorted(self.names[v] for v in terminals if not self.work.inside[v])
        return NetworkError(
            "UNREACHABLE",
            f"there is no usable path from {self.names[root]!r} to {', '.join(apart)}",
            switches=apart,
        )

    def _cost(self, link: Link) -> int:
        return max(1, round(link.weight / self._unit)) * _UNIT + 1


def _unit(weights: list[float]) -> float:
    """Returns the unit to count weights in: exact if all are small multiples of one, else
    rounded."""
    if not weights:
        return 1.0
    lightest, heaviest = min(weights), max(weights)
    for parts in range(1, 17):
        unit = lightest / parts
        if heaviest / unit > _MOST_UNITS:
            break
        if all(abs(weight / unit - round(weight / unit)) < 1e-9 for weight in weights):
            return unit
    return heaviest / _MOST_UNITS


def edge(u: str, v: str) -> tuple[str, str]:
    """Returns an undirected edge: the pair in sorted order."""
    return (u, v) if u < v else (v, u)
