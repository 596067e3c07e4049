"""What a pool of diagrams tells of itself: what a root reaches, and where numbers have gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

DROPPED: Final = -(2**31)
"""The new number of what ``compact`` has dropped."""


@dataclass(frozen=True)
class Reachable:
    """What a root reaches, by level, then by first use (rows ascending, absent last).

    nodes: int32[n], ids of inner nodes. level: int32[n].
    absent: int32[n], id of the child for an absent field (NOBODY at levels not optional).
    row_start: int64[n + 1] into low, high (uint64[r], both included) and child (int32[r], ids).
    leaves: int32[l], ids in order of first use; NOBODY only if it is reached.
    position: int32, one a node of the pool: place in ``nodes``, -1 if not reached.
    leaf_position: int32: for leaf id x, ``leaf_position[-1 - x]`` is its place in ``leaves``.
    """

    nodes: NDArray[np.int32]
    level: NDArray[np.int32]
    absent: NDArray[np.int32]
    row_start: NDArray[np.int64]
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    child: NDArray[np.int32]
    leaves: NDArray[np.int32]
    position: NDArray[np.int32]
    leaf_position: NDArray[np.int32]

    def positions(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """Of ids of nodes or leaves: nodes 0..n-1, leaves n..n+l-1."""
        return _looked_up(ids, self.position, self.leaf_position + np.int32(len(self.nodes)))


@dataclass(frozen=True)
class Moved:
    """New ids after compaction. ``nodes[old]``; ``leaves[-1 - old]``; DROPPED where none."""

    nodes: NDArray[np.int32]
    leaves: NDArray[np.int32]

    def of(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """The new ids of old ones, nodes and leaves."""
        return _looked_up(ids, self.nodes, self.leaves)


def _looked_up(
    ids: NDArray[np.int32], of_node: NDArray[np.int32], of_leaf: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Look nodes up in one array and leaves in the other."""
    found = np.empty(ids.shape, np.int32)
    inner = ids >= 0
    found[inner] = of_node[ids[inner]]
    found[~inner] = of_leaf[-1 - ids[~inner]]
    return found
