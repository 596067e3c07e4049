"""A set of rules in groups: one diagram where it stays small, and indexes for all others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.compile import MAX_ENTRIES, CompiledFilter, Order
from stackcast.udfs.filters.compiler.incremental import IncrementalCompiler
from stackcast.udfs.filters.compiler.levels import live_cells
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.meaning.state import Cell
from stackcast.udfs.filters.nodes import Update
from stackcast.udfs.filters.predicate_index.predicate_index import PredicateIndex
from stackcast.udfs.filters.predicate_index.stateful_index import StatefulIndex
from stackcast.udfs.filters.predicate_index.terms import FlatTerms
from stackcast.udfs.messages.specification import Specification

_ROWS_A_PREDICATE = 4
_FEWEST_ROWS = 512
"""A diagram stays small where it has no more rows: an entry a predicate or two, and gaps."""
_WORTH_A_TRIAL = 32
_SHARE = 8
"""Rules on the same fields are tried in the diagram if they are so many, and this part of all: a
few less in the index save an event nothing."""
_SAMPLE = 2048
"""So many rules show beforehand whether a diagram multiplies: to find out by all takes minutes."""
Key = frozenset[str] | None
"""The fields that a rule compares; None for all rules with state, which share cells."""
Whole = Callable[[], tuple[Sequence[Hashable], TermTable]]


@dataclass(frozen=True, eq=False)
class Grouped:
    """Holds the filter of a set of rules: an event goes to the receivers of all parts.

    index: of rules without state, None where the diagram has them all. stateful: of the rules with
    state, None where the diagram has them.
    """

    diagram: CompiledFilter
    index: PredicateIndex | None = None
    stateful: StatefulIndex | None = None

    @property
    def indexes(self) -> tuple[PredicateIndex | StatefulIndex, ...]:
        """Those that there are."""
        return tuple(index for index in (self.index, self.stateful) if index is not None)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The state that rules keep."""
        return self.diagram.cells if self.stateful is None else self.stateful.cells

    def term_rows(self) -> list[dict[str, Any]]:
        """Returns rows of table ``filter_leaves``, one a term of an index."""
        rows: list[dict[str, Any]] = []
        for index in self.indexes:
            rows += index.term_rows(len(rows))
        return rows


