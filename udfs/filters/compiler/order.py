"""The choice of an order of the fields' tables that needs few rows.

The best order is hard to find (NP-hard; CAMUS 3.2), so a few good guesses are compiled and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.messages.specification import Field, Specification

__all__ = ["BUDGET", "Count", "FieldUse", "choose_order", "field_uses"]

Order = tuple[str, ...]
Count = Callable[[Order, int | None], int | None]
"""Rows that an order needs; None if they are more than the limit, where there is one."""

BUDGET = 24
"""Orders that are compiled and counted, unless told otherwise."""


@dataclass(frozen=True)
class FieldUse:
    """Counts the terms that name a field, and their distinct sets of values."""

    field: Field
    terms: int
    constants: int


def field_uses(table: TermTable, specification: Specification) -> list[FieldUse]:
    """Returns the fields that terms name, in the specification's order; lanes count as their
    field."""
    whole = {lane.qualified: f for f in specification.order() for lane in f.lanes()}
    terms: Counter[str] = Counter()
    constants: dict[str, int] = {}
    several: dict[str, set[object]] = {}
    for block in table.blocks:
        for name, low, high in zip(block.names, block.lows, block.highs, strict=True):
            if name in whole and len(block):
                field = whole[name].qualified
                terms[field] += len(block)
                pairs = np.stack([np.asarray(low, np.uint64), np.asarray(high, np.uint64)])
                found = np.unique(pairs, axis=1).shape[1]
                constants[field] = max(constants.get(field, 0), int(found))
    for term, _, _ in table.terms:
        named = {whole[name].qualified: allowed for name, allowed in term if name in whole}
        for field, allowed in named.items():
            terms[field] += 1
            several.setdefault(field, set()).add(allowed)
    for field, sets in several.items():
        constants[field] = constants.get(field, 0) + len(sets)
    return [
        FieldUse(field, terms[field.qualified], constants[field.qualified])
        for field in specification.order()
        if terms[field.qualified]
    ]


def choose_order(
    table: TermTable, specification: Specification, count: Count, budget: int = BUDGET
) -> Order:
    """Returns qualified names of the fields that the terms name, in the order of their tables.

    The specification's order is always counted, and another is only chosen if it needs fewer rows,
    so the answer is never worse. ``count`` compiles: it is called for at most ``budget`` orders,
    each once, with the fewest rows so far as its limit. Deterministic.
    """
    uses = field_uses(table, specification)
    best = tuple(use.field.qualified for use in uses)
    if len(best) < 2 or budget < 2:
        return best
    rows = count(best, None)
    seen = {best}
    left = budget - 1

    def better(candidate: Order) -> bool:
        nonlocal best, rows, left
        if candidate in seen or not left:
            return False
        seen.add(candidate)
        left -= 1
        # The limit is one less: an equal order is no reason to leave the specification's.
        needed = count(candidate, None if rows is None else rows - 1)
        if needed is None or (rows is not None and needed >= rows):
            return False
        best, rows = candidate, needed
        return True

    for candidate in _guesses(uses):
        better(candidate)
    while left and any(better(candidate) for candidate in _moves(best)):
        pass
    return best


def _guesses(uses: Sequence[FieldUse]) -> Iterator[Order]:
    # Sorting is stable, so ties stay in the specification's order.
    exact_first = sorted(uses, key=lambda use: (use.field.match != "exact", use.constants))
    most_used = sorted(uses, key=lambda use: -use.terms)
    for guess in (exact_first, most_used, sorted(uses, key=lambda use: use.constants)):
        yield tuple(use.field.qualified for use in guess)


def _moves(order: Order) -> Iterator[Order]:
    """Yields all orders in which one field stands elsewhere; near ones first."""
    places = range(len(order))
    for distance in range(1, len(order)):
        for place in places:
            rest = order[:place] + order[place + 1 :]
            for to in (place - distance, place + distance):
                if to in places:
                    yield (*rest[:to], order[place], *rest[to:])
