"""Rules as boxes, boxes as prefixes, and groups of boxes that overlap.

A box is the condition of a term: some attributes, each with values out of some intervals.
Source: KUNDEL III-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from stackcast.udfs.filters.compiler.outcomes import receiver_order
from stackcast.udfs.filters.intervals import Intervals, intersection, union
from stackcast.udfs.filters.meaning.normal_form import Term
from stackcast.udfs.filters.meaning.state import alternatives
from stackcast.udfs.filters.prefixes import cover, split
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.attributes.registry import BITS, Registry

Spans = tuple[tuple[int, Intervals], ...]
"""(attribute, values), ascending: all of them must be there and have one of their values."""

Piece = tuple[int, int, bool]
"""A prefix: value, length, and True if its values, but for those of longer prefixes, are inside."""

_EXACT = 500
"""Boxes up to which each is held against each; beyond it some that are apart stay together."""


@dataclass(frozen=True, order=True)
class Box:
    """One box: events that ``spans`` allow go to ``receivers``, sorted as a leaf has them."""

    spans: Spans
    receivers: tuple[str, ...]


def boxes_of(rules: Iterable[CheckedRule], registry: Registry) -> list[Box]:
    """Returns the terms of all rules: each match once, ascending, whatever the order of the rules.

    Alternatives that ask for state are left out.
    Errors: ``SubscriptionError`` as of ``normal_form``.
    """
    specification = registry.specification()
    found: dict[Spans, set[str]] = {}
    for rule in rules:
        if not rule.receivers:
            continue
        for alternative in alternatives(rule.condition, specification, optional=True):
            if not alternative.macros:
                spans = spans_of(alternative.rest, registry)
                found.setdefault(spans, set()).update(rule.receivers)
    return [Box(spans, in_order(found[spans])) for spans in sorted(found)]


def spans_of(term: Term, registry: Registry) -> Spans:
    """Returns a term without state by ids of attributes."""
    return tuple(sorted((registry.by_name[name].id, values) for name, values in term))


def in_order(receivers: Iterable[str]) -> tuple[str, ...]:
    """Sorts receivers as a leaf has them: ports by number, then names."""
    return tuple(sorted(receivers, key=receiver_order))


@lru_cache(maxsize=1 << 16)
def prefixes_of(values: Intervals) -> tuple[tuple[int, int], ...]:
    """Returns the fewest disjoint prefixes (value, length) that make up a set."""
    return tuple(
        (first, BITS + 1 - (last - first + 1).bit_length())
        for low, high in values
        for first, last in split(low, high, BITS)
    )


@lru_cache(maxsize=1 << 16)
def pieces_of(values: Intervals, holes: bool) -> tuple[Piece, ...]:
    """Returns prefixes of which the longest that holds a value says if it is inside; none: outside.

    holes: prefixes may have some outside in them, where fewer are needed so. They are the fewest.
    """
    plain = tuple((value, length, True) for value, length in prefixes_of(values))
    if not holes:
        return plain
    rows = []
    start = 0
    for low, high in values:
        if low > start:
            rows.append((start, low - 1, 0))
        rows.append((low, high, 1))
        start = high + 1
    if start < 1 << BITS:
        rows.append((start, (1 << BITS) - 1, 0))
    found = cover(rows, BITS, prefer=0)
    if not found[-1][2]:
        found.pop()
    if len(found) >= len(plain):
        return plain
    return tuple(
        (low, BITS + 1 - (high - low + 1).bit_length(), child == 1) for low, high, child in found
    )


def reach(box: Box, holes: bool) -> Spans:
    """Returns the spans of all rows that the box may become: its own, with ``holes`` those in
    it."""
    if not holes:
        return box.spans
    return tuple(
        (
            attribute,
            union(
                [
                    ((value, value + (1 << BITS - length) - 1),)
                    for value, length, _ in pieces_of(values, True)
                ]
            ),
        )
        for attribute, values in box.spans
    )


def groups(spans: Sequence[Spans]) -> list[list[int]]:
    """Groups spans that overlap, directly or by way of others: places in ``spans``, ascending.

    Of large groups that no attribute parts, some that are apart may stay together.
    """
    done: list[list[int]] = []
    pending = [list(range(len(spans)))] if spans else []
    named = [dict(one) for one in spans]
    while pending:
        group = pending.pop()
        parts = [group]
        for attribute in sorted(set.intersection(*(set(named[at]) for at in group))):
            parts = _parted(group, [named[at][attribute] for at in group])
            if len(parts) > 1:
                break
        if len(parts) > 1:
            pending += parts
        else:
            done += _joined(group, named) if len(group) <= _EXACT else [group]
    return sorted(done)


def _parted(group: Sequence[int], values: Sequence[Intervals]) -> list[list[int]]:
    """Parts a group by one attribute that all of it read."""
    union_of, root_of = _forest(len(group))
    end, last = -1, 0
    for low, high, at in sorted(
        (low, high, at) for at, one in enumerate(values) for low, high in one
    ):
        if low <= end:
            union_of(last, at)
        if high > end:
            end, last = high, at
    return _classes(group, root_of)


def _joined(group: Sequence[int], named: Sequence[dict[int, Intervals]]) -> list[list[int]]:
    union_of, root_of = _forest(len(group))
    for right in range(len(group)):
        for left in range(right):
            if root_of(left) != root_of(right) and _overlap(
                named[group[left]], named[group[right]]
            ):
                union_of(left, right)
    return _classes(group, root_of)


def _overlap(left: dict[int, Intervals], right: dict[int, Intervals]) -> bool:
    return all(
        intersection(values, right[attribute])
        for attribute, values in left.items()
        if attribute in right
    )


def _forest(count: int) -> tuple[Callable[[int, int], None], Callable[[int], int]]:
    parent = list(range(count))

    def root_of(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    def union_of(left: int, right: int) -> None:
        low, high = sorted((root_of(left), root_of(right)))
        parent[high] = low

    return union_of, root_of


def _classes(group: Sequence[int], root_of: Callable[[int], int]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for at, number in enumerate(group):
        found.setdefault(root_of(at), []).append(number)
    return list(found.values())
