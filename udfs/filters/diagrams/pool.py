"""The arrays that hold decision diagrams, views of them, and constants that their kernels share.

The pool. Node n tests ``node_level[n]`` and owns the rows ``node_start[n]`` up to
``node_start[n + 1]``: ``row_low`` ascends from 0, a row reaches to the next one's low, the last
to the level's maximum, and ``row_child`` is where it leads. ``node_absent[n]`` is where an event
without the field goes, NOBODY at levels that are not optional. A child's number is below its
parent's. Negative children are leaves: ``-1 - s`` is the set s of tokens. Set 0 is the empty
one, so NOBODY is -1. A set of height 0 is a word of 64 tokens (``set_key``), one of height h
a pair of sets of height h - 1, the left in the upper half of its key; every leaf has the
pool's height. Nodes and sets are in the pool once each (``node_table``, ``set_table``: open
addressing, number + 1, 0 is free), so equal numbers are equal functions. ``cache``
remembers unions: (a, b, union, unused) at the place of the pair's hash, the last one wins.

No kernel grows an array. It notes in ``counters[NEED]`` which is full and returns FAILED or the
place to go on from; the caller grows it and calls again. The pool's content stays right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "COUNTERS",
    "DROPPED",
    "FAILED",
    "HEIGHT",
    "K1",
    "K2",
    "LOW32",
    "LOWER",
    "MAX_ROWS",
    "MAX_SETS",
    "MAX_WORK",
    "NEED",
    "NEED_LESS",
    "NEED_NODES",
    "NEED_ROWS",
    "NEED_SCRATCH",
    "NEED_SETS",
    "NEED_STACK",
    "NOBODY",
    "NODES",
    "ONE",
    "ROWS",
    "S32",
    "SETS",
    "UNKNOWN",
    "WORK",
    "ZERO",
    "Moved",
    "Pool",
    "Reachable",
    "bits",
    "helper",
    "mix",
    "njit",
]

NOBODY: Final = -1
FAILED: Final = -(2**31)
UNKNOWN: Final = 1 - 2**31
DROPPED: Final = -(2**31)
"""The new number of a node or leaf that ``compact`` has dropped."""

# Places in ``counters``.
NODES: Final = 0
ROWS: Final = 1
SETS: Final = 2
HEIGHT: Final = 3
MAX_ROWS: Final = 4
MAX_SETS: Final = 5
WORK: Final = 6
MAX_WORK: Final = 7
NEED: Final = 8
COUNTERS: Final = 9

# Values of ``counters[NEED]``.
NEED_NODES: Final = 1
NEED_ROWS: Final = 2
NEED_SETS: Final = 3
NEED_STACK: Final = 4
NEED_SCRATCH: Final = 5
NEED_LESS: Final = 6

K1 = np.uint64(0x9E3779B97F4A7C15)
K2 = np.uint64(0xD6E8FEB86659FD93)
S32 = np.uint64(32)
ZERO = np.uint64(0)
ONE = np.uint64(1)
LOW32 = np.int64(0xFFFFFFFF)
LOWER = np.uint64(0xFFFFFFFF)

# Of functions that others here call with many arrays and that make none: without a count of
# references they take two thirds of the time. (``_nrt`` is numba's own option for its helpers.)
helper: Any = njit(cache=True, nogil=True, _nrt=False)


class Pool(NamedTuple):
    """The arrays; see the module. ``stack``, ``scratch_*`` and ``set_stack`` hold no result."""

    maxima: NDArray[np.uint64]
    optional: NDArray[np.uint8]
    counters: NDArray[np.int64]
    node_level: NDArray[np.int32]
    node_start: NDArray[np.int64]
    node_absent: NDArray[np.int32]
    node_hash: NDArray[np.uint32]
    node_table: NDArray[np.int32]
    row_low: NDArray[np.uint64]
    row_child: NDArray[np.int32]
    set_key: NDArray[np.uint64]
    set_height: NDArray[np.uint8]
    set_table: NDArray[np.int32]
    cache: NDArray[np.int32]
    stack: NDArray[np.int64]
    scratch_low: NDArray[np.uint64]
    scratch_child: NDArray[np.int32]
    set_stack: NDArray[np.int64]


@dataclass(frozen=True)
class Reachable:
    """Holds all below a root, by level, then by first use (rows ascending, absent last).

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
        """Returns the positions of ids of nodes or leaves: nodes 0..n-1, leaves n..n+l-1."""
        return _looked_up(ids, self.position, self.leaf_position + np.int32(len(self.nodes)))


@dataclass(frozen=True)
class Moved:
    """Maps old ids to new ones: ``nodes[old]``; ``leaves[-1 - old]``; DROPPED where none."""

    nodes: NDArray[np.int32]
    leaves: NDArray[np.int32]

    def of(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the new ids of old ones, nodes and leaves."""
        return _looked_up(ids, self.nodes, self.leaves)


def _looked_up(
    ids: NDArray[np.int32], of_node: NDArray[np.int32], of_leaf: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Looks nodes up in one array and leaves in the other."""
    found = np.empty(ids.shape, np.int32)
    inner = ids >= 0
    found[inner] = of_node[ids[inner]]
    found[~inner] = of_leaf[-1 - ids[~inner]]
    return found


@helper
def bits(number: Any) -> Any:
    """Returns the lower 32 bits, as a word."""
    return np.uint64(np.int64(number) & LOW32)


@helper
def mix(word: Any) -> Any:
    mixed = (word ^ (word >> S32)) * K2
    return mixed ^ (mixed >> S32)
