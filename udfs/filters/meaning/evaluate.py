"""The meaning of a condition: brute force on the syntax tree, the reference for compiled rules.

A predicate on a field that the event lacks is *unknown* (Kleene's third value, as NULL in SQL),
and so is one on state that has no value; ``not`` leaves unknown unknown, and a rule matches only
if its condition is true. This module shares no code with the compiler on purpose.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.nodes import Aggregate, And, Node, Not, Or, Predicate, StatePredicate
from stackcast.udfs.messages.specification import Counter, Field

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_TRUE = np.array(True)

Column = NDArray[Any]
Mask = NDArray[np.bool_]
Subject = Aggregate | Counter
"""The subject of a predicate on state."""


def matches(
    node: Node, event: Mapping[str, int], state: Mapping[Subject, int | None] | None = None
) -> bool:
    """Returns True if one event satisfies the condition.

    ``event`` maps qualified field names to raw values (as
    ``stackcast.udfs.messages.reference.read_message`` does); fields that the event lacks, as its
    header is absent or for themselves, are left out. ``state``: for each variable or macro of the
    condition the value that the event finds, None where it has none.
    """
    return _truth(node, event, state or {}) is True


def matches_columns(
    node: Node,
    columns: Mapping[str, Column],
    present: Mapping[str, Mask],
    state: Mapping[Subject, tuple[Column, Mask]] | None = None,
) -> Mask:
    """Returns True for each of m events that satisfies the condition: bool[m].

    ``columns``: qualified field name to uint64[m] raw values, for every field of the condition; a
    field of more than 64 bits is given by its lanes, or under its own name as Python integers
    (dtype object). ``present``: bool[m] by qualified field name, or else by header name: True if
    the event has that field, or that header with all its fields. ``state``: for each variable or
    macro of the condition uint64[m] values and bool[m], True if there is one.

    Where neither columns nor presence are given, m is unknown, and the answer of ``all`` has no
    dimension.
    """
    found = _truth_columns(node, columns, present, state or {})[0]
    given = next(iter((*present.values(), *columns.values())), found)
    return np.broadcast_to(found, given.shape) if found.shape != given.shape else found


def fields_of(node: Node) -> tuple[str, ...]:
    """Returns qualified names of the fields that the condition reads, those of macros too,
    sorted."""
    names: set[str] = set()
    pending = [node]
    while pending:
        top = pending.pop()
        if isinstance(top, Predicate):
            names.add(top.field.qualified)
        elif isinstance(top, StatePredicate):
            if isinstance(top.subject, Aggregate) and top.subject.field is not None:
                names.add(top.subject.field.qualified)
        elif isinstance(top, Not):
            pending.append(top.child)
        else:
            pending.extend(top.children)
    return tuple(sorted(names))


def is_stateful(node: Node) -> bool:
    """Returns True if the condition reads state."""
    pending = [node]
    while pending:
        top = pending.pop()
        if isinstance(top, StatePredicate):
            return True
        if isinstance(top, Not):
            pending.append(top.child)
        elif not isinstance(top, Predicate):
            pending.extend(top.children)
    return False


def _holds(node: Predicate, value: int) -> bool:
    if node.operator == "in":
        return any(low <= value <= high for low, high in node.constants)
    if node.operator == "not in":
        return not any(low <= value <= high for low, high in node.constants)
    return bool(_COMPARE[node.operator](value, node.value))


def _holds_columns(node: Predicate, values: Column) -> Mask:
    """Holds a column to the predicate. No constant is wider than its field, nor than the column."""
    number: Callable[[int], Any] = int if values.dtype == object else np.uint64
    if node.operator not in ("in", "not in"):
        return np.asarray(_COMPARE[node.operator](values, number(node.value)), np.bool_)
    inside = np.zeros(len(values), np.bool_)
    for low, high in node.constants:
        inside |= ((values >= number(low)) & (values <= number(high))).astype(np.bool_)
    return inside if node.operator == "in" else ~inside


def _column(field: Field, columns: Mapping[str, Column]) -> Column:
    if field.bits <= 64 or field.qualified in columns:
        return columns[field.qualified]
    whole: Column = np.array(0, object)
    for lane in field.lanes():
        whole = (whole << lane.bits) | columns[lane.qualified].astype(object)
    return whole


def _truth(
    node: Node, event: Mapping[str, int], state: Mapping[Subject, int | None]
) -> bool | None:
    if isinstance(node, Predicate):
        value = event.get(node.field.qualified)
        return None if value is None else _holds(node, value)
    if isinstance(node, StatePredicate):
        found = state[node.subject]
        return None if found is None else bool(_COMPARE[node.operator](found, node.value))
    if isinstance(node, Not):
        truth = _truth(node.child, event, state)
        return None if truth is None else not truth
    truths = [_truth(child, event, state) for child in node.children]
    decisive = isinstance(node, Or)
    if decisive in truths:
        return decisive
    return None if None in truths else not decisive


def _truth_columns(
    node: Node,
    columns: Mapping[str, Column],
    present: Mapping[str, Mask],
    state: Mapping[Subject, tuple[Column, Mask]],
) -> tuple[Mask, Mask]:
    """Returns (true, false) by event; unknown where neither."""
    if isinstance(node, Predicate):
        holds = _holds_columns(node, _column(node.field, columns))
        known = present.get(node.field.qualified)
        if known is None:
            known = present[node.field.header]
        return known & holds, known & ~holds
    if isinstance(node, StatePredicate):
        values, known = state[node.subject]
        holds = np.asarray(_COMPARE[node.operator](values, np.uint64(node.value)), np.bool_)
        return known & holds, known & ~holds
    if isinstance(node, Not):
        true, false = _truth_columns(node.child, columns, present, state)
        return false, true
    pairs = [_truth_columns(child, columns, present, state) for child in node.children]
    trues, falses = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    # One after the other, as ``all`` is as long as what stands beside it.
    if isinstance(node, And):
        return reduce(np.logical_and, trues, _TRUE), reduce(np.logical_or, falses, ~_TRUE)
    return reduce(np.logical_or, trues, ~_TRUE), reduce(np.logical_and, falses, _TRUE)
