"""States that stay: the numbers of a diagram's nodes and leaves from one edit to the next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from udfs.filters.compiler.slices import Slices
from udfs.filters.compiler.table_kernels import pair
from udfs.filters.diagrams.diagrams import NOBODY, Diagrams
from udfs.filters.diagrams.pool import NODES, SETS


@dataclass(frozen=True)
class Numbered:
    """A diagram's slices with their states: int32, of ``slices.nodes`` and of ``slices.leaves``."""

    root: int
    slices: Slices
    nodes: NDArray[np.int32]
    leaves: NDArray[np.int32]


@dataclass(frozen=True)
class Renumbered:
    """The numbers after an edit.

    free, next: states to give away from the next update on. is_new, is_gone: which of the
    nodes and leaves, in the order of their slices, were not there before, or are no more.
    """

    now: Numbered
    free: NDArray[np.int32]
    next: int
    is_new: NDArray[np.bool_]
    is_gone: NDArray[np.bool_]


def renumber(
    diagrams: Diagrams,
    old: Numbered,
    root: int,
    slices: Slices,
    free: NDArray[np.int32],
    next_state: int,
) -> Renumbered:
    """States for the diagram ``root``: those of ``old`` where something stays.

    What is new takes the state of what it replaces, or else one that is ``free`` (ascending), or
    else one from ``next_state`` on.
    """
    size = int(diagrams.pool.counters[NODES] + diagrams.pool.counters[SETS])
    before, after = _places(diagrams, old.slices), _places(diagrams, slices)
    was, is_ = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    was[before], is_[after] = True, True
    partner = np.full(size, -1, np.int32)
    pair(diagrams.pool, old.root, root, was, is_, partner)
    state = np.full(size, -1, np.int32)
    state[before] = np.concatenate([old.nodes, old.leaves])
    is_new = ~was[after]
    new = after[is_new]
    replaced = partner[new]
    state[new] = np.where(replaced < 0, -1, state[replaced])
    alone = new[replaced < 0]
    fresh = free[: len(alone)]
    more = len(alone) - len(fresh)
    last = next_state + more
    state[alone] = np.concatenate([fresh, np.arange(next_state, last, dtype=np.int32)])
    is_gone = ~is_[before]
    taken = np.zeros(size, np.bool_)
    taken[replaced[replaced >= 0]] = True
    freed = state[before[is_gone & ~taken[before]]]
    left = np.sort(np.concatenate([free[len(fresh) :], freed]))
    states = state[after]
    now = Numbered(root, slices, *np.split(states, [len(slices.nodes)]))
    return Renumbered(now, left, last, is_new, is_gone)


@cache
def load_kernels() -> None:
    """Run the loops that a first build leaves out, so that the first edit need not wait for them
    to load."""
    diagrams = Diagrams([1], [False], 1, 64, capacity=16)
    diagrams.compact(np.array([NOBODY], np.int32))
    nobody = Numbered(
        NOBODY,
        Slices(
            np.empty(0, np.int32),
            np.empty(0, np.int32),
            np.empty(0, np.int64),
            np.array([NOBODY], np.int32),
            (),
        ),
        np.empty(0, np.int32),
        np.zeros(1, np.int32),
    )
    renumber(diagrams, nobody, NOBODY, nobody.slices, np.empty(0, np.int32), 1)


def _places(diagrams: Diagrams, slices: Slices) -> NDArray[np.int64]:
    """Numbers of nodes, and behind all nodes those of sets."""
    nodes = int(diagrams.pool.counters[NODES])
    return np.concatenate([slices.nodes, nodes - 1 - slices.leaves]).astype(np.int64)
