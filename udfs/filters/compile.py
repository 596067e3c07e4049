"""Checked rules to rows: the one compiled form that the matcher and the switches share.

Source: CAMUS 3.2 (rules to diagram, Algorithm 1: diagram to one table a field).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from udfs.filters.diagram import Diagram, Row, build
from udfs.filters.nodes import Outcome
from udfs.filters.normal_form import MESSAGE_TYPE, Term, normal_form
from udfs.filters.subscriptions import CheckedRule, Rejection, Subscription, check
from udfs.filters.tables import (
    DEFAULT,
    ENTRY,
    EXACT,
    KINDS,
    MESSAGE_TYPE_MAXIMUM,
    RANGE,
    CompiledFilter,
)
from udfs.messages.specification import Field, Specification

__all__ = [
    "ENTRY",
    "KINDS",
    "MAX_ENTRIES",
    "CheckedRule",
    "CompiledFilter",
    "Rejection",
    "Subscription",
    "check",
    "compile_rules",
]

MAX_ENTRIES = 1_000_000
"""Rows before reduction that a compilation may need, unless told otherwise."""

# A range of at most so many values in a field annotated exact becomes exact rows.
_MAX_EXACT_SPLIT = 256


def compile_rules(
    rules: Sequence[CheckedRule], specification: Specification, max_entries: int = MAX_ENTRIES
) -> CompiledFilter:
    """Compile all rules into one filter; an event's leaf has the receivers of all that match.

    Tables stand in the order message type, then ``specification.order()``. Errors:
    ``FilterError`` TOO_LARGE beyond ``max_entries`` rows, before memory is eaten.
    """
    names = sorted({receiver for rule in rules for receiver in rule.receivers})
    bit = {name: 1 << position for position, name in enumerate(names)}
    terms: dict[Term, int] = {}
    for rule in rules:
        mask = sum(bit[receiver] for receiver in set(rule.receivers))
        for term in normal_form(rule.condition, specification):
            terms[term] = terms.get(term, 0) | mask
    used = {field for term in terms for field, _ in term}
    order = [field for field in specification.order() if field.qualified in used]
    levels = {MESSAGE_TYPE: 0} | {field.qualified: i for i, field in enumerate(order, 1)}
    maxima = [MESSAGE_TYPE_MAXIMUM, *((1 << field.bits) - 1 for field in order)]
    diagram = build(terms.items(), levels, maxima, max_entries)
    return _tables(diagram, order, names)


def _tables(diagram: Diagram, order: Sequence[Field], names: Sequence[str]) -> CompiledFilter:
    """Slice the diagram into tables (CAMUS Algorithm 1) and number the states."""
    exact = [True, *(field.match == "exact" for field in order)]
    waiting: list[list[int]] = [[] for _ in range(diagram.levels + 1)]
    waiting[diagram.nodes[diagram.root][0]].append(diagram.root)
    seen = {diagram.root}
    rows_of: dict[int, list[tuple[int, int, int, int]]] = {}
    for level in range(diagram.levels):
        for node in waiting[level]:
            rows_of[node] = _rows(diagram.nodes[node][1], exact[level])
            for _, _, _, child in rows_of[node]:
                if child not in seen:
                    seen.add(child)
                    waiting[diagram.nodes[child][0]].append(child)
    # Nobody's leaf always exists and comes last, as in CAMUS Fig. 4.
    leaves = [node for node in waiting[diagram.levels] if node != 0] + [0]
    inner = [node for level in waiting[:-1] for node in level]
    state_of = {node: state for state, node in enumerate([*inner, *leaves])}
    kept = [level for level in range(1, diagram.levels) if waiting[level]]
    table_of = {0: 0} | {level: table for table, level in enumerate(kept, 1)}
    entries = [
        (table_of[diagram.nodes[node][0]], state_of[node], low, high, kind, state_of[child])
        for node in inner
        for low, high, kind, child in rows_of[node]
    ]
    definitions = tuple(order[level - 1] for level in kept)
    return CompiledFilter(
        fields=(MESSAGE_TYPE, *(field.qualified for field in definitions)),
        definitions=definitions,
        entries=np.array(entries, dtype=ENTRY),
        outcomes={
            state_of[leaf]: Outcome(_members(diagram.receivers[leaf], names)) for leaf in leaves
        },
        root=state_of[diagram.root],
    )


def _rows(rows: Sequence[Row], exact: bool) -> list[tuple[int, int, int, int]]:
    """(low, high, kind, child) of one state: one child becomes the default row.

    It is the child that saves most rows, and among equals nobody's leaf: a value that
    no rule asks for then needs no row. In an exact table it is the child of most values.
    """
    count: dict[int, int] = {}
    width: dict[int, int] = {}
    for low, high, child in rows:
        count[child] = count.get(child, 0) + 1
        width[child] = width.get(child, 0) + high - low + 1
    first = {child: -position for position, (_, _, child) in reversed(list(enumerate(rows)))}
    if exact:
        chosen = max(count, key=lambda child: (width[child], count[child], first[child]))
    else:
        chosen = max(
            count, key=lambda child: (count[child], child == 0, width[child], first[child])
        )
    result: list[tuple[int, int, int, int]] = []
    for low, high, child in rows:
        if child == chosen:
            continue
        if exact and high - low < _MAX_EXACT_SPLIT:
            result += [(value, value, EXACT, child) for value in range(low, high + 1)]
        else:
            result.append((low, high, EXACT if low == high else RANGE, child))
    result.append((0, rows[-1][1], DEFAULT, chosen))
    return result


def _members(mask: int, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for position, name in enumerate(names) if mask >> position & 1)
