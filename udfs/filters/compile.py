"""Checked rules to rows: the one compiled form that the matcher and the switches share.

Source: CAMUS 3.2 (rules to diagram, Algorithm 1: diagram to one table a field).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udfs.filters.diagram import Diagram, Row, build
from udfs.filters.normal_form import MESSAGE_TYPE, Term, normal_form
from udfs.filters.subscriptions import CheckedRule, Rejection, Subscription, check
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

KINDS = ("exact", "range", "default")

ENTRY = np.dtype(
    [
        ("field", "<u2"),
        ("state", "<i4"),
        ("low", "<u8"),
        ("high", "<u8"),
        ("kind", "u1"),
        ("next", "<i4"),
    ]
)

_EXACT, _RANGE, _DEFAULT = range(3)
# A range of at most so many values in a field annotated exact becomes exact rows.
_MAX_EXACT_SPLIT = 256

_MESSAGE_TYPE_MAXIMUM = 255


@dataclass(frozen=True)
class CompiledFilter:
    """Per-field tables ``(state, value) -> state`` and leaves ``state -> receivers``.

    fields: table order; first ``message_type`` (a pseudo field of 8 bits), then the
        qualified names of the fields that the tables read.
    definitions: the specification's fields for ``fields[1:]``.
    entries: structured array ``ENTRY`` sorted by field, state, default last, low.
        ``field`` indexes ``fields``; ``low`` and ``high`` are raw values, both included;
        ``kind`` indexes ``KINDS``. Exact and range rows of a state are disjoint; its one
        default row (low 0, high the maximum) is taken if none of them fits.
    leaves: leaf state to receivers, sorted. The last state is nobody's, ``()``.
    root: the state to start in.

    A state without rows in a field's table passes that table unchanged. States are
    numbered table by table in order of first use, so equal sets of rules give
    equal rows, in whatever order the rules came.
    """

    fields: tuple[str, ...]
    definitions: tuple[Field, ...]
    entries: NDArray[Any]
    leaves: dict[int, tuple[str, ...]]
    root: int

    def entry_rows(self) -> Iterator[dict[str, Any]]:
        """Rows of table ``filter_entries``: field, state, low, high (big-endian bytes of the
        field's width), kind, next, and a text for people (``price in 50.2500..51.0000``)."""
        widths = [1, *((field.bits + 7) // 8 for field in self.definitions)]
        for index, state, low, high, kind, following in self.entries.tolist():
            yield {
                "field": self.fields[index],
                "state": state,
                "low": low.to_bytes(widths[index], "big"),
                "high": high.to_bytes(widths[index], "big"),
                "kind": KINDS[kind],
                "next": following,
                "text": self._text(index, low, high, kind),
            }

    def leaf_rows(self) -> list[dict[str, Any]]:
        """Rows of table ``filter_leaves``: state and receivers (a list, empty for nobody)."""
        return [
            {"state": state, "receivers": list(receivers)}
            for state, receivers in sorted(self.leaves.items())
        ]

    def _text(self, index: int, low: int, high: int, kind: int) -> str:
        if kind == _DEFAULT:
            return "otherwise"
        if index == 0:
            name, maximum, shown = MESSAGE_TYPE, _MESSAGE_TYPE_MAXIMUM, (chr(low), chr(high))
        else:
            field = self.definitions[index - 1]
            name, maximum = field.name, (1 << field.bits) - 1
            shown = (field.render(low), field.render(high))
        if low == high:
            return f"{name} == {shown[0]}"
        if low == 0:
            return f"{name} <= {shown[1]}"
        if high == maximum:
            return f"{name} >= {shown[0]}"
        return f"{name} in {shown[0]}..{shown[1]}"


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
    maxima = [_MESSAGE_TYPE_MAXIMUM, *((1 << field.bits) - 1 for field in order)]
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
        leaves={state_of[leaf]: _members(diagram.receivers[leaf], names) for leaf in leaves},
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
            result += [(value, value, _EXACT, child) for value in range(low, high + 1)]
        else:
            result.append((low, high, _EXACT if low == high else _RANGE, child))
    result.append((0, rows[-1][1], _DEFAULT, chosen))
    return result


def _members(mask: int, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for position, name in enumerate(names) if mask >> position & 1)
