"""The arrays that hold decision diagrams, and what their compiled loops share.

Without numba the same loops run as plain Python: right, and slow.

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

No kernel makes room. It notes in ``counters[NEED]`` what it lacks and returns FAILED or the
place to go on from; the caller makes room and calls again. What is in the pool stays right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COUNTERS",
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
    "Pool",
    "bits",
    "helper",
    "mix",
    "njit",
]

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba import njit
except ImportError:

    def njit(**_: Any) -> Callable[[F], F]:
        """Leave the function as it is."""
        return lambda function: function


NOBODY: Final = -1
FAILED: Final = -(2**31)
UNKNOWN: Final = 1 - 2**31

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


@helper
def bits(number: Any) -> Any:
    """The lower 32 bits, as a word."""
    return np.uint64(np.int64(number) & LOW32)


@helper
def mix(word: Any) -> Any:
    mixed = (word ^ (word >> S32)) * K2
    return mixed ^ (mixed >> S32)
