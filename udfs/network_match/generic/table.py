"""All rules as rows of one generic table: a mask of attributes, a prefix for each (KUNDEL III-C).

The table's form knows nothing of any attribute, so new ones need no new program, and rows say
nothing of attributes that no rule reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stackcast.udfs.errors import FilterError, SubscriptionError
from stackcast.udfs.filters.subscriptions import CheckedRule, Rejection
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.network_match.generic.boxes import Box, groups, reach
from stackcast.udfs.network_match.generic.cells import refused_state
from stackcast.udfs.network_match.generic.priorities import Found, overlapping

MAX_ROWS = 16_384
"""Rows that a table may have, unless told otherwise."""

Way = Literal["priorities", "holes"]
WAYS: tuple[Way, ...] = ("priorities", "holes")
"""Overlaps solved by priorities; so with larger boxes that have holes."""


class GenericRow(NamedTuple):
    """Events with ``mask & care == bits`` and a value in each prefix go to ``receivers``.

    prefixes: (attribute, value, length), ascending; those of length 0 are left out, and each
    attribute's bit is among ``bits``. receivers: as a leaf has them; none: drop.
    """

    bits: int
    care: int
    prefixes: tuple[tuple[int, int, int], ...]
    receivers: tuple[str, ...]

    @property
    def match(self) -> tuple[int, int, tuple[tuple[int, int, int], ...]]:
        """The row without its receivers; no two rows of a table have the same."""
        return self[:3]

    @property
    def priority(self) -> int:
        """The number of fixed bits, and 1: nothing but the match says which row wins.

        Rows of equal priority that win for one event have equal receivers.
        """
        return 1 + self.care.bit_count() + sum(length for _, _, length in self.prefixes)


@dataclass(frozen=True)
class GenericTable:
    """Holds rows by descending priority. An event that none matches goes to nobody.

    method: the way that the rows are made, ``mixed`` if groups of rules have several.
    by_priorities, holes: rows if all were made in that one way, None if that is beyond
    the limit for some group, or was not asked for.
    """

    rows: tuple[GenericRow, ...]
    method: Way | Literal["mixed"]
    by_priorities: int | None
    holes: int | None


def table_of_boxes(
    boxes: Sequence[Box], *, max_rows: int = MAX_ROWS, ways: Sequence[Way] = WAYS
) -> GenericTable:
    """Makes the rows of boxes.

    Each group of boxes that overlap takes the one of ``ways`` that needs fewest rows, the first
    of those that need as many. Equal boxes have equal rows, in any order, and whatever attributes
    there are besides. With one way by priorities a rule that demands an attribute which
    no other reads leaves all rows as they are, and adds its own.

    Errors: ``FilterError`` TOO_LARGE beyond ``max_rows``.
    """
    totals: dict[Way, int | None] = dict.fromkeys(WAYS, 0)
    found: list[Found] = []
    taken: set[Way] = set()
    for at_large in groups([reach(box, "holes" in ways) for box in boxes]):
        outer = [boxes[at] for at in at_large]
        choice: list[Found] | None = [] if "priorities" in ways else None
        for places in groups([box.spans for box in outer]) if choice is not None else ():
            rows = overlapping([outer[at] for at in places], False, max_rows)
            choice = None if choice is None or rows is None else choice + rows
        _add(totals, "priorities", choice)
        way: Way = "priorities"
        if "holes" in ways:
            limit = 2 * max_rows if choice is None else min(2 * max_rows, 4 * len(choice) + 64)
            rows = overlapping(outer, True, limit)
            _add(totals, "holes", rows)
            if rows is not None and (choice is None or len(rows) < len(choice)):
                choice, way = rows, "holes"
        if choice is None or len(found) + len(choice) > max_rows:
            raise _too_large(max_rows)
        found += choice
        taken.add(way)
    made = [GenericRow(*row) for row in found]
    made.sort(key=lambda row: (-row.priority, row))
    chosen: Way | Literal["mixed"] = "mixed"
    if len(taken) < 2:
        chosen = next(iter(taken), ways[0])
    asked = {way: totals[way] if way in ways else None for way in WAYS}
    return GenericTable(tuple(made), chosen, asked["priorities"], asked["holes"])


def refused(rules: Sequence[CheckedRule], registry: Registry) -> list[Rejection]:
    """Finds rules that a switch cannot hold whatever other rules there are, in order.

    It keeps the state of one cell an alternative, and performs no action but to send
    (NOT_ON_SWITCHES).
    """
    rejections = []
    for rule in rules:
        why = refused_state(rule, registry)
        if why:
            pass
        elif rule.calls:
            names = ", ".join(sorted({call.name for call in rule.calls}))
            why = f"has no action {names}: write fwd(...), or remove the action"
        else:
            continue
        fault = SubscriptionError(
            "NOT_ON_SWITCHES",
            f"the generic table of the switches {why}, or let the stream match "
            "(spark.stackcast.match=spark)",
        )
        rejections.append(Rejection(rule.id, fault.code, 1, 1, fault.message))
    return rejections


def _add(totals: dict[Way, int | None], way: Way, rows: list[Found] | None) -> None:
    before = totals[way]
    totals[way] = None if before is None or rows is None else before + len(rows)


def _too_large(max_rows: int) -> FilterError:
    return FilterError(
        "TOO_LARGE",
        f"the subscriptions need more than {max_rows} rows of the generic table, because "
        "overlapping rules that compare several attributes with many constants multiply: use "
        "fewer distinct constants, or have each rule compare one attribute with a single value",
        max_rows=max_rows,
    )
