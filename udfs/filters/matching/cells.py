"""Rules with state: events from the nodes that fields lead to on to leaves, in order, through
cells.

docs/subscriptions.md, section "State", defines it, and shows that any slicing gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udfs.filters.compiler.tables import CompiledFilter
from udfs.filters.matching import kernels
from udfs.filters.matching.matcher import Matcher
from udfs.filters.meaning.state import Cell
from udfs.filters.nodes import Function

FUNCTIONS: tuple[Function, ...] = ("count", "sum", "avg", "min", "max")
"""Functions of cells, in the order of the kernels' numbers."""

CELL = np.dtype([("start", "<i8"), ("count", "<u8"), ("value", "<u8")])
"""A cell (see ``udfs.filters.meaning.state.CellState``); ``start`` in units of the clock."""


@dataclass(frozen=True)
class Carried:
    """Holds the state of one source between two of its slices.

    ``names`` are the identities of the ``cells`` (CELL).
    """

    names: tuple[str, ...]
    cells: NDArray[Any]


class StatefulMatcher:
    """Finds leaves where they depend on earlier events of the source.

    matcher: walks events as far as their fields lead, anywhere and in any order.
    cells: the state that is kept.

    identities: of the cells, their names in ``Carried``.

    ``run`` then takes the events of one source in order. ``units``: of the times it is given, in
    a microsecond (``udfs.filters.meaning.state.Clock``). Picklable, as ``Matcher``.
    """

    def __init__(self, compiled: CompiledFilter, units: int = 1) -> None:
        self.matcher = Matcher(compiled)
        self.cells: tuple[Cell, ...] = tuple(compiled.cells)
        self.identities: tuple[str, ...] = tuple(cell.identity for cell in self.cells)
        number = {cell.name: at for at, cell in enumerate(self.cells)}
        lanes = {name: at for at, name in enumerate(self.matcher.fields)}
        lookup = self.matcher.lookup
        # By lane of the tables: the cell, or -1 for a field.
        cell_of_lane = np.array([number.get(name, -1) for name in compiled.fields[1:]], np.int32)
        self._cell_of = cell_of_lane[lookup.lane] if len(lookup.lane) else cell_of_lane[:0]
        self._function = np.array([FUNCTIONS.index(c.function) for c in self.cells], np.uint8)
        self._window = np.array([cell.window * units for cell in self.cells], np.int64)
        updates = [outcome.updates for outcome in self.matcher.outcomes]
        self._update_begin = np.concatenate(([0], np.cumsum([len(u) for u in updates])))
        self._update_begin = self._update_begin.astype(np.int64)
        flat = [update for of_leaf in updates for update in of_leaf]
        self._update_cell = np.array([number[u.cell] for u in flat], np.int32)
        self._update_lane = np.array(
            [-1 if u.field is None else lanes[u.field] for u in flat], np.int32
        )

    def run(
        self,
        codes: NDArray[np.int32],
        values: NDArray[np.uint64],
        time: NDArray[np.int64],
        carried: Carried | None = None,
    ) -> tuple[NDArray[np.int32], Carried]:
        """Returns the leaf index of each event, int32[m], and the state after the last.

        ``codes``: int32[m], results of ``matcher.walk`` for the events, in the order of the source.
        ``values``: uint64[len(matcher.fields), m]; updates read them. ``time``: int64[m].
        ``carried``: the state before the first, None at the beginning of a source; state of
        another version of the rules is taken over by the cells' identities. It is not changed.
        """
        shape = (len(self.matcher.fields), len(codes))
        if values.shape != shape or time.shape != shape[1:]:
            raise ValueError(f"values have shape {values.shape}, times {time.shape} for {shape}")
        cells = self._resume(carried)
        starts, counts, held = (cells[name].copy() for name in CELL.names or ())
        result = np.array(codes, np.int32)
        # Leaves that update nothing are reached already; all others wait for those before them.
        updates = np.diff(self._update_begin) > 0
        events = np.flatnonzero((result >= 0) | updates[np.maximum(~result, 0)])
        if len(events):
            self._run(
                events,
                result,
                np.require(values, np.uint64, ["C", "W"]),
                np.require(time, np.int64, ["C", "W"]),
                starts,
                counts,
                held,
                self._function,
                self._window,
                self._cell_of,
                self._update_begin,
                self._update_cell,
                self._update_lane,
            )
        cells = np.empty(len(self.cells), CELL)
        cells["start"], cells["count"], cells["value"] = starts, counts, held
        return np.invert(result, out=result), Carried(self.identities, cells)

    def _run(self, *arguments: Any) -> None:
        kernels.run(*arguments, *self.matcher.lookup.arrays()[1:])

    def _resume(self, carried: Carried | None) -> NDArray[Any]:
        """Returns cells by name: those unknown before are empty, those unknown now are dropped."""
        if carried is not None and carried.names == self.identities:
            return carried.cells
        cells = np.zeros(len(self.cells), CELL)
        if carried is not None:
            mine, theirs = _common(self.identities, carried.names)
            cells[mine] = carried.cells[theirs]
        return cells


def _common(mine: Sequence[str], theirs: Sequence[str]) -> tuple[list[int], list[int]]:
    """Returns the positions of the names that are in both."""
    place = {name: at for at, name in enumerate(theirs)}
    pairs = [(at, place[name]) for at, name in enumerate(mine) if name in place]
    return [a for a, _ in pairs], [b for _, b in pairs]