class GroupedCompiler:
    """Compiles a rule set, then edits of it, at a cost that adds up.

    As long as one diagram of all rules is small it is the filter. Else rules on the same fields
    stay together, and so do all with state: the largest groups in the diagram while it stays small,
    the others in an index. An edit compiles anew only the group that holds the rule. Parameters as
    of ``compile_rules``.
    """

    def __init__(
        self,
        specification: Specification,
        order: Order = "specification",
        optional: bool | None = None,
    ) -> None:
        self._specification = specification
        self._order = order
        self._optional = optional
        self._compiler: IncrementalCompiler | None = None
        self._in_diagram: set[Hashable] = set()
        self._indexed = _Plain(specification), _WithState(specification)
        self._indexed_keys: set[Key] = set()

    @property
    def indexed(self) -> Collection[Hashable]:
        """The names of the rules that an index has."""
        return {name for part in self._indexed for name in part.names}

    def update_table(
        self, names: Sequence[Hashable], table: TermTable, gone: Iterable[Hashable], whole: Whole
    ) -> Grouped:
        """Adds or replaces rules, and removes those ``gone``; rule i of ``table`` is ``names[i]``.

        whole: returns names and terms of all rules as they then are; asked where they have to be
        grouped anew.
        """
        if self._compiler is None:
            return self._group(*whole())
        gone = list(gone)
        keys = _keys(table, len(names))
        staying = [at for at, key in enumerate(keys) if key not in self._indexed_keys]
        moving = [at for at, key in enumerate(keys) if key in self._indexed_keys]
        lost = {*gone, *(names[at] for at in moving)} & self._in_diagram
        if staying or lost:
            try:
                self._compiler.update_table(
                    [names[at] for at in staying],
                    table.select(np.array(staying, np.int64)) if moving else table,
                    sorted(lost, key=str),
                )
            except FilterError:
                return self._group(*whole())
        self._in_diagram -= lost
        self._in_diagram.update(names[at] for at in staying)
        for part in self._indexed:
            part.remove([*gone, *names])
        return self._with_indexes(self._compiler, names, table, keys, moving)

    def _with_indexes(
        self,
        compiler: IncrementalCompiler,
        names: Sequence[Hashable],
        table: TermTable,
        keys: Sequence[Key],
        indexed: Sequence[int],
    ) -> Grouped:
        """Adds rules of a table to the indexes, and returns all parts."""
        plain, stateful = self._indexed
        with_state = [at for at in indexed if keys[at] is None]
        without = [at for at in indexed if keys[at] is not None]
        for part, rules in ((plain, without), (stateful, with_state)):
            part.add([names[at] for at in rules], table.select(np.array(rules, np.int64)))
        return Grouped(compiler.compiled, plain.index(), stateful.index())

    def _begin(self, limit: int) -> IncrementalCompiler:
        return IncrementalCompiler(
            self._specification, order=self._order, max_entries=limit, optional=self._optional
        )

    def _group(self, names: Sequence[Hashable], table: TermTable) -> Grouped:
        """Groups all rules anew."""
        limit = small(table)
        compiler = self._begin(limit)
        members: dict[Key, list[int]] = {}
        keys = _keys(table, len(names))
        for at, key in enumerate(keys):
            members.setdefault(key, []).append(at)
        indexed: list[int] = []
        try:
            self._probe(range(len(names)), table)
            compiler.update_table(names, table)
        except FilterError:
            compiler, indexed = self._parted(names, table, members, limit)
        self._compiler = compiler
        self._indexed = _Plain(self._specification), _WithState(self._specification)
        apart = set(indexed)
        self._in_diagram = {name for at, name in enumerate(names) if at not in apart}
        self._indexed_keys = {key for key, those in members.items() if apart.issuperset(those)}
        return self._with_indexes(compiler, names, table, keys, indexed)

    def _parted(
        self,
        names: Sequence[Hashable],
        table: TermTable,
        groups: dict[Key, list[int]],
        limit: int,
    ) -> tuple[IncrementalCompiler, list[int]]:
        """Returns a diagram with some of the groups, and the rules of the others, ascending."""
        compiler = self._begin(limit)
        if len(groups) == 1:
            return compiler, list(range(len(names)))
        worth = max(_WORTH_A_TRIAL, len(names) // _SHARE)
        inside: list[int] = []
        for key, those in sorted(groups.items(), key=_trial):
            part = table.select(np.array(those, np.int64))
            try:
                if key is None:
                    # They may take no more room than they would by themselves.
                    self._begin(small(part)).update_table(range(len(those)), part)
                elif len(those) < worth:
                    break
                self._probe([*inside, *those], table)
                compiler.update_table([names[at] for at in those], part)
            except FilterError:
                continue
            inside += those
        return compiler, sorted(set(range(len(names))).difference(inside))

    def _probe(self, rules: Sequence[int], table: TermTable) -> None:
        """Raises FilterError where a part of the rules shows that a diagram of them multiplies."""
        if len(rules) > 2 * _SAMPLE:
            drawn = np.random.default_rng(0).choice(np.array(rules), _SAMPLE, replace=False)
            part = table.select(np.sort(drawn))
            self._begin(small(part)).update_table(range(_SAMPLE), part)


_Index = TypeVar("_Index", PredicateIndex, StatefulIndex)


class _Indexed(ABC, Generic[_Index]):
    """Keeps the terms of the rules of an index, numbered as they came."""

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._terms = [FlatTerms.of(TermTable())]
        self._number: dict[Hashable, int] = {}
        self._live = np.zeros(0, np.bool_)
        self._gone = False
        self._index: _Index | None = None

    @abstractmethod
    def _make(self, terms: FlatTerms) -> _Index: ...

    @property
    def names(self) -> Collection[Hashable]:
        return self._number.keys()

    def add(self, names: Sequence[Hashable], table: TermTable) -> None:
        if names:
            first = len(self._live)
            self._terms.append(FlatTerms.of(table, first))
            self._number |= {name: first + at for at, name in enumerate(names)}
            self._live = np.concatenate((self._live, np.ones(len(names), np.bool_)))

    def remove(self, names: Iterable[Hashable]) -> None:
        gone = [self._number.pop(name) for name in names if name in self._number]
        self._live[gone] = False
        self._gone |= bool(gone)

    def index(self) -> _Index | None:
        """Returns the index of all rules that are there; None where there are none."""
        if self._gone or len(self._terms) > 1:
            terms = self._terms
            if self._gone:
                terms = [part.select(np.flatnonzero(self._live[part.rule])) for part in terms]
            self._terms, self._gone = [FlatTerms.joined(terms)], False
            self._index = self._make(self._terms[0]) if self._number else None
        return self._index


class _Plain(_Indexed[PredicateIndex]):
    """Rules without state."""

    def _make(self, terms: FlatTerms) -> PredicateIndex:
        return PredicateIndex(terms, self._specification)


class _WithState(_Indexed[StatefulIndex]):
    """Rules with state, and by name their cells and the updates of variables."""

    def __init__(self, specification: Specification) -> None:
        super().__init__(specification)
        self._cells: dict[Hashable, tuple[Cell, ...]] = {}
        self._updates: dict[Hashable, tuple[Update, ...]] = {}

    def add(self, names: Sequence[Hashable], table: TermTable) -> None:
        super().add(names, table)
        self._cells |= {names[at]: cells for at, cells in table.kept.items()}
        self._updates |= {names[at]: made for at, made in table.updates.items()}

    def remove(self, names: Iterable[Hashable]) -> None:
        names = list(names)
        super().remove(names)
        for name in names:
            self._cells.pop(name, None)
            self._updates.pop(name, None)

    def _make(self, terms: FlatTerms) -> StatefulIndex:
        cells = live_cells(self._cells.values(), self._updates.values())
        held = [cells[name] for name in sorted(cells)]
        return StatefulIndex(terms, held, self._specification)


def _trial(group: tuple[Key, list[int]]) -> tuple[bool, int, list[str]]:
    """Returns a key to sort groups by: first the one with state, then large ones."""
    key, rules = group
    return key is not None, -len(rules), sorted(key or ())


def _keys(table: TermTable, count: int) -> list[Key]:
    """Returns the key of each rule of a table."""
    keys: list[Key] = [frozenset()] * count
    for block in table.blocks:
        names = frozenset(block.names)
        for rule in np.unique(block.rule).tolist():
            held = keys[rule]
            # One object for all rules of a form.
            keys[rule] = names if not held or held <= names else names | held
    for term, rule, _ in table.terms:
        asked = frozenset(name for name, _ in term)
        held = keys[rule]
        keys[rule] = asked if held is None else asked | held
    for rule in {*table.kept, *table.updates}:
        keys[rule] = None
    return keys


def small(table: TermTable) -> int:
    """Returns how many rows a diagram of these terms has at most, to be a small one."""
    predicates = sum(len(block) * len(block.names) for block in table.blocks)
    predicates += sum(len(term) for term, _, _ in table.terms)
    return min(MAX_ENTRIES, max(_FEWEST_ROWS, _ROWS_A_PREDICATE * predicates))
