"""Explanation of an event's path and of a rule's rows, for people, from the compiled rows.

Nothing here is fast, and nothing is decided here: the path is that of the rows, and the meaning of
a rule is that of ``evaluate`` and the normal form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stackcast.udfs.filters.compiler.tables import ABSENT, DEFAULT, KINDS, LPM
from stackcast.udfs.filters.grouped import Grouped
from stackcast.udfs.filters.intervals import Intervals
from stackcast.udfs.filters.meaning.evaluate import Subject, matches
from stackcast.udfs.filters.meaning.normal_form import Term, lane_terms
from stackcast.udfs.filters.meaning.state import alternatives, describe, split, subjects
from stackcast.udfs.filters.nodes import (
    Aggregate,
    And,
    Node,
    Not,
    Or,
    Outcome,
    Predicate,
    Rule,
    StatePredicate,
    Update,
)
from stackcast.udfs.messages.specification import Field, Specification

Truth = Literal["true", "false", "unknown"]

MESSAGE_TYPE_FIELD = Field("", "message_type", 8, 0, "string")


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of the tables. ``text`` is the row for people."""

    field: str
    state: int
    low: int
    high: int
    kind: str
    next: int
    text: str


@dataclass(frozen=True, slots=True)
class PathStep:
    """One table on an event's path: the value, None if the event lacks it, and the row it took.

    ``row`` is None where the state has no rows in the table, which it then passes unchanged.
    """

    field: str
    state: int
    value: int | None
    shown: str
    row: TableRow | None


@dataclass(frozen=True, slots=True)
class Path:
    """The path of an event through the tables, and the leaf it ends at."""

    steps: tuple[PathStep, ...]
    leaf: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Decision:
    """One predicate of a rule: its truth for the event; decided: True if the rule hung on it."""

    text: str
    truth: Truth
    decided: bool


