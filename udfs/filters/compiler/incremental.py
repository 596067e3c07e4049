"""Incremental compilation: only edited rules are compiled, and states that stay keep their
numbers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.change import TableChange, table_change
from stackcast.udfs.filters.compiler.compile import (
    MAX_ENTRIES,
    ROWS_PER_ENTRY,
    CheckedRule,
    Order,
    assemble,
    counter,
    named_order,
    too_large,
)
from stackcast.udfs.filters.compiler.levels import MOST_LEVELS, Levels, live_cells, make_levels
from stackcast.udfs.filters.compiler.numbering import (
    Numbered,
    Renumbered,
    RuleSlots,
    SlotEdit,
    TokenNumbers,
    load_kernels,
    renumber,
)
from stackcast.udfs.filters.compiler.order import choose_order
from stackcast.udfs.filters.compiler.outcomes import Outcomes
from stackcast.udfs.filters.compiler.slices import height_of, slice_diagram, states_of
from stackcast.udfs.filters.compiler.table_kernels import export_sets
from stackcast.udfs.filters.compiler.tables import CompiledFilter
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.diagrams.diagrams import NOBODY, Diagrams, Moved
from stackcast.udfs.filters.diagrams.segments import SegmentTree
from stackcast.udfs.filters.meaning.state import Cell, resolve_variables
from stackcast.udfs.filters.nodes import Update
from stackcast.udfs.messages.specification import Specification

_SPARE_TOKENS = 1024
_COMPACT_ROWS = 1 << 20
"""Rows below which a pool is left as it is."""
_GARBAGE = 4
"""A pool of so many times the rows that it had after it was compacted is compacted again."""
_FEW = 64
_MANY = 16
"""Edits that change more than one in so many slots unite all of them anew."""

_FEW_DEAD = 64
"""So many cells or tokens that no rule has any more are no trouble, nor as many as rules have."""

_NO_STATES = np.empty(0, np.int32)


@dataclass(frozen=True)
class _Made:
    """Holds the results of an update: rules' diagrams, their slots, all states, and the change."""

    roots: dict[Hashable, int]
    edit: SlotEdit
    numbered: Renumbered
    change: TableChange


