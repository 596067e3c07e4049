"""What a rule means: brute force on the syntax tree, the reference for everything compiled.

A predicate on a field whose header the message lacks is *unknown* (Kleene's third
value, as NULL in SQL), ``not`` leaves unknown unknown, and a rule matches only if
its condition is true. This module shares no code with the compiler on purpose.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udfs.filters.nodes import And, Node, Not, Or, Predicate, StatePredicate

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Column = NDArray[np.uint64]
Mask = NDArray[np.bool_]


def matches(node: Node, event: Mapping[str, int]) -> bool:
    """Whether one event satisfies the condition.

    ``event`` maps qualified field names to raw values (what
    ``udfs.messages.reference.read_message`` gives); fields of absent headers are left out.
    """
    return _truth(node, event) is True


def matches_columns(node: Node, columns: Mapping[str, Column], present: Mapping[str, Mask]) -> Mask:
    """Whether each of m events satisfies the condition: bool[m].

    ``columns``: qualified field name to uint64[m] raw values, for every field of the
    condition. ``present``: header name to bool[m], whether the event has that header.
    """
    return _truth_columns(node, columns, present)[0]


def fields_of(node: Node) -> tuple[str, ...]:
    """Qualified names of the fields that the condition reads, sorted."""
    names: set[str] = set()
    pending = [node]
    while pending:
        top = pending.pop()
        if isinstance(top, Predicate):
            names.add(top.field.qualified)
        elif isinstance(top, StatePredicate):
            raise NotImplementedError
        elif isinstance(top, Not):
            pending.append(top.child)
        else:
            pending.extend(top.children)
    return tuple(sorted(names))


def _holds(node: Predicate, value: Any) -> Any:
    """Whether a value, or each of a column, satisfies the predicate."""
    number = type(value) if isinstance(value, int) else np.uint64
    if node.operator in _COMPARE:
        return _COMPARE[node.operator](value, number(node.value))
    inside = value < number(0)
    for low, high in node.constants:
        inside = inside | ((value >= number(low)) & (value <= number(high)))
    return inside if node.operator in ("==", "in") else (inside ^ True)


def _truth(node: Node, event: Mapping[str, int]) -> bool | None:
    if isinstance(node, Predicate):
        value = event.get(node.field.qualified)
        return None if value is None else bool(_holds(node, value))
    if isinstance(node, StatePredicate):
        raise NotImplementedError
    if isinstance(node, Not):
        truth = _truth(node.child, event)
        return None if truth is None else not truth
    truths = [_truth(child, event) for child in node.children]
    decisive = isinstance(node, Or)
    if decisive in truths:
        return decisive
    return None if None in truths else not decisive


def _truth_columns(
    node: Node, columns: Mapping[str, Column], present: Mapping[str, Mask]
) -> tuple[Mask, Mask]:
    """(true, false) per event; unknown where neither."""
    if isinstance(node, Predicate):
        holds = _holds(node, columns[node.field.qualified])
        known = present[node.field.header]
        return known & holds, known & ~holds
    if isinstance(node, StatePredicate):
        raise NotImplementedError
    if isinstance(node, Not):
        true, false = _truth_columns(node.child, columns, present)
        return false, true
    pairs = [_truth_columns(child, columns, present) for child in node.children]
    trues, falses = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if isinstance(node, And):
        return np.logical_and.reduce(trues), np.logical_or.reduce(falses)
    return np.logical_or.reduce(trues), np.logical_and.reduce(falses)
