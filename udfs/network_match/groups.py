"""The rules of a switch in groups: a diagram where it stays small, and bit vectors for all others.

An event meets one group a pass, so of the ways to group them that with the fewest passes is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from udfs.errors import FilterError
from udfs.filters.compiler.compile import CompiledFilter, compile_table
from udfs.filters.compiler.term_table import TermTable
from udfs.filters.grouped import GroupedCompiler, small
from udfs.filters.nodes import Call, Outcome
from udfs.messages.specification import Specification
from udfs.network_match.bit_vectors import BitVectors, bit_vectors
from udfs.network_match.entries import port_of
from udfs.network_match.layout import ProgramLayout


@dataclass(frozen=True, eq=False)
class Groups:
    """Holds the rules of a switch as ``program_entries`` takes them.

    refused: rules by number, ascending, that found no room and are in no group, or in part.
    """

    diagram: CompiledFilter
    vectors: Sequence[BitVectors] = ()
    refused: Sequence[int] = ()

    @property
    def passes(self) -> int:
        """The passes of an event."""
        empty = self.diagram.outcomes.get(self.diagram.root) == Outcome()
        return max(1, len(self.vectors) + (not empty))


def groups_of(
    table: TermTable,
    count: int,
    specification: Specification,
    program: ProgramLayout,
    ports: Mapping[str, int],
) -> Groups:
    """Groups ``count`` rules, those of ``table``.

    One small diagram is as good as it gets. Then: the diagram has only rules with state or named
    actions; or, where there are none, the largest groups on the same fields; or all rules, up to
    the rows of one table.
    ports: host name to port; numeric receivers are ports themselves.

    Raises FilterError as ``compile_table`` does if rules with state or named actions alone do not
    fit.
    """
    best: Groups | None = None
    for found in _ways(table, count, specification, program, ports):
        if not found.refused and found.passes == 1:
            return found
        if best is None or _cost(found) < _cost(best):
            best = found
    assert best is not None
    return best


def _cost(groups: Groups) -> tuple[int, int]:
    return len(groups.refused), groups.passes


def _ways(
    table: TermTable,
    count: int,
    specification: Specification,
    program: ProgramLayout,
    ports: Mapping[str, int],
) -> Iterator[Groups]:
    maximum = {stage.field: (1 << stage.bits) - 1 for stage in program.stages}
    single = [stage.field for stage in program.stages if stage.kinds == ("exact",)]

    def with_vectors(diagram: CompiledFilter, others: Sequence[int]) -> Groups:
        held = np.array(others, np.int64)
        vectors, refused = bit_vectors(
            table.select(held),
            lambda receiver: port_of(receiver, ports),
            program.options,
            maximum,
            single,
        )
        return Groups(diagram, vectors, [others[at] for at in refused])

    def whole(rows: int) -> Iterator[Groups]:
        with suppress(FilterError):
            yield Groups(compile_table(table, specification, rows))

    yield from whole(small(table))
    bound = {*table.kept, *table.updates, *_calling(table)}
    alone = compile_table(table.select(np.array(sorted(bound), np.int64)), specification)
    yield with_vectors(alone, [rule for rule in range(count) if rule not in bound])
    if not bound:
        names = list(range(count))
        compiler = GroupedCompiler(specification)
        diagram = compiler.update_table(names, table, (), lambda: (names, table)).diagram
        yield with_vectors(diagram, [rule for rule in names if rule in compiler.indexed])
    if small(table) < program.options.rows:
        yield from whole(program.options.rows)


def _calling(table: TermTable) -> set[int]:
    """Returns the rules that name actions."""
    calling = [
        number
        for tokens, number in table.outcomes.items()
        if any(isinstance(token, Call) for token in tokens)
    ]
    found = {rule for _, rule, number in table.terms if number in calling}
    return found.union(np.flatnonzero(np.isin(table.outcome, calling)).tolist())