class IncrementalCompiler:
    """Compiles a rule set, then edits of it.

    Its filter is that of ``compile_rules`` for the live rules, but for the numbers of states: a
    state that stays keeps its number, and a new one takes that of the one whose place it takes.
    Numbers that become free are given away from the next update on.

    Rules with equal diagrams share a slot of a tree of unions, so an edit costs the unions above
    its slots. Parameters as of ``compile_rules``. An ``order`` that is "auto" is chosen for the
    rules of the first update that has any, and then kept: another would change every state.
    """

    def __init__(
        self,
        specification: Specification,
        *,
        order: Order = "specification",
        max_entries: int = MAX_ENTRIES,
        optional: bool | None = None,
    ) -> None:
        self._specification = specification
        self._choosing = order == "auto"
        self._order = () if self._choosing else named_order(order)
        self._max_entries = max_entries
        self._optional = optional
        self._tokens = TokenNumbers()
        self._many_tokens = 2 * _FEW_DEAD
        load_kernels()
        self._begin({})
        self._slots = RuleSlots()
        self._updates: dict[Hashable, tuple[Update, ...]] = {}
        self._cells: dict[Hashable, tuple[Cell, ...]] = {}
        self._free_states = _NO_STATES
        self._next_state = 1
        self._published = False
        self._held = 0
        self._live: dict[str, Cell] = {}
        self._compiled = self._assembled(self._numbered, {})

    @property
    def order(self) -> tuple[str, ...]:
        """The fields that come first, as given or as chosen."""
        return self._order

    def _begin(self, cells: Mapping[str, Cell]) -> None:
        """Begins a pool for the levels in their order, without rules."""
        self._levels = levels = self._make_levels(cells)
        capacity = ROWS_PER_ENTRY * self._max_entries
        self._tree = SegmentTree(Diagrams(levels.maxima, levels.may_lack, _SPARE_TOKENS, capacity))
        slices = slice_diagram(self._diagrams, NOBODY, levels)
        self._numbered = Numbered(NOBODY, slices, _NO_STATES, np.zeros(1, np.int32))

    @property
    def compiled(self) -> CompiledFilter:
        """The filter of the last update that succeeded."""
        return self._compiled

    def update(self, changes: Mapping[Hashable, CheckedRule | None]) -> TableChange:
        """Adds or replaces rules (by any name), or removes them (None).

        Errors: ``FilterError`` TOO_LARGE or TOO_MANY_FIELDS, ``SubscriptionError`` as of ``check``;
        the compiler is then as it was before. Cells of the rules before and after an edit count
        together.
        """
        updates = dict(self._updates)
        for name, rule in changes.items():
            updates.pop(name, None)
            if rule is not None and rule.updates:
                updates[name] = rule.updates
        functions = resolve_variables(updates.values())
        table = TermTable()
        changed = {name: rule for name, rule in changes.items() if rule is not None}
        for number, rule in enumerate(changed.values()):
            table.add(
                number,
                rule.condition,
                rule.receivers,
                rule.calls,
                rule.updates,
                self._specification,
                functions,
                self._optional,
            )
        gone = [name for name in changes if name not in changed]
        return self.update_table(list(changed), table, gone)

    def update_table(
        self, names: Sequence[Hashable], table: TermTable, gone: Sequence[Hashable] = ()
    ) -> TableChange:
        """Adds or replaces rules, and removes those ``gone``.

        Rule i of the table is called ``names[i]``. Errors: as ``update``.
        """
        updates = {names[at]: made for at, made in table.updates.items()}
        cells = {names[at]: kept for at, kept in table.kept.items()}
        names = [*names, *gone]
        old = dict(self._updates)
        for name in names if old else ():
            old.pop(name, None)
        return self._apply(names, table, gone, old | updates, cells)

    @property
    def _diagrams(self) -> Diagrams:
        return self._tree.diagrams

    def _apply(
        self,
        names: Sequence[Hashable],
        table: TermTable,
        gone: Sequence[Hashable],
        updates: dict[Hashable, tuple[Update, ...]],
        new_cells: Mapping[Hashable, tuple[Cell, ...]],
    ) -> TableChange:
        self._forget()
        cells = dict(self._cells)
        for name in names if cells else ():
            cells.pop(name, None)
        cells |= new_cells
        live = live_cells(cells.values(), updates.values())
        before = self._order, self._levels, self._tree, self._numbered
        try:
            if self._choosing and len(table):
                count = counter(table, self._specification, self._max_entries, self._optional)
                self._order = choose_order(table, self._specification, count)
                # Rules that nothing satisfies may have cells already.
                self._begin(self._live)
            self._widen(table, live)
            made = self._united(names, table, gone, live)
        except BaseException:
            if self._tree is not before[2]:
                self._order, self._levels, self._tree, self._numbered = before
            raise
        self._slots.commit(names, made.roots, made.edit)
        self._numbered = made.numbered.now
        self._free_states, self._next_state = made.numbered.free, made.numbered.next
        self._updates, self._cells, self._live = updates, cells, live
        self._published = True
        self._choosing &= not len(table)
        self._compiled = made.change.compiled
        if self._diagrams.row_count > max(_COMPACT_ROWS, _GARBAGE * self._held):
            self._compact()
        return made.change

    def _forget(self) -> None:
        """Drops cells and tokens that no live rule has, once they outnumber those that one has."""
        live = len(self._live)
        if len(self._levels.cells) - live > max(_FEW_DEAD, live):
            self._drop_cells()
        if len(self._tokens) > self._many_tokens:
            used = self._diagrams.tokens_in(self._numbered.slices.leaves)
            if len(self._tokens) - len(used) > max(_FEW_DEAD, len(used)):
                self._tokens.keep(used)
            self._many_tokens = len(used) + max(_FEW_DEAD, len(used))

    def _drop_cells(self) -> None:
        # Then nothing is left that tests a dead cell, and its level can go.
        self._compact()
        self._change_levels(self._live)

    def _change_levels(self, cells: Mapping[str, Cell]) -> None:
        levels = self._make_levels(cells)
        place = np.array([levels.of_name.get(name, -1) for name in self._levels.names], np.int32)
        self._diagrams.change_levels(place, levels.maxima, levels.may_lack)
        self._levels = levels

    def _widen(self, table: TermTable, cells: Mapping[str, Cell]) -> None:
        """Makes levels for all cells, and numbers for all tokens."""
        known = {cell.name: cell for cell in self._levels.cells}
        if any(known.get(name) != cell for name, cell in cells.items()):
            all_cells = known | dict(cells)
            if len(self._levels) + len(all_cells) - len(known) > MOST_LEVELS:
                self._drop_cells()
                all_cells = self._live | dict(cells)
            self._change_levels(all_cells)
        for outcome in table.outcomes:
            self._tokens.add(outcome)
        if self._tokens.capacity > self._diagrams.tokens:
            self._move(self._tree.add_tokens(2 * self._tokens.capacity))

    def _united(
        self,
        names: Sequence[Hashable],
        table: TermTable,
        gone: Sequence[Hashable],
        cells: Mapping[str, Cell],
    ) -> _Made:
        """Makes all of an update, and leaves the tree as it is then."""
        try:
            return self._try_united(names, table, gone, cells)
        except FilterError:
            full = self._diagrams.row_count > 2 * self._held
            self._compact()
            if not full:
                raise too_large(self._max_entries) from None
        try:
            return self._try_united(names, table, gone, cells)
        except FilterError:
            self._compact()
            raise too_large(self._max_entries) from None

    def _try_united(
        self,
        names: Sequence[Hashable],
        table: TermTable,
        gone: Sequence[Hashable],
        cells: Mapping[str, Cell],
    ) -> _Made:
        found, like = self._rule_roots(names, table)
        roots = dict(zip(names, found.tolist(), strict=True))
        for name in gone:
            del roots[name]
        edit = self._slots.edit(names, roots, like)
        before = self._tree.copy()
        try:
            self._set(edit.slots)
            numbered = self._number(self._tree.root)
            compiled = self._assembled(numbered.now, cells)
            return _Made(roots, edit, numbered, self._change(numbered, compiled))
        except BaseException:
            self._tree.restore(before)
            raise

    def _rule_roots(
        self, names: Sequence[Hashable], table: TermTable
    ) -> tuple[NDArray[np.int32], list[int]]:
        """Returns the diagram of each rule, int32, and the distinct ones, like ones together."""
        diagrams, number = self._diagrams, self._tokens.number
        leaves = [diagrams.leaf(map(number, outcome)) for outcome in table.outcomes]
        roots, like = table.roots(diagrams, self._levels, np.array(leaves, np.int32))
        rules = table.rules()
        found = np.full(len(names), NOBODY, np.int32)
        found[rules] = roots
        several = np.flatnonzero(np.bincount(rules, minlength=len(names)) > 1)
        if len(several):
            by_rule = np.argsort(rules, kind="stable")
            begin = np.searchsorted(rules[by_rule], several)
            end = np.searchsorted(rules[by_rule], several, side="right")
            for rule, first, last in zip(several, begin, end, strict=True):
                found[rule] = diagrams.union_all(roots[by_rule[first:last]])
        return found, list(dict.fromkeys(found[rules[like]].tolist()))

    def _set(self, slots: Mapping[int, int]) -> None:
        if len(slots) < max(_FEW, self._tree.slots // _MANY):
            self._tree.set(slots)
            return
        roots = self._tree.slot_roots()
        more = max(slots) + 1 - len(roots)
        if more > 0:
            roots = np.concatenate([roots, np.full(more, NOBODY, np.int32)])
        roots[np.fromiter(slots.keys(), np.int64, len(slots))] = list(slots.values())
        self._tree.assign(roots)

    def _number(self, root: int) -> Renumbered:
        """Numbers the states of the diagram ``root``: those that stay keep their numbers."""
        diagrams, old = self._diagrams, self._numbered
        slices = slice_diagram(diagrams, root, self._levels)
        if int(slices.rows.sum()) > self._max_entries:
            raise too_large(self._max_entries)
        if not self._published:
            states = np.arange(len(slices.nodes) + len(slices.leaves), dtype=np.int32)
            now = Numbered(root, slices, *np.split(states, [len(slices.nodes)]))
            is_new = np.ones(len(states), np.bool_)
            is_gone = np.zeros(len(old.nodes) + len(old.leaves), np.bool_)
            return Renumbered(now, _NO_STATES, len(states), is_new, is_gone)
        return renumber(diagrams, old, root, slices, self._free_states, self._next_state)

    def _assembled(self, numbered: Numbered, cells: Mapping[str, Cell]) -> CompiledFilter:
        diagrams, slices = self._diagrams, numbered.slices
        every = np.arange(len(slices.nodes))
        level = diagrams.pool.node_level[slices.nodes]
        entries = self._entries(numbered, every[np.lexsort((numbered.nodes, level))])
        keys, sets = export_sets(diagrams.pool, slices.leaves)
        by_state = np.argsort(numbered.leaves)
        outcomes = Outcomes(
            numbered.leaves[by_state],
            sets[by_state],
            keys,
            height_of(diagrams),
            *self._tokens.ranked(),
        )
        root = numbered.root
        at = slices.nodes == root if root >= 0 else slices.leaves == root
        state = int((numbered.nodes if root >= 0 else numbered.leaves)[at][0])
        return assemble(self._levels, entries, outcomes, state, list(cells.values()))

    def _entries(self, numbered: Numbered, which: NDArray[np.int64]) -> NDArray[Any]:
        states = states_of(self._diagrams, numbered.slices, numbered.nodes, numbered.leaves)
        return numbered.slices.entries(self._diagrams, self._levels, which, *states)

    def _change(self, new: Renumbered, compiled: CompiledFilter) -> TableChange:
        """Returns the change from the last filter to this one."""
        previous = self._compiled if self._published else None
        old, now = self._numbered, new.now
        inner, inner_gone = len(now.nodes), len(old.nodes)
        leaves = now.leaves[new.is_new[inner:]]
        gone = old.leaves[new.is_gone[inner_gone:]]
        made = self._entries(now, np.flatnonzero(new.is_new[:inner]))
        lost = self._entries(old, np.flatnonzero(new.is_gone[:inner_gone]))
        return table_change(compiled, previous, self._levels, made, lost, leaves, gone)

    def _make_levels(self, cells: Mapping[str, Cell]) -> Levels:
        return make_levels(
            self._specification, self._order, cells.values(), optional=self._optional
        )

    def _move(self, moved: Moved) -> None:
        """Follows ids that have changed. States stay, as slices come in an order without ids."""
        self._slots.move(moved)
        (root,) = moved.of(np.array([self._numbered.root], np.int32)).tolist()
        slices = slice_diagram(self._diagrams, root, self._levels)
        self._numbered = replace(self._numbered, root=root, slices=slices)

    def _compact(self) -> None:
        self._move(self._tree.compact(np.array([self._numbered.root], np.int32)))
        self._held = self._diagrams.row_count
