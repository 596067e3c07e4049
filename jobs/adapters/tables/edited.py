"""Tables that people edit: checks of the columns and keys of a version that is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from stackcast.udfs.errors import TableError

#: Tables that people edit. Their columns are checked when a version is read.
EDITED: Final = (
    "subscriptions",
    "advertisements",
    "grants",
    "attributes",
    "switches",
    "hosts",
    "links",
    "virtual_trees",
    "state_filters",
)
#: Keys that are checked when a version is read. Other tables have checks of their own, or a second
#: row of a key harms nothing (docs/reference/tables.md, Keys).
KEYS: Final[Mapping[str, tuple[str, ...]]] = {"grants": ("id",)}


def check_columns(table: str, expected: Mapping[str, str], columns: Mapping[str, str]) -> None:
    """Refuses a version of a table in which a column is missing or has another type.

    Args:
        table: table and version, for the message.
        expected: types of the columns that must be there, as `column_types` returns them.
        columns: types of the columns that are there.

    Raises:
        TableError: WRONG_COLUMNS.
    """
    wrong = [
        f"column {column} has type {columns[column]} instead of {kind}"
        if column in columns
        else f"column {column} of type {kind} is missing"
        for column, kind in expected.items()
        if columns.get(column) != kind
    ]
    if wrong:
        raise TableError(
            "WRONG_COLUMNS",
            f"{table}: {'; '.join(wrong)}. Restore the previous version (RESTORE TABLE), or "
            "write the table again with these columns and types",
        )


def check_keys(table: str, key: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuses rows of a table of which two have the same key.

    Args:
        table: table and version, for the message.
        key: columns of the key.
        rows: rows of the version.

    Raises:
        TableError: DUPLICATE_KEY.
    """
    counts = Counter(tuple(row[column] for column in key) for row in rows)
    for values, count in counts.items():
        if count > 1:
            shown = zip(key, values, strict=True)
            named = " and ".join(f"{column} {value!r}" for column, value in shown)
            raise TableError(
                "DUPLICATE_KEY",
                f"{table}: {count} rows have {named}. Delete all but one of them, or give them "
                "other names",
            )


def column_types(schema: str) -> dict[str, str]:
    """Returns the types by column, as text, of a schema in Spark's JSON."""
    return {field["name"]: _text(field["type"]) for field in json.loads(schema)["fields"]}


def _text(kind: Any) -> str:
    """Returns a type of Spark's JSON as text, without what may be null."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_text(kind['keyType'])}, {_text(kind['valueType'])}>"
    fields = (f"{field['name']}: {_text(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(fields)}>"
