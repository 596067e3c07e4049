"""Rules with state as cells of a switch: which events a cell knows, who gets them by what it says.

A rule is alternatives, each a rest and what a macro must say (docs/reference/rule-state.md). Events
on which a rest is true ask its cell, then update it. That is a pass of its own for each cell, as a
target reaches a register once a pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stackcast.udfs.filters.intervals import Intervals
from stackcast.udfs.filters.meaning.evaluate import is_stateful
from stackcast.udfs.filters.meaning.normal_form import STATE_MAXIMUM
from stackcast.udfs.filters.meaning.state import Alternative, Cell, alternatives
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.network_match.generic.boxes import Spans, in_order, spans_of

LONGEST_WINDOW = (1 << 47) - 1
"""Microseconds: registers of 48 bits count around."""

ValueRow = tuple[int, int, tuple[str, ...]]
"""Least and greatest value of a cell, and who gets events that find one between."""


@dataclass(frozen=True)
class CellTerms:
    """A cell of a switch.

    spans: the rest, which events must fulfil that ask the cell. operand: id of the attribute that
    updates it; None: updates are counted. rows: disjoint, ascending.
    """

    cell: Cell
    spans: Spans
    operand: int | None
    rows: tuple[ValueRow, ...]


def cells_of(rules: Iterable[CheckedRule], registry: Registry) -> list[CellTerms]:
    """Returns the cells of all rules, those that most rules ask first, of equals by name.

    Rules are those that ``refused_state`` finds nothing against. Errors: ``SubscriptionError`` as
    of ``normal_form``.
    """
    specification = registry.specification()
    rests: dict[Cell, Spans] = {}
    asked: dict[Cell, list[tuple[Intervals, tuple[str, ...]]]] = defaultdict(list)
    for rule in rules:
        if not rule.receivers or not is_stateful(rule.condition):
            continue
        for alternative in alternatives(rule.condition, specification, optional=True):
            for cell, allowed in alternative.macros:
                rests[cell] = spans_of(alternative.rest, registry)
                asked[cell].append((allowed, rule.receivers))
    return [
        CellTerms(
            cell,
            rests[cell],
            None if cell.field is None else registry.by_name[cell.field].id,
            _rows(found),
        )
        for cell, found in sorted(asked.items(), key=lambda item: (-len(item[1]), item[0].name))
    ]


def refused_state(rule: CheckedRule, registry: Registry) -> str:
    """Returns why a switch cannot keep the state of a rule; empty if it can."""
    if rule.updates:
        return "supports no variables: use avg(...) or another function of an attribute"
    if not is_stateful(rule.condition):
        return ""
    for alternative in alternatives(rule.condition, registry.specification(), optional=True):
        if why := _why(alternative):
            return why
    return ""


def _why(alternative: Alternative) -> str:
    if len(alternative.macros) > 1:
        names = " and ".join(cell.function for cell, _ in alternative.macros)
        return (
            f"evaluates one function per pass, but this rule combines {names}: use only one of them"
        )
    for cell, _ in alternative.macros:
        if cell.function != "moved" and cell.window > LONGEST_WINDOW:
            return (
                f"supports windows of at most {LONGEST_WINDOW} microseconds: use a shorter window"
            )
    return ""


def _rows(asked: Sequence[tuple[Intervals, tuple[str, ...]]]) -> tuple[ValueRow, ...]:
    edges = {edge for allowed, _ in asked for low, high in allowed for edge in (low, high + 1)}
    found: list[ValueRow] = []
    for low, end in pairwise(sorted(edges | {0, STATE_MAXIMUM + 1})):
        receivers = {
            name
            for allowed, names in asked
            if any(first <= low <= last for first, last in allowed)
            for name in names
        }
        if receivers:
            found.append((low, end - 1, in_order(receivers)))
    return tuple(found)
