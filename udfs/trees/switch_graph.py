"""The usable links between switches, by index: what trees are grown on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

import numpy as np

from udfs.errors import NetworkError
from udfs.trees.kernels import Links, Work, grow, workspace
from udfs.trees.network import Link, Network

# A cost is an integer of 41 bits: a path's weight in 25, then its number of links in 16, which
# breaks ties. Weights are rounded to fit, never to 0.
_PATH_WEIGHT = 1 << 25
_FINEST = 1 << 10
_HOP_BITS = 16


class SwitchGraph:
    """The usable links between switches, ready for many trees. It pickles.

    ``names`` and ``index`` translate switches; ``edges`` numbers undirected edges, each a
    sorted pair of names; ``adjacency[u]`` holds ``(v, number, cost)``; ``bits[u][v]`` is the port
    bit (``1 << port - 1``) of u towards v. ``links`` has the same as arrays, for the kernels.
    """

    def __init__(self, network: Network) -> None:
        self.names: tuple[str, ...] = tuple(network.switches)
        self.index: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        self.edges: dict[tuple[str, str], int] = {}
        usable = [
            link for link in network.links if link.neighbor in self.index and network.usable(link)
        ]
        self._unit = _unit([link.weight for link in usable], len(self.names))
        heaviest = max((link.weight for link in usable), default=1.0)
        rows = []
        for link in usable:
            u, v = self.index[link.switch], self.index[link.neighbor]
            number = self.edges.setdefault(edge(link.switch, link.neighbor), len(self.edges))
            assert link.neighbor_port is not None
            rows.append(
                (
                    u,
                    v,
                    number,
                    1 << link.port - 1,
                    1 << link.neighbor_port - 1,
                    self._cost(link),
                    max(1, round(link.weight / heaviest * 15)),
                )
            )
        rows.sort()
        table = np.array(rows, np.int64).reshape(len(rows), 7)
        counts = np.bincount(table[:, 0], minlength=len(self.names))
        self.links = Links(
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            *(np.ascontiguousarray(table[:, column]) for column in range(7)),
        )

    @cached_property
    def adjacency(self) -> list[list[tuple[int, int, int]]]:
        found: list[list[tuple[int, int, int]]] = [[] for _ in self.names]
        links = self.links
        for u, v, number, cost in zip(
            links.source.tolist(),
            links.target.tolist(),
            links.edge.tolist(),
            links.cost.tolist(),
            strict=True,
        ):
            found[u].append((v, number, cost))
        return found

    @cached_property
    def bits(self) -> list[dict[int, int]]:
        found: list[dict[int, int]] = [{} for _ in self.names]
        links = self.links
        for u, v, bit in zip(
            links.source.tolist(), links.target.tolist(), links.port.tolist(), strict=True
        ):
            found[u][v] = bit
        return found

    def work(self) -> Work:
        """Memory for the kernels: one tree at a time."""
        return workspace(len(self.names), len(self.links.target), len(self.edges))

    def grow(
        self, root: int, terminals: Iterable[int], free: Collection[int] = frozenset()
    ) -> tuple[list[int], list[int]]:
        """A Steiner tree, rooted: ``(members, parent)``.

        ``members`` holds its switches, parents before children, ``root`` first; ``parent[v]``
        is defined for all of them but the root. Edges of ``free`` (numbers) cost nothing but
        break ties by their count. Equal costs are settled by index, so the answer is one.

        Raises NetworkError ``UNREACHABLE`` with the switches that no usable link leads to.
        """
        work = self.work()
        work.free[list(free)] = 1
        wanted = np.array(sorted(set(terminals)), np.int64)
        count = grow(self.links, work, root, wanted, 0, False)
        if count < 0:
            raise self.unreachable(root, wanted, work)
        members = work.members[:count].tolist()
        parent = [-1] * len(self.names)
        for v in members[1:]:
            parent[v] = int(self.links.source[work.parent[v]])
        return members, parent

    def unreachable(self, root: int, terminals: Iterable[int], work: Work) -> NetworkError:
        """What to say of terminals that the last search in ``work`` did not find."""
        apart = sorted(self.names[v] for v in terminals if not work.inside[v])
        return NetworkError(
            "UNREACHABLE",
            f"no usable link leads from {self.names[root]!r} to {', '.join(apart)}",
            switches=apart,
        )

    def _cost(self, link: Link) -> int:
        return (max(1, round(link.weight / self._unit)) << _HOP_BITS) + 1


def _unit(weights: list[float], switches: int) -> float:
    """What weights are counted in: as fine as a path through all switches allows."""
    if not weights or min(weights) == max(weights):
        return weights[0] if weights else 1.0
    return max(min(weights) / _FINEST, max(weights) * switches / _PATH_WEIGHT)


def edge(u: str, v: str) -> tuple[str, str]:
    """An undirected edge: the pair in sorted order."""
    return (u, v) if u < v else (v, u)
