"""The rules of a switch in groups: diagrams where they stay small, keys of conjunctions, and bit
vectors for all others.

An event meets a diagram or bit vectors a pass, and tables of keys beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stackcast.udfs.filters.compiler.compile import CompiledFilter, compile_table
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.grouped import GroupedCompiler, small
from stackcast.udfs.filters.nodes import Call, Outcome
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.bit_vectors import BitVectors, bit_vectors, merged
from stackcast.udfs.network_match.conjunctions import Conjunctions, KeySets
from stackcast.udfs.network_match.entries import port_of
from stackcast.udfs.network_match.layout import ProgramLayout
from stackcast.udfs.network_match.port_terms import port_terms


@dataclass(frozen=True, eq=False)
class Groups:
    """Holds the rules of a switch as ``program_entries`` takes them.

    vectors: a pass each, after that of the diagram. conjunctions: by table of keys, what it holds
    in each pass. refused: rules that found no room, and are in no group, or in part.
    """

    diagram: CompiledFilter
    vectors: Sequence[BitVectors] = ()
    conjunctions: Sequence[Sequence[Conjunctions]] = ()
    refused: Collection[int] = ()

    @property
    def passes(self) -> int:
        """The passes of an event."""
        roots = len(self.vectors) + _asks(self.diagram)
        return max(1, roots, *map(len, self.conjunctions))


Way = Callable[[Sequence[int]], Groups]
"""Groups these rules, numbers ascending. Raises FilterError as ``compile_table`` does."""


class Grouping:
    """Groups ``count`` rules, those of a table, in several ways.

    bound: the rules with state or named actions, which only a diagram takes. terms: of the others.
    ports: host name to port; numeric receivers are ports themselves.
    """

    def __init__(
        self,
        table: TermTable,
        count: int,
        specification: Specification,
        program: ProgramLayout,
        ports: Mapping[str, int],
    ) -> None:
        self._table, self._specification, self._program = table, specification, program
        self._exact = {stage.field for stage in program.stages if stage.kinds == ("exact",)}
        self.bound = frozenset({*table.kept, *table.updates, *_calling(table)})
        others = [rule for rule in range(count) if rule not in self.bound]
        found = port_terms(self._select(others), lambda receiver: port_of(receiver, ports))
        self._divided = True
        self.terms = [each._replace(rule=others[each.rule]) for each in found]

    def ways(self) -> Iterator[Way]:
        """Yields the ways to group rules: one small diagram, or the largest sets of rules on the
        same fields in one; only ``bound`` in the diagram."""
        yield self.whole if self.bound else self.by_fields
        if self._divided:
            yield self.apart

    def whole(self, rules: Sequence[int]) -> Groups:
        """Groups all rules in one small diagram."""
        part = self._select(rules)
        return Groups(compile_table(part, self._specification, small(part)))

    def large(self, rules: Sequence[int]) -> Groups:
        """Groups all rules in one diagram, up to the rows of a table; a small one is ``whole``."""
        part, rows = self._select(rules), self._program.options.rows
        return Groups(compile_table(part, self._specification, rows if small(part) < rows else 1))

    def by_fields(self, rules: Sequence[int]) -> Groups:
        """Groups rules without state as the stream does, and what it would index in passes."""
        part, compiler = self._select(rules), GroupedCompiler(self._specification)
        diagram = compiler.update_table(rules, part, (), lambda: (rules, part)).diagram
        self._divided = _asks(diagram)
        return self._beside(diagram, {rule for rule in rules if rule in compiler.indexed})

    def apart(self, rules: Sequence[int]) -> Groups:
        """Groups the rules that are not ``bound`` outside of the diagram."""
        own = [rule for rule in rules if rule in self.bound]
        diagram = compile_table(self._select(own), self._specification)
        return self._beside(diagram, set(rules).difference(own))

    def _beside(self, diagram: CompiledFilter, rules: Collection[int]) -> Groups:
        """Groups these rules beside a diagram, in the fewest passes: as bit vectors, or as keys and
        what is left as bit vectors."""
        terms = [each for each in self.terms if each.rule in rules]
        before, most = _asks(diagram), self._program.options.passes
        vectors, refused = bit_vectors(merged(terms), most, self._program)
        alone = Groups(diagram, vectors, (), refused)
        fits = not refused and self._has_rows(vectors)
        if fits and len(vectors) < 2:
            return alone
        sets = KeySets(terms, self._program)

        def within(passes: int) -> Groups:
            keys, rest = sets.placed(min(passes, most))
            vectors, refused = bit_vectors(merged(rest), passes - before, self._program)
            return Groups(diagram, vectors, keys, refused)

        best, least = within(most + before), 1
        if not best.refused:
            while least < best.passes:
                middle = (least + best.passes) // 2
                found = within(middle)
                if found.refused:
                    least = middle + 1
                else:
                    best = found
        return alone if fits and (best.refused or alone.passes <= best.passes) else best

    def _has_rows(self, vectors: Sequence[BitVectors]) -> bool:
        """Returns whether the tables of all fields have room for the rows of bit vectors."""
        rows: Counter[str] = Counter()
        for group in vectors:
            for name, field in group.fields.items():
                rows[name] += sum(
                    high - low + 1 if name in self._exact else 1 for low, high, _ in field.rows
                )
        return max(rows.values(), default=0) <= self._program.options.rows

    def _select(self, rules: Sequence[int]) -> TermTable:
        return self._table.select(np.array(rules, np.int64))


def _asks(diagram: CompiledFilter) -> bool:
    """Returns whether a diagram needs a pass."""
    return diagram.outcomes.get(diagram.root) != Outcome()


def _calling(table: TermTable) -> set[int]:
    """Returns the rules that name actions."""
    calling = [
        number
        for tokens, number in table.outcomes.items()
        if any(isinstance(token, Call) for token in tokens)
    ]
    found = {rule for _, rule, number in table.terms if number in calling}
    return found.union(np.flatnonzero(np.isin(table.outcome, calling)).tolist())
