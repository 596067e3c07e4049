"""Entries of rules in tables of one field each, to compare the generic table with (CAMUS 3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from udfs.filters.compiler.compile import compile_rules
from udfs.filters.compiler.tables import ABSENT, DEFAULT
from udfs.filters.prefixes import cover
from udfs.filters.subscriptions import CheckedRule
from udfs.messages.specification import Specification


def entries_of_per_field_tables(rules: Sequence[CheckedRule], specification: Specification) -> int:
    """Counts the entries of rules in tables of one field each, as prefixes (CAMUS 3.2).

    A state of a table takes the fewest prefixes, its default row among them, and one more where
    events that lack the field go elsewhere. A leaf with receivers takes one.
    Errors: as ``compile_rules``.
    """
    compiled = compile_rules(rules, specification, order="auto")
    count = sum(bool(outcome.receivers) for outcome in compiled.outcomes.values())
    states: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for field, state, low, high, kind, following in compiled.entries.tolist():
        states.setdefault((field, state), []).append((low, high, kind, following))
    for (field, _), rows in states.items():
        bits = 8 if field == 0 else compiled.definitions[field - 1].bits
        default = next((row[3] for row in rows if row[2] == DEFAULT), -1)
        asked = sorted((row[0], row[1], row[3]) for row in rows if row[2] not in (DEFAULT, ABSENT))
        prefixes = cover(list(_whole(asked, default, bits)), bits, prefer=default)
        count += len(prefixes)
        if field and specification.is_optional(compiled.definitions[field - 1]):
            # What is absent is in the prefix of all values, like it or not.
            absent = next((row[3] for row in rows if row[2] == ABSENT), default)
            count += absent != prefixes[-1][2]
    return count


def _whole(
    rows: Sequence[tuple[int, int, int]], default: int, bits: int
) -> Iterator[tuple[int, int, int]]:
    """Yields the rows, with the default in their gaps."""
    start = 0
    for low, high, following in rows:
        if low > start:
            yield start, low - 1, default
        yield low, high, following
        start = high + 1
    if start < 1 << bits:
        yield start, (1 << bits) - 1, default
