"""Rules on attributes, and what a switch makes of rows of a generic table: one event, every row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import strategies as st

from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.attributes.registry import Attribute, Registry
from stackcast.udfs.network_match.generic.boxes import boxes_of
from stackcast.udfs.network_match.generic.table import GenericRow, GenericTable, table_of_boxes

LAST = (1 << 32) - 1
Event = Mapping[int, int]


def registry(**ids: int) -> Registry:
    """Attributes of whole numbers, as they are."""
    found = [Attribute(i, n, "unsigned", Decimal(1), Decimal(0)) for n, i in ids.items()]
    return Registry(tuple(sorted(found, key=lambda one: one.id)))


SENSORS = registry(temp=0, hum=3, gas=31)


def rule(text: str, *receivers: str, known: Registry = SENSORS) -> CheckedRule:
    return CheckedRule(text, parse_rule(text, known.specification()).condition, receivers)


def generic_table(rules: Sequence[CheckedRule], known: Registry, **options: Any) -> GenericTable:
    """Return the generic table of rules, with the options of `table_of_boxes`."""
    return table_of_boxes(boxes_of(rules, known), **options)


def wanted(rules: Iterable[CheckedRule], event: Event, known: Registry = SENSORS) -> frozenset[str]:
    """Who receives, by evaluating each rule."""
    named = {one.name: event[one.id] for one in known.attributes if one.id in event}
    return frozenset(
        receiver for one in rules if matches(one.condition, named) for receiver in one.receivers
    )


def holds(row: GenericRow, event: Event) -> bool:
    mask = sum(1 << attribute for attribute in event)
    return mask & row.care == row.bits and all(
        event.get(attribute, 0) >> 32 - length == value >> 32 - length
        for attribute, value, length in row.prefixes
    )


def outcomes(rows: Iterable[GenericRow], event: Event) -> set[frozenset[str]]:
    """What an event may meet: one outcome, unless rows of one priority disagree."""
    hit = [row for row in rows if holds(row, event)]
    top = max((row.priority for row in hit), default=0)
    return {frozenset(row.receivers) for row in hit if row.priority == top} or {frozenset()}


def all_outcomes(rows: Sequence[GenericRow], events: Sequence[Event]) -> list[set[frozenset[str]]]:
    """`outcomes` of many events."""
    masks = np.array([sum(1 << a for a in event) for event in events], np.int64)
    values = {a: np.array([e.get(a, 0) for e in events], np.int64) for a in range(32)}
    top = np.zeros(len(events), np.int64)
    met: list[set[frozenset[str]]] = [{frozenset()} for _ in events]
    for row in sorted(rows, key=lambda one: one.priority):
        hit = masks & row.care == row.bits
        for attribute, value, length in row.prefixes:
            hit &= values[attribute] >> 32 - length == value >> 32 - length
        for at in np.flatnonzero(hit).tolist():
            if row.priority > top[at]:
                met[at] = set()
            met[at].add(frozenset(row.receivers))
        top[hit] = row.priority
    return met


def conditions(values: st.SearchStrategy[int], names: Sequence[str]) -> st.SearchStrategy[str]:
    comparison = st.builds(
        lambda name, sign, value: f"{name} {sign} {value}",
        st.sampled_from(names),
        st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
        values,
    )
    return st.recursive(
        comparison,
        lambda inner: (
            inner.map(lambda one: f"not ({one})")
            | st.tuples(inner, inner).map(lambda two: f"({two[0]} and {two[1]})")
            | st.tuples(inner, inner).map(lambda two: f"({two[0]} or {two[1]})")
        ),
        max_leaves=3,
    )


def rule_sets(
    values: st.SearchStrategy[int], names: Sequence[str] = ("temp", "gas"), most: int = 3
) -> st.SearchStrategy[list[CheckedRule]]:
    receivers = st.lists(st.sampled_from(["1", "2", "10"]), min_size=1, max_size=2, unique=True)
    return st.lists(
        st.builds(lambda text, to: rule(text, *to), conditions(values, names), receivers),
        max_size=most,
    )