@dataclass(frozen=True, slots=True)
class RuleEvaluation:
    """The truth of a rule for the event, and of its predicates."""

    matches: bool
    truth: Truth
    predicates: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One term that a rule compiled to: its text, its updates, and the leaves of its events.

    rows: those that an event on which the term is true may take, in the order of the tables.
    leaves: the states at which it may end.
    """

    text: str
    acts: bool
    updates: tuple[str, ...]
    rows: tuple[TableRow, ...]
    leaves: tuple[int, ...]


class Explainer:
    """Explains events and rules by the rows of a diagram, by table and state, and by the terms of
    indexes."""

    def __init__(self, filter_: Grouped, specification: Specification) -> None:
        self._grouped = filter_
        self.compiled = compiled = filter_.diagram
        self._specification = specification
        entries = compiled.entries
        self._keys = (entries["field"].astype(np.int64) << 32) | entries["state"]
        self._fields = (MESSAGE_TYPE_FIELD, *compiled.definitions)
        self._typed = any(h.message_type is not None for h in specification.headers)
        self._whole = {
            lane.qualified: (whole, lane)
            for whole in specification.fields.values()
            if whole.bits > 64
            for lane in whole.lanes()
        }

    def path(
        self,
        event: Mapping[str, int],
        message_type: int | None,
        cells: Mapping[str, int | None] | None = None,
    ) -> Path:
        """Returns the path of an event. Without message types, their table is no part of it.

        ``event``: raw values by qualified name. ``cells``: values that the event finds in cells, by
        name; one that is not named is empty (``Cell.initial``).
        """
        values = self._values(event, message_type, cells or {})
        state = self.compiled.root
        steps = []
        for at, name in enumerate(self.compiled.fields):
            if at == 0 and not self._typed:
                continue
            row = self._taken(at, state, values.get(name))
            steps.append(
                PathStep(name, state, values.get(name), self._show(at, values.get(name)), row)
            )
            state = state if row is None else row.next
        return Path(tuple(steps), state, self.compiled.outcomes[state])

    def holding(
        self,
        event: Mapping[str, int],
        message_type: int | None,
        cells: Mapping[str, int | None] | None = None,
    ) -> list[tuple[str, Outcome]]:
        """Returns the terms of the indexes that are true on an event, in words, and their outcomes.

        Arguments as of ``path``.
        """
        values = self._values(event, message_type, cells or {})
        return [
            (" and ".join(each["text"] for each in predicates) or "always", outcome)
            for index in self._grouped.indexes
            for predicates, outcome in index.described()
            if all(_holds(each, values.get(each["field"])) for each in predicates)
        ]

    def rule(
        self,
        rule: Rule,
        optional: bool | None = None,
    ) -> tuple[Alternative, ...]:
        """Returns the terms that a rule of the filter compiled to. optional: as for the filter."""
        updates = tuple(a for a in rule.actions if isinstance(a, Update))
        functions = {cell.name: cell.function for cell in self._grouped.cells}
        found = split(rule.condition, self._specification, updates, functions, optional)
        alternatives_ = []
        for term in found.terms:
            rows: dict[tuple[int, int, int], TableRow] = {}
            leaves: set[int] = set()
            for narrow in lane_terms(term.term, self._specification):
                self._follow(narrow, rows, leaves)
            alternatives_.append(
                Alternative(
                    describe(term.term, self._specification) or "always",
                    term.acts,
                    tuple(f"{u.cell} <- {u.function}({u.field or ''})" for u in term.updates),
                    tuple(rows[key] for key in sorted(rows)),
                    tuple(sorted(leaves)),
                )
            )
        return tuple(alternatives_)

    def segments(self, at: int, state: int) -> list[tuple[int, int, TableRow]]:
        """Returns the rows of values: (low, high, row), every value of the field once."""
        rows = [row for row in self._rows(at, state) if row.kind != "absent"]
        default = next((row for row in rows if row.kind == "default"), None)
        others = [row for row in rows if row.kind != "default"]
        end = 1 << self._fields[at].bits
        found: list[tuple[int, int, TableRow]] = []
        around: list[TableRow] = []
        place = 0

        def fill(upto: int) -> None:
            """Fills from ``place`` to before ``upto``: the innermost row around, else the default
            row."""
            nonlocal place
            while place < upto:
                while around and around[-1].high < place:
                    around.pop()
                row = around[-1] if around else default
                last = min(upto - 1, around[-1].high) if around else upto - 1
                if row is not None:
                    found.append((place, last, row))
                place = last + 1

        # Wide rows first, so that prefixes stand within those that are pushed before them.
        for row in sorted(others, key=lambda row: (row.low, -row.high)):
            fill(row.low)
            around.append(row)
        fill(end)
        return found

    def _values(
        self,
        event: Mapping[str, int],
        message_type: int | None,
        cells: Mapping[str, int | None],
    ) -> dict[str, int]:
        values = dict(event)
        if message_type is not None:
            values["message_type"] = message_type
        for name, (whole, lane) in self._whole.items():
            raw = event.get(whole.qualified)
            if raw is not None:
                shift = whole.bits - (lane.bit_offset - whole.bit_offset) - lane.bits
                values[name] = (raw >> shift) & ((1 << lane.bits) - 1)
        for cell in self._grouped.cells:
            found = cells.get(cell.name, cell.initial(event))
            if found is not None:
                values[cell.name] = found
        return values

    def _rows(self, at: int, state: int) -> list[TableRow]:
        key = (at << 32) | state
        first, last = np.searchsorted(self._keys, [key, key + 1])
        entries = self.compiled.entries[first:last]
        return [
            TableRow(
                r["field"],
                r["state"],
                int(e["low"]),
                int(e["high"]),
                r["kind"],
                r["next"],
                r["text"],
            )
            for e, r in zip(entries, self.compiled.rows_of(entries), strict=True)
        ]

    def _taken(self, at: int, state: int, value: int | None) -> TableRow | None:
        key = (at << 32) | state
        first, last = np.searchsorted(self._keys, [key, key + 1])
        if first == last:
            return None
        entries = self.compiled.entries[first:last]
        kind = entries["kind"]
        if value is None:
            fits = kind == ABSENT
        else:
            raw = np.uint64(value)
            fits = (entries["low"] <= raw) & (raw <= entries["high"])
            fits &= (kind != ABSENT) & (kind != DEFAULT)
        if not fits.any():
            fits = kind == DEFAULT
        places = np.flatnonzero(fits)
        if len(places) > 1:  # prefixes: the longest wins
            places = places[[np.argmin(entries["high"][places] - entries["low"][places])]]
        one = entries[places]
        (row,) = self.compiled.rows_of(one)
        low, high = int(one["low"][0]), int(one["high"][0])
        return TableRow(row["field"], state, low, high, row["kind"], row["next"], row["text"])

    def _follow(
        self, term: Term, rows: dict[tuple[int, int, int], TableRow], leaves: set[int]
    ) -> None:
        """Adds the rows and leaves of the events on which the term is true."""
        allowed_by = dict(term)
        states = {self.compiled.root}
        for at, name in enumerate(self.compiled.fields):
            allowed = allowed_by.get(name)
            following: set[int] = set()
            for state in states:
                here = self._rows(at, state)
                if not here:
                    following.add(state)
                    continue
                taken = [
                    row
                    for low, high, row in self.segments(at, state)
                    if allowed is None or _meet(allowed, low, high)
                ]
                if allowed is None:
                    taken += [row for row in here if row.kind in ("absent", "default")]
                for row in taken:
                    rows[at, state, _order(row)] = row
                    following.add(row.next)
            states = following
        leaves |= states

    def _show(self, at: int, value: int | None) -> str:
        if value is None:
            return "absent"
        name = self.compiled.fields[at]
        if name in self._specification.fields:
            return shown_value(name, value, self._specification)
        return self._fields[at].show(value)


def shown_value(name: str, raw: int, specification: Specification) -> str:
    """Writes a value as rules do: text where a field holds text, annotated or not."""
    return describe(((name, ((raw, raw),)),), specification).split(" == ", 1)[-1]


def evaluate_rule(
    rule: Rule,
    event: Mapping[str, int],
    specification: Specification,
    state: Mapping[Subject, int | None] | None = None,
    cells: Mapping[str, int | None] | None = None,
) -> RuleEvaluation:
    """Evaluates the predicates of a rule on an event, and finds those that decided.

    ``state``: the value that the event finds in each variable, ``cells`` in each cell of a macro by
    name. In a rule with macros the predicates are those of its alternatives, as each has cells of
    its own.
    """
    held = state or {}
    if any(isinstance(subject, Aggregate) for subject in subjects(rule.condition)):
        return _verdict_by_terms(rule, event, specification, held, cells or {})
    truths: dict[int, Truth] = {}
    leaves: list[Predicate | StatePredicate] = []
    truth = _truth(rule.condition, event, held, truths, leaves)
    decisive: set[int] = set()
    _decide(rule.condition, truths, decisive)
    return RuleEvaluation(
        truth == "true",
        truth,
        tuple(Decision(p.text, truths[id(p)], id(p) in decisive) for p in leaves),
    )


def _truth(
    node: Node,
    event: Mapping[str, int],
    state: Mapping[Subject, int | None],
    truths: dict[int, Truth],
    leaves: list[Predicate | StatePredicate],
) -> Truth:
    found: Truth
    if isinstance(node, (Predicate, StatePredicate)):
        leaves.append(node)
        if matches(node, event, state):
            found = "true"
        else:
            found = "false" if matches(Not(node), event, state) else "unknown"
    elif isinstance(node, Not):
        child = _truth(node.child, event, state, truths, leaves)
        found = {"true": "false", "false": "true", "unknown": "unknown"}[child]  # type: ignore[assignment]
    else:
        children = [_truth(child, event, state, truths, leaves) for child in node.children]
        decisive: Truth = "true" if isinstance(node, Or) else "false"
        other: Truth = "false" if isinstance(node, Or) else "true"
        rest: Truth = "unknown" if "unknown" in children else other
        found = decisive if decisive in children else rest
    truths[id(node)] = found
    return found


def _decide(node: Node, truths: Mapping[int, Truth], decisive: set[int]) -> None:
    """Finds the predicates that alone decide the truth, whatever the others are."""
    if isinstance(node, Not):
        _decide(node.child, truths, decisive)
    elif isinstance(node, (And, Or)):
        truth = truths[id(node)]
        same = [child for child in node.children if truths[id(child)] == truth]
        # One true child of an 'or' is enough, and one false child of an 'and'.
        enough = truth == ("true" if isinstance(node, Or) else "false")
        chosen: Sequence[Node] = same[:1] if enough else same
        if truth == "unknown":
            chosen = node.children
        for child in chosen:
            _decide(child, truths, decisive)
    else:
        decisive.add(id(node))


def _verdict_by_terms(
    rule: Rule,
    event: Mapping[str, int],
    specification: Specification,
    state: Mapping[Subject, int | None],
    cells: Mapping[str, int | None],
) -> RuleEvaluation:
    values: dict[str, int | None] = dict(event)
    values |= {s.name: v for s, v in state.items() if not isinstance(s, Aggregate)}
    for header in specification.headers:
        if header.message_type is not None and any(f.qualified in event for f in header.fields):
            values["message_type"] = header.message_type
    decisions: list[Decision] = []
    holds = False
    for alternative in alternatives(rule.condition, specification, True):
        parts: list[tuple[str, Truth]] = []
        for literal in alternative.rest:
            name, allowed = literal
            shown = describe((literal,), specification) or name
            parts.append((shown, _among(values.get(name), allowed)))
        for cell, allowed in alternative.macros:
            found = cells.get(cell.name, cell.initial(event))
            parts.append((describe(((cell.name, allowed),), specification), _among(found, allowed)))
        true = all(truth == "true" for _, truth in parts)
        holds |= true
        failing = next((i for i, (_, truth) in enumerate(parts) if truth == "false"), None)
        for i, (text, truth) in enumerate(parts):
            decided = true or (truth != "true" if failing is None else i == failing)
            decisions.append(Decision(text, truth, decided))
    return RuleEvaluation(holds, "true" if holds else "false", tuple(decisions))


def _among(value: int | None, allowed: Intervals) -> Truth:
    if value is None:
        return "unknown"
    return "true" if any(low <= value <= high for low, high in allowed) else "false"


def _holds(predicate: Mapping[str, Any], value: int | None) -> bool:
    """Returns the truth of a predicate of the index."""
    spans = [
        (int.from_bytes(each["low"]), int.from_bytes(each["high"]))
        for each in predicate["intervals"]
    ]
    return value is not None and _meet(tuple(spans), value, value)


def _meet(allowed: Intervals, low: int, high: int) -> bool:
    return any(first <= high and low <= last for first, last in allowed)


def _order(row: TableRow) -> int:
    """Returns a key of the row among those of its state: by low, wide prefixes first."""
    kind = KINDS.index(row.kind)
    if kind in (DEFAULT, ABSENT):
        return (1 << 130) + kind
    return (row.low << 65) + ((1 << 64) - 1 - (row.high - row.low) if kind == LPM else 0)
