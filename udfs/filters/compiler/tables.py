"""The compiled form: one table a field, and leaves. Matcher, switches and reports read this alone.

Source: CAMUS 3.2, Fig. 4 (the tables), Algorithm 1 (how they are sliced from the diagram).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE
from stackcast.udfs.filters.nodes import Outcome
from stackcast.udfs.messages.specification import Field

KINDS = ("exact", "range", "default", "lpm", "absent")
EXACT, RANGE, DEFAULT, LPM, ABSENT = range(5)

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

MESSAGE_TYPE_MAXIMUM = 255


@dataclass(frozen=True)
class CompiledFilter:
    """Holds per-field tables ``(state, value) -> state`` and leaves ``state -> outcome``.

    fields: table order; first ``message_type`` (a pseudo field of 8 bits), then the names of the
        fields, lanes and, last, cells that the tables read.
    definitions: the fields of ``fields[1:]``; a cell has the header ``""`` and 64 bits.
    entries: structured array ``ENTRY`` sorted by field, state, then the rows by low, the default
        row, the absent row. ``field`` indexes ``fields``; ``low`` and ``high`` are raw values,
        both included; ``kind`` indexes ``KINDS``. Exact and range rows of a state are disjoint;
        lpm rows are prefixes and may nest: the longest wins. The one default row of a state (low
        0, high the maximum) is taken if none of them fits, or if the field is absent and there
        is no absent row (low and high 0).
    outcomes: leaf state to outcome. One state, always there, is nobody's: ``Outcome()``.
    root: the state to start in.
    cells: the state that the tables read or the leaves update.

    A state without rows in a field's table passes that table unchanged. From scratch, states are
    numbered table by table in order of first use and nobody's last, so equal sets of rules give
    equal rows, in whatever order the rules came.
    """

    fields: tuple[str, ...]
    definitions: tuple[Field, ...]
    entries: NDArray[Any]
    outcomes: Mapping[int, Outcome]
    root: int
    cells: tuple[Any, ...] = ()

    @cached_property
    def leaves(self) -> dict[int, tuple[str, ...]]:
        """The receivers by leaf state, sorted; the states in ascending order."""
        return {state: self.outcomes[state].receivers for state in sorted(self.outcomes)}

    def entry_rows(self) -> Iterator[dict[str, Any]]:
        """Yields rows of table ``filter_entries``: field, state, low, high (big-endian bytes of the
        field's width), kind, next, and a text for people (``price in 50.2500..51.0000``)."""
        return self.rows_of(self.entries)

    def rows_of(self, entries: NDArray[Any]) -> Iterator[dict[str, Any]]:
        """Yields some of the entries as rows of table ``filter_entries``."""
        widths = [1, *((field.bits + 7) // 8 for field in self.definitions)]
        for index, state, low, high, kind, following in entries.tolist():
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
        """Returns rows of table ``filter_leaves``: state, receivers (empty for nobody), actions."""
        return [leaf_row(state, self.outcomes[state]) for state in sorted(self.outcomes)]

    def _text(self, index: int, low: int, high: int, kind: int) -> str:
        if kind == DEFAULT:
            return "otherwise"
        if index == 0:
            name, maximum, shown = MESSAGE_TYPE, MESSAGE_TYPE_MAXIMUM, (chr(low), chr(high))
        else:
            field = self.definitions[index - 1]
            name, maximum = field.name, (1 << field.bits) - 1
            shown = (field.show(low), field.show(high))
        if kind == ABSENT:
            return f"{name} is absent"
        if low == high:
            return f"{name} == {shown[0]}"
        if low == 0:
            return f"{name} <= {shown[1]}"
        if high == maximum:
            return f"{name} >= {shown[0]}"
        return f"{name} in {shown[0]}..{shown[1]}"


def leaf_row(state: int, outcome: Outcome) -> dict[str, Any]:
    """Makes a row of table ``filter_leaves``."""
    calls = [f"{call.name}({', '.join(call.args)})" for call in outcome.calls]
    updates = [f"{u.cell} <- {u.function}({u.field or ''})" for u in outcome.updates]
    return {
        "state": state,
        "receivers": list(outcome.receivers),
        "actions": calls + updates,
    }
