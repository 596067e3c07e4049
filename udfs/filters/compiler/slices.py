"""Slicing of a diagram into tables (CAMUS 3.2, Algorithm 1): nodes to states, children to rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler import table_kernels as kernels
from stackcast.udfs.filters.compiler.levels import Levels
from stackcast.udfs.filters.compiler.tables import ENTRY
from stackcast.udfs.filters.diagrams.diagrams import Diagrams
from stackcast.udfs.filters.diagrams.pool import HEIGHT, NODES, SETS
from stackcast.udfs.filters.prefixes import cover


@dataclass(frozen=True)
class Slices:
    """Holds the nodes below a root, level by level in order of first use: states in canonical
    order.

    nodes: int32[n], inner nodes. default: int32[n], the child of each one's default row. rows:
    int64[n], the number of each one's rows. leaves: int32[l], nobody's last. special: the rows of
    nodes that are matched by prefixes, as ``table_kernels`` takes them.
    """

    nodes: NDArray[np.int32]
    default: NDArray[np.int32]
    rows: NDArray[np.int64]
    leaves: NDArray[np.int32]
    special: tuple[NDArray[Any], ...]

    def entries(
        self,
        diagrams: Diagrams,
        levels: Levels,
        which: NDArray[np.int64],
        node_state: NDArray[np.int32],
        set_state: NDArray[np.int32],
    ) -> NDArray[Any]:
        """Returns the rows of ``nodes[which]``, in that order; ``field`` is the level.

        node_state, set_state: state by number of node and of set, where they are reached.
        """
        made = np.empty(int(self.rows[which].sum()), ENTRY)
        columns = {name: np.empty(len(made), made.dtype[name]) for name in ENTRY.names or ()}
        kernels.emit(
            diagrams.pool,
            self.nodes[which],
            self.default[which],
            levels.exact,
            *self.special,
            node_state,
            set_state,
            *columns.values(),
        )
        for name, column in columns.items():
            made[name] = column
        return made


def slice_diagram(diagrams: Diagrams, root: int, levels: Levels) -> Slices:
    """Finds the states of a diagram, and the rows that they need."""
    special = _prefix_rows(diagrams, root, levels)
    index, start, _, _, child = special
    nodes, default, rows, leaves = kernels.visit(
        diagrams.pool, root, levels.exact, index, start, child
    )
    return Slices(nodes, default, rows, leaves, special)


def states_of(
    diagrams: Diagrams, slices: Slices, nodes: NDArray[np.int32], leaves: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns states by number of node and of set, -1 where none, from those of ``slices``."""
    counters = diagrams.pool.counters
    node_state = np.full(max(int(counters[NODES]), 1), -1, np.int32)
    set_state = np.full(int(counters[SETS]), -1, np.int32)
    node_state[slices.nodes] = nodes
    set_state[-1 - slices.leaves] = leaves
    return node_state, set_state


def height_of(diagrams: Diagrams) -> int:
    """Returns the height of the leaves' sets."""
    return int(diagrams.pool.counters[HEIGHT])


_NO_ROWS = (
    np.empty(0, np.int32),
    np.zeros(1, np.int64),
    np.empty(0, np.uint64),
    np.empty(0, np.uint64),
    np.empty(0, np.int32),
)


def _prefix_rows(diagrams: Diagrams, root: int, levels: Levels) -> tuple[NDArray[Any], ...]:
    """Returns rows of the nodes at levels that match prefixes: the fewest that nest."""
    if root < 0 or not levels.prefixes:
        return _NO_ROWS
    reached = diagrams.reachable(root)
    wanted = np.flatnonzero(np.isin(reached.level, levels.prefixes)).tolist()
    if not wanted:
        return _NO_ROWS
    index = np.full(diagrams.node_count, -1, np.int32)
    start, rows = [0], []
    for number, at in enumerate(wanted):
        index[reached.nodes[at]] = number
        level = int(reached.level[at])
        part = slice(int(reached.row_start[at]), int(reached.row_start[at + 1]))
        columns = (reached.low[part], reached.high[part], reached.child[part])
        absent = int(reached.absent[at])
        bits = levels.fields[level - 1].bits
        rows += cover(list(zip(*(c.tolist() for c in columns), strict=True)), bits, absent)
        start.append(len(rows))
    low, high, child = zip(*rows, strict=True)
    return (
        index,
        np.array(start, np.int64),
        np.array(low, np.uint64),
        np.array(high, np.uint64),
        np.array(child, np.int32),
    )
