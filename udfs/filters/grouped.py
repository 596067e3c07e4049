"""A set of rules in two groups: one diagram where it stays small, and an index for all others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from udfs.errors import FilterError
from udfs.filters.compiler.compile import MAX_ENTRIES, CompiledFilter, Order
from udfs.filters.compiler.incremental import IncrementalCompiler
from udfs.filters.compiler.term_table import TermTable
from udfs.filters.predicate_index.predicate_index import PredicateIndex
from udfs.messages.specification import Specification

_ROWS_A_PREDICATE = 4
_FEWEST_ROWS = 512
"""A diagram stays small where it has no more rows: an entry a predicate or two, and gaps."""
_TRIALS = 16
"""Groups of rules on the same fields, of the largest, that are tried in the diagram."""
_WORTH_A_TRIAL = 32

Key = frozenset[str] | None
"""The fields that a rule compares; None for a rule with state, which only a diagram keeps."""
Whole = Callable[[], tuple[Sequence[Hashable], TermTable]]


@dataclass(frozen=True, eq=False)
class Grouped:
    """Holds the filter of a set of rules: an event goes to the receivers of both parts.

    index: None where the diagram has all rules.
    """

    diagram: CompiledFilter
    index: PredicateIndex | None = None


class GroupedCompiler:
    """Compiles a rule set, then edits of it, at a cost that adds up.

    As long as one diagram of all rules is small it is the filter. Else rules on the same fields
    stay together: the largest groups in the diagram while it stays small, the others in the index.
    An edit compiles anew only the group that holds the rule. Parameters as of ``compile_rules``.
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
        self._indexed = _Indexed()
        self._indexed_keys: set[Key] = set()

    @property
    def indexed(self) -> Collection[Hashable]:
        """The names of the rules that the index has."""
        return self._indexed.names

    def update_table(
        self, names: Sequence[Hashable], table: TermTable, gone: Iterable[Hashable], whole: Whole
    ) -> Grouped:
        """Adds or replaces rules, and removes those ``gone``; rule i of ``table`` is ``names[i]``.

        whole: returns names and terms of all rules as they then are; asked where they have to be
        grouped anew. Errors: ``FilterError`` TOO_LARGE or TOO_MANY_FIELDS where the rules with
        state alone do not fit; the compiler is then as it was before.
        """
        if self._compiler is None:
            return self._group(*whole())
        keys = _keys(table, len(names))
        to_index = [key is not None and key in self._indexed_keys for key in keys]
        staying = [at for at, indexed in enumerate(to_index) if not indexed]
        moving = [at for at, indexed in enumerate(to_index) if indexed]
        lost = {*gone, *(names[at] for at in moving)} & self._in_diagram
        before = self._compiler.compiled
        if staying or lost:
            try:
                change = self._compiler.update_table(
                    [names[at] for at in staying],
                    table.select(np.array(staying, np.int64)) if moving else table,
                    sorted(lost, key=str),
                )
            except FilterError:
                return self._group(*whole())
            before = change.compiled
        self._in_diagram -= lost
        self._in_diagram.update(names[at] for at in staying)
        self._indexed.remove([*gone, *names])
        self._indexed.add([names[at] for at in moving], table.select(np.array(moving, np.int64)))
        return Grouped(before, self._indexed.index(self._specification))

    def _begin(self, limit: int) -> IncrementalCompiler:
        return IncrementalCompiler(
            self._specification, order=self._order, max_entries=limit, optional=self._optional
        )

    def _group(self, names: Sequence[Hashable], table: TermTable) -> Grouped:
        """Groups all rules anew."""
        limit = min(MAX_ENTRIES, max(_FEWEST_ROWS, _ROWS_A_PREDICATE * _predicates(table)))
        compiler = self._begin(limit)
        members: dict[Key, list[int]] = {}
        for at, key in enumerate(_keys(table, len(names))):
            members.setdefault(key, []).append(at)
        indexed: list[int] = []
        try:
            compiled = compiler.update_table(names, table).compiled
        except FilterError:
            compiler, compiled, indexed = self._parted(names, table, members, limit)
        self._compiler = compiler
        held = np.array(sorted(indexed), np.int64)
        self._indexed = _Indexed()
        self._indexed.add([names[at] for at in held.tolist()], table.select(held))
        self._in_diagram = set(names).difference(self._indexed.names)
        apart = set(indexed)
        self._indexed_keys = {key for key, those in members.items() if apart.issuperset(those)}
        return Grouped(compiled, self._indexed.index(self._specification))

    def _parted(
        self,
        names: Sequence[Hashable],
        table: TermTable,
        members: dict[Key, list[int]],
        limit: int,
    ) -> tuple[IncrementalCompiler, CompiledFilter, list[int]]:
        """Returns a diagram with some of the groups, its filter, and the rules of the others."""
        groups = {key: those for key, those in members.items() if key is not None}
        kept = members.get(None, [])
        compiler = self._begin(MAX_ENTRIES if kept else limit)
        compiled = compiler.compiled
        # Beside rules with state, which may take all the room there is, no others are tried.
        trials = sorted(groups.items(), key=lambda pair: (-len(pair[1]), sorted(pair[0])))[:_TRIALS]
        tried = [kept] if kept else [those for _, those in trials if len(those) >= _WORTH_A_TRIAL]
        for those in tried:
            part = table.select(np.array(those, np.int64))
            try:
                compiled = compiler.update_table([names[at] for at in those], part).compiled
            except FilterError:
                if kept:
                    raise
                continue
            groups = {key: each for key, each in groups.items() if each is not those}
        return compiler, compiled, [at for those in groups.values() for at in those]


class _Indexed:
    """Keeps the terms of the rules of the index, as they came."""

    def __init__(self) -> None:
        self._parts: list[tuple[TermTable, NDArray[np.bool_]]] = []
        self._place: dict[Hashable, tuple[int, int]] = {}
        self._index: PredicateIndex | None = None
        self._changed = False

    @property
    def names(self) -> Collection[Hashable]:
        return self._place.keys()

    def add(self, names: Sequence[Hashable], table: TermTable) -> None:
        if names:
            part = len(self._parts)
            self._parts.append((table, np.ones(len(names), np.bool_)))
            self._place |= {name: (part, at) for at, name in enumerate(names)}
            self._changed = True

    def remove(self, names: Iterable[Hashable]) -> None:
        for name in names:
            place = self._place.pop(name, None)
            if place is not None:
                self._parts[place[0]][1][place[1]] = False
                self._changed = True

    def index(self, specification: Specification) -> PredicateIndex | None:
        """Returns the index of all rules that are there; None where there are none."""
        if self._changed:
            tables = [
                table if live.all() else table.select(np.flatnonzero(live))
                for table, live in self._parts
                if live.any()
            ]
            self._index = PredicateIndex(tables, specification) if tables else None
            self._changed = False
        return self._index


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


def _predicates(table: TermTable) -> int:
    blocks = sum(len(block) * len(block.names) for block in table.blocks)
    return blocks + sum(len(term) for term, _, _ in table.terms)
