"""A set of rules in two groups: one diagram where it stays small, and an index for all others."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from udfs.errors import FilterError
from udfs.filters.compiler.compile import MAX_ENTRIES, CompiledFilter, Order
from udfs.filters.compiler.incremental import IncrementalCompiler
from udfs.filters.compiler.term_table import TermTable
from udfs.filters.predicate_index.predicate_index import PredicateIndex
from udfs.filters.predicate_index.terms import FlatTerms
from udfs.messages.specification import Specification

_ROWS_A_PREDICATE = 4
_FEWEST_ROWS = 512
"""A diagram stays small where it has no more rows: an entry a predicate or two, and gaps."""
_WORTH_A_TRIAL = 32
_SHARE = 8
"""Rules on the same fields are tried in the diagram if they are so many, and this part of all: a
few less in the index save an event nothing."""
_SAMPLE = 2048
"""So many rules show beforehand whether a diagram multiplies: to find out by all takes minutes."""
_STATE_ROWS = 1 << 17
"""A diagram of rules with state, which can go nowhere else, may have so many rows in any case."""
_FIRST = 8
"""Rules with state that do not fit together are first tried so many at once."""
_FAILURES = 6
"""So often such a diagram may turn out too large, which takes seconds, before all that is left is
refused."""

Key = frozenset[str] | None
"""The fields that a rule compares; None for a rule with state, which only a diagram keeps."""
Whole = Callable[[], tuple[Sequence[Hashable], TermTable]]
Turns = Callable[[Sequence[Hashable]], Sequence[int]]


class Refusal(NamedTuple):
    """Says why a rule has no room, and which fields and state it compares."""

    error: FilterError
    asked: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Grouped:
    """Holds the filter of a set of rules: an event goes to the receivers of both parts.

    index: None where the diagram has all rules. refused: by name, rules with state for which the
    diagram has no room left, and why; they are in neither part.
    """

    diagram: CompiledFilter
    index: PredicateIndex | None = None
    refused: Mapping[Hashable, Refusal] = field(default_factory=dict)


class GroupedCompiler:
    """Compiles a rule set, then edits of it, at a cost that adds up.

    As long as one diagram of all rules is small it is the filter. Else rules on the same fields
    stay together: the largest groups in the diagram while it stays small, the others in the index.
    An edit compiles anew only the group that holds the rule. Rules with state that do not fit one
    diagram together are refused one by one, those of a later turn first.

    turns: returns a number for each of the names, equal ones in the order given; None: all equal.
    Others as of ``compile_rules``.
    """

    def __init__(
        self,
        specification: Specification,
        order: Order = "specification",
        optional: bool | None = None,
        turns: Turns | None = None,
    ) -> None:
        self._turns = turns
        self._specification = specification
        self._order = order
        self._optional = optional
        self._compiler: IncrementalCompiler | None = None
        self._in_diagram: set[Hashable] = set()
        self._indexed = _Indexed()
        self._indexed_keys: set[Key] = set()
        self._stateful: set[Hashable] = set()
        self._refused: dict[Hashable, Refusal] = {}

    @property
    def indexed(self) -> Collection[Hashable]:
        """The names of the rules that the index has."""
        return self._indexed.names

    def update_table(
        self, names: Sequence[Hashable], table: TermTable, gone: Iterable[Hashable], whole: Whole
    ) -> Grouped:
        """Adds or replaces rules, and removes those ``gone``; rule i of ``table`` is ``names[i]``.

        whole: returns names and terms of all rules as they then are; asked where they have to be
        grouped anew.
        """
        if self._compiler is None:
            return self._group(*whole())
        keys = _keys(table, len(names))
        stateful = {name for name, key in zip(names, keys, strict=True) if key is None}
        touched = {*gone, *names}
        if self._refused and (stateful or touched & self._stateful):
            # Which of them fit is for all of them to say.
            return self._group(*whole())
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
        self._stateful -= touched
        self._stateful |= stateful
        self._in_diagram -= lost
        self._in_diagram.update(names[at] for at in staying)
        self._indexed.remove([*gone, *names])
        self._indexed.add([names[at] for at in moving], table.select(np.array(moving, np.int64)))
        return Grouped(before, self._indexed.index(self._specification), self._refused)

    def _begin(self, limit: int) -> IncrementalCompiler:
        return IncrementalCompiler(
            self._specification, order=self._order, max_entries=limit, optional=self._optional
        )

    def _group(self, names: Sequence[Hashable], table: TermTable) -> Grouped:
        """Groups all rules anew."""
        limit = small(table)
        compiler = self._begin(limit)
        members: dict[Key, list[int]] = {}
        for at, key in enumerate(_keys(table, len(names))):
            members.setdefault(key, []).append(at)
        indexed: list[int] = []
        self._stateful = {names[at] for at in members.get(None, [])}
        self._refused = {}
        try:
            self._probe(range(len(names)), table)
            compiled = compiler.update_table(names, table).compiled
        except FilterError:
            compiler, compiled, indexed = self._parted(names, table, members, limit)
        self._compiler = compiler
        held = np.array(sorted(indexed), np.int64)
        self._indexed = _Indexed()
        self._indexed.add([names[at] for at in held.tolist()], table.select(held))
        self._in_diagram = set(names).difference(self._indexed.names, self._refused)
        apart = set(indexed)
        self._indexed_keys = {key for key, those in members.items() if apart.issuperset(those)}
        return Grouped(compiled, self._indexed.index(self._specification), self._refused)

    def _parted(
        self,
        names: Sequence[Hashable],
        table: TermTable,
        members: dict[Key, list[int]],
        limit: int,
    ) -> tuple[IncrementalCompiler, CompiledFilter, list[int]]:
        """Returns a diagram with some of the groups, its filter, and the rules of the others."""
        groups = {key: those for key, those in members.items() if key is not None}
        if kept := members.get(None, []):
            # They may take all the room there is, so no others are tried beside them.
            own = table.select(np.array(kept, np.int64))
            compiler = self._begin(max(small(own), _STATE_ROWS))
            self._admit(compiler, names, table, kept)
            return compiler, compiler.compiled, [at for those in groups.values() for at in those]
        compiler = self._begin(limit)
        trials = sorted(groups.items(), key=lambda pair: (-len(pair[1]), sorted(pair[0])))
        worth = max(_WORTH_A_TRIAL, len(names) // _SHARE)
        inside: list[int] = []
        for those in (those for _, those in trials if len(those) >= worth):
            part = table.select(np.array(those, np.int64))
            try:
                self._probe([*inside, *those], table)
                compiler.update_table([names[at] for at in those], part)
            except FilterError:
                continue
            inside += those
            groups = {key: each for key, each in groups.items() if each is not those}
        return compiler, compiler.compiled, [at for those in groups.values() for at in those]

    def _probe(self, rules: Sequence[int], table: TermTable) -> None:
        """Raises FilterError where a part of the rules shows that a diagram of them multiplies."""
        if len(rules) > 2 * _SAMPLE:
            drawn = np.random.default_rng(0).choice(np.array(rules), _SAMPLE, replace=False)
            part = table.select(np.sort(drawn))
            self._begin(small(part)).update_table(range(_SAMPLE), part)

    def _admit(
        self,
        compiler: IncrementalCompiler,
        names: Sequence[Hashable],
        table: TermTable,
        rules: Sequence[int],
    ) -> None:
        """Adds as many of the rules with state as fit, in the order of their turns."""
        if self._turns is not None:
            turn = dict(zip(rules, self._turns([names[at] for at in rules]), strict=True))
            rules = sorted(rules, key=turn.__getitem__)
        waiting, size, failed = deque(rules), _FIRST, 0
        errors: dict[int, FilterError] = {}
        while waiting:
            those = [waiting.popleft() for _ in range(min(size, len(waiting)))]
            part = table.select(np.array(those, np.int64))
            try:
                compiler.update_table([names[at] for at in those], part)
            except FilterError as error:
                failed += 1
                if failed == _FAILURES:
                    errors |= dict.fromkeys((*those, *waiting), error)
                    break
                if len(those) == 1:
                    errors[those[0]] = error
                else:
                    waiting.extendleft(reversed(those))
                size = max(1, len(those) // 2)
            else:
                size *= 2
        asked = _asked(table, errors)
        for at, fault in errors.items():
            self._refused[names[at]] = Refusal(fault, tuple(sorted(asked[at])))


class _Indexed:
    """Keeps the terms of the rules of the index, numbered as they came."""

    def __init__(self) -> None:
        self._terms = [FlatTerms.of(TermTable())]
        self._number: dict[Hashable, int] = {}
        self._live = np.zeros(0, np.bool_)
        self._gone = False
        self._index: PredicateIndex | None = None

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

    def index(self, specification: Specification) -> PredicateIndex | None:
        """Returns the index of all rules that are there; None where there are none."""
        if self._gone or len(self._terms) > 1:
            terms = self._terms
            if self._gone:
                terms = [part.select(np.flatnonzero(self._live[part.rule])) for part in terms]
            self._terms, self._gone = [FlatTerms.joined(terms)], False
            self._index = PredicateIndex(self._terms[0], specification) if self._number else None
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


def _asked(table: TermTable, rules: Container[int]) -> dict[int, set[str]]:
    """Returns the fields and the state that each of these rules compares."""
    asked: dict[int, set[str]] = defaultdict(set)
    for block in table.blocks:
        for rule in filter(rules.__contains__, np.unique(block.rule).tolist()):
            asked[rule].update(block.names)
    for term, rule, _ in table.terms:
        if rule in rules:
            asked[rule].update(name for name, _ in term)
    return asked


def small(table: TermTable) -> int:
    """Returns how many rows a diagram of these terms has at most, to be a small one."""
    predicates = sum(len(block) * len(block.names) for block in table.blocks)
    predicates += sum(len(term) for term, _, _ in table.terms)
    return min(MAX_ENTRIES, max(_FEWEST_ROWS, _ROWS_A_PREDICATE * predicates))
