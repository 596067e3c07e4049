"""The stateful index: receivers of events by terms that ask for cells of state besides fields."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.levels import cell_field
from stackcast.udfs.filters.matching import kernels
from stackcast.udfs.filters.matching.cells import Carried, CellStates
from stackcast.udfs.filters.meaning.state import Cell, clock_of
from stackcast.udfs.filters.nodes import CellUpdate
from stackcast.udfs.filters.predicate_index.predicate_index import PredicateIndex
from stackcast.udfs.filters.predicate_index.term_index import TermIndex
from stackcast.udfs.filters.predicate_index.terms import FlatTerms
from stackcast.udfs.messages.specification import Field, Specification

_EVENTS = 4096
"""Events at a time: the rests that are true on them take eight bytes each."""


class StatefulIndex(TermIndex):
    """Finds the receivers of each event where they depend on earlier events of the source, at a
    cost that is a sum over the rules; ``stackcast.udfs.filters.matching.cells.Stateful``.

    The predicates over fields that terms have in common, their *rest*, are found by a predicate
    index, for any events in any order. Of the rests that are true on an event the terms are then
    compared with the cells, event by event.

    cells: the state that is kept. Picklable.
    """

    def __init__(
        self, flat: FlatTerms, cells: Iterable[Cell], specification: Specification
    ) -> None:
        super().__init__(flat, specification)
        self.cells = tuple(cells)
        number = {cell.name: at for at, cell in enumerate(self.cells)}
        cell_of = np.array([number.get(name, -1) for name in flat.names], np.int32)
        on_cell = cell_of[flat.field] >= 0
        rests = FlatTerms.joined([flat.select(np.arange(len(flat)), on_cell)])
        _, first, rest_of = np.unique(rests.alike(), return_index=True, return_inverse=True)
        count = len(first)
        self._rests = PredicateIndex(
            replace(
                rests.select(first),
                outcomes=((),) * count,
                outcome=np.arange(count, dtype=np.int32),
            ),
            specification,
        )
        # What several rules ask for and do alike is done once.
        alike = flat.alike() * len(flat.outcomes) + flat.outcome
        several = np.unique(alike, return_index=True)[1]
        several = several[np.argsort(rest_of[several], kind="stable")]
        asked = flat.select(several, ~on_cell)
        updates: dict[CellUpdate, int] = {}
        made = [
            [updates.setdefault(t, len(updates)) for t in each if isinstance(t, CellUpdate)]
            for each in flat.outcomes
        ]
        self._terms = (
            np.searchsorted(rest_of[several], np.arange(count + 1)).astype(np.int32),
            asked.outcome,
            asked.predicate.astype(np.int32),
            cell_of[asked.field],
            asked.interval.astype(np.int32),
            asked.low,
            asked.high,
        )
        taken = dict.fromkeys(u.field for u in updates if u.field is not None)
        others = [name for name in taken if name not in self._rests.fields]
        self.fields = (*self._rests.fields, *others)
        self.definitions = (
            *self._rests.definitions,
            *(specification.fields[name] for name in others),
        )
        self._states = CellStates(self.cells, clock_of(specification).units, self.fields)
        place = {name: at for at, name in enumerate(self.fields)}
        self._updates = (
            np.cumsum([0, *map(len, made)]).astype(np.int32),
            np.array([at for each in made for at in each], np.int32),
            np.array([number[update.cell] for update in updates], np.int32),
            np.array([-1 if u.field is None else place[u.field] for u in updates], np.int32),
        )

    @property
    def identities(self) -> tuple[str, ...]:
        """The cells' names in ``Carried``."""
        return self._states.identities

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        parts = (*self._terms, *self._updates, self._words)
        return self._rests.nbytes + sum(array.nbytes for array in parts)

    def _shown(self) -> dict[str, Field]:
        cells = {cell.name: cell_field(cell, self._specification) for cell in self.cells}
        return super()._shown() | cells

    def match(
        self,
        message_type: NDArray[np.uint8] | None,
        values: NDArray[np.uint64],
        present: NDArray[np.bool_] | None,
        unread: NDArray[np.bool_],
        time: NDArray[np.int64],
        carried: Carried | None,
    ) -> tuple[NDArray[np.uint64], Carried]:
        """Returns the receivers of each event, uint64[m, words], and the state: as of
        ``Stateful``."""
        held = self._states.begin(carried)
        found = np.zeros((len(time), self.words), np.uint64)
        for begin in range(0, len(time), _EVENTS):
            block = slice(begin, begin + _EVENTS)
            columns = np.require(values[:, block], np.uint64, ["C", "W"])
            asked = len(self._rests.fields)
            true = self._rests.true(
                None if message_type is None else message_type[block],
                columns[:asked],
                None if present is None else present[:asked, block],
            )
            kernels.run_terms(
                true,
                np.require(unread[block], np.bool_, ["C", "W"]),
                columns,
                np.require(time[block], np.int64, ["C", "W"]),
                found[block],
                *held,
                *self._terms,
                self._words,
                *self._updates,
            )
        return found, self._states.end(held)
