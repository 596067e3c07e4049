"""Rules with state: events from the nodes that fields lead to on to leaves, in order, through
cells.

docs/reference/rule-state.md defines it, and shows that any slicing gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.tables import CompiledFilter
from stackcast.udfs.filters.matching import kernels
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.state import Cell
from stackcast.udfs.filters.nodes import Function

FUNCTIONS: tuple[Function, ...] = ("count", "sum", "avg", "min", "max", "moved")
"""Functions of cells, in the order of the kernels' numbers."""

CELL = np.dtype([("start", "<i8"), ("count", "<u8"), ("value", "<u8")])
"""A cell (see ``stackcast.udfs.filters.meaning.state.CellState``); ``start`` in units of the
clock."""


@dataclass(frozen=True)
class Carried:
    """Holds the state of one source between two of its slices.

    ``names`` are the identities of the ``cells`` (CELL).
    """

    names: tuple[str, ...]
    cells: NDArray[Any]


class CellStates:
    """Begins and ends the state of a source with every slice of its events.

    identities: of the cells, their names in ``Carried``. ``units``: of times, in a microsecond
    (``stackcast.udfs.filters.meaning.state.Clock``). ``fields``: those of which ``match`` takes the
    values.
    """

    def __init__(self, cells: Sequence[Cell], units: int, fields: Sequence[str]) -> None:
        self.identities: tuple[str, ...] = tuple(cell.identity for cell in cells)
        self._function = np.array([FUNCTIONS.index(cell.function) for cell in cells], np.uint8)
        self._window = np.array([cell.length(units) for cell in cells], np.int64)
        lanes = {name: at for at, name in enumerate(fields)}
        compared = (cell.field if cell.function == "moved" else None for cell in cells)
        self._compared = np.array([lanes.get(name or "", -1) for name in compared], np.int32)

    def begin(self, carried: Carried | None) -> tuple[NDArray[Any], ...]:
        """Returns starts, counts and values of cells, to be changed, then functions, windows, and
        the lanes of values that are compared with the cells'.

        Cells go by their identities: those unknown before are empty, those unknown now are dropped.
        ``carried``: not changed; None at the beginning of a source.
        """
        cells = np.zeros(len(self.identities), CELL)
        if carried is not None and carried.names == self.identities:
            cells = carried.cells
        elif carried is not None:
            mine, theirs = _common(self.identities, carried.names)
            cells[mine] = carried.cells[theirs]
        held = (np.array(cells[name]) for name in CELL.names or ())
        return *held, self._function, self._window, self._compared

    def end(self, held: Sequence[NDArray[Any]]) -> Carried:
        """Returns the state that a slice leaves behind; ``held``: as of ``begin``."""
        cells = np.empty(len(self.identities), CELL)
        cells["start"], cells["count"], cells["value"] = held[:3]
        return Carried(self.identities, cells)


class Stateful(Protocol):
    """Matches the events of one source in order.

    fields: qualified names of the fields whose raw values ``match`` takes, in this order.
    identities: of the cells, their names in ``Carried``.
    """

    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def identities(self) -> tuple[str, ...]: ...
    def match(
        self,
        message_type: NDArray[np.uint8],
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None,
        unread: NDArray[np.bool_],
        time: NDArray[np.int64],
        carried: Carried | None,
    ) -> tuple[NDArray[Any], Carried]:
        """Returns what each event comes to, and the state after the last.

        The first arguments are as of ``Matcher.match``. ``unread``: bool[m], events that are
        nobody's and update nothing. ``time``: int64[m]. ``carried``: the state before the first,
        None at the beginning of a source; that of another version of the rules is taken over by
        the cells' identities. It is not changed.
        """
        ...


class StatefulMatcher:
    """Finds leaves where they depend on earlier events of the source; ``Stateful``.

    matcher: walks events as far as their fields lead, anywhere and in any order; ``run`` then takes
    the events of one source in order. ``units``: of times, as of ``CellStates``. Picklable, as
    ``Matcher``.
    """

    def __init__(self, compiled: CompiledFilter, units: int = 1) -> None:
        self.matcher = Matcher(compiled)
        self.cells: tuple[Cell, ...] = tuple(compiled.cells)
        self._states = CellStates(self.cells, units, self.matcher.fields)
        number = {cell.name: at for at, cell in enumerate(self.cells)}
        lanes = {name: at for at, name in enumerate(self.matcher.fields)}
        lookup = self.matcher.lookup
        # By lane of the tables: the cell, or -1 for a field.
        cell_of_lane = np.array([number.get(name, -1) for name in compiled.fields[1:]], np.int32)
        self._cell_of = cell_of_lane[lookup.lane] if len(lookup.lane) else cell_of_lane[:0]
        updates = [outcome.updates for outcome in self.matcher.outcomes]
        self._update_begin = np.concatenate(([0], np.cumsum([len(u) for u in updates])))
        self._update_begin = self._update_begin.astype(np.int64)
        flat = [update for of_leaf in updates for update in of_leaf]
        self._update_cell = np.array([number[u.cell] for u in flat], np.int32)
        self._update_lane = np.array(
            [-1 if u.field is None else lanes[u.field] for u in flat], np.int32
        )

    @property
    def fields(self) -> tuple[str, ...]:
        """Those of ``matcher``."""
        return self.matcher.fields

    @property
    def identities(self) -> tuple[str, ...]:
        """The cells' names in ``Carried``."""
        return self._states.identities

    def match(
        self,
        message_type: NDArray[np.uint8],
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None,
        unread: NDArray[np.bool_],
        time: NDArray[np.int64],
        carried: Carried | None,
    ) -> tuple[NDArray[np.int32], Carried]:
        """Returns the leaf index of each event, int32[m], and the state: as of ``Stateful``."""
        codes = self.matcher.walk(message_type, values, present)
        codes[unread] = -1
        return self.run(codes, values, time, carried)

    def run(
        self,
        codes: NDArray[np.int32],
        values: NDArray[np.uint64],
        time: NDArray[np.int64],
        carried: Carried | None = None,
    ) -> tuple[NDArray[np.int32], Carried]:
        """Returns the leaf index of each event, int32[m], and the state after the last.

        ``codes``: int32[m], results of ``matcher.walk`` for the events, in the order of the source.
        ``values``: uint64[len(matcher.fields), m]; updates read them. ``time``, ``carried``: as of
        ``Stateful``.
        """
        shape = (len(self.matcher.fields), len(codes))
        if values.shape != shape or time.shape != shape[1:]:
            raise ValueError(f"values have shape {values.shape}, times {time.shape} for {shape}")
        held = self._states.begin(carried)
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
                *held,
                self._cell_of,
                self._update_begin,
                self._update_cell,
                self._update_lane,
            )
        return np.invert(result, out=result), self._states.end(held)

    def _run(self, *arguments: Any) -> None:
        kernels.run(*arguments, *self.matcher.lookup.arrays()[1:])


def _common(mine: Sequence[str], theirs: Sequence[str]) -> tuple[list[int], list[int]]:
    """Returns the positions of the names that are in both."""
    place = {name: at for at, name in enumerate(theirs)}
    pairs = [(at, place[name]) for at, name in enumerate(mine) if name in place]
    return [a for a, _ in pairs], [b for _, b in pairs]
