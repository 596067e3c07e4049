"""Tables that people edit: checks of columns and keys, and the condition of a merge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from stackcast.jobs.adapters.tables.definitions import definition
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
    "ingresses",
    "virtual_trees",
    "state_filters",
)
#: Keys that are checked when a version is read. Other tables have checks of their own, or a second
#: row of a key harms nothing (docs/reference/tables.md, Keys).
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "grants": ("id",),
    "ingresses": ("place", "publisher"),
}


def check_columns(label: str, name: str, schema: Callable[[], str]) -> None:
    """Refuse a version of an edited table in which a column is missing or has another type.

    An edit may rewrite the schema of a table. Its values would then have another meaning: the text
    'false' is true.

    Args:
        label: table and version, for the message.
        name: name of the table.
        schema: returns the schema of the version in Spark's JSON.

    Raises:
        TableError: WRONG_COLUMNS.
    """
    if name not in EDITED:
        return
    columns = column_types(schema())
    wrong = [
        f"column {column} has type {columns[column]} instead of {kind}"
        if column in columns
        else f"column {column} of type {kind} is missing"
        for column, kind in _expected_types(name).items()
        if columns.get(column) != kind
    ]
    if wrong:
        raise TableError(
            "WRONG_COLUMNS",
            f"{label}: {'; '.join(wrong)}. Restore the previous version (RESTORE TABLE), or "
            "write the table again with these columns and types",
        )


def check_rows(label: str, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuse rows of which two have the same key, if the key of their table is in `KEYS`.

    Args:
        label: table and version, for the message.
        name: name of the table.
        rows: rows of the version, with all columns.

    Raises:
        TableError: DUPLICATE_KEY.
    """
    if name in KEYS:
        check_keys(label, KEYS[name], rows)


def check_keys(label: str, key: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuse rows of which two have the same key.

    Args:
        label: table and version, for the message.
        key: columns of the key.
        rows: rows of the version.

    Raises:
        TableError: DUPLICATE_KEY.
    """
    counts = Counter(tuple(row[column] for column in key) for row in rows)
    for values, count in counts.items():
        if count > 1:
            pairs = zip(key, values, strict=True)
            described = " and ".join(f"{column} {value!r}" for column, value in pairs)
            raise TableError(
                "DUPLICATE_KEY",
                f"{label}: {count} rows have {described}. Delete all but one of them, or give them "
                "other names",
            )


def merge_condition(keys: Sequence[str], unique: Sequence[str]) -> str:
    """Return the condition in SQL under which a row of a merge matches one of the table."""
    same_key = " AND ".join(f"target.{key} = source.{key}" for key in keys)
    return " OR ".join([same_key, *(f"target.{column} = source.{column}" for column in unique)])


@cache
def _expected_types(name: str) -> Mapping[str, str]:
    return column_types(definition(name).schema)


def column_types(schema: str) -> dict[str, str]:
    """Return the types of the columns of a schema in Spark's JSON as text."""
    return {field["name"]: _text(field["type"]) for field in json.loads(schema)["fields"]}


def _text(kind: Any) -> str:
    """Return a type of Spark's JSON as text, without nullability."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_text(kind['keyType'])}, {_text(kind['valueType'])}>"
    fields = (f"{field['name']}: {_text(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(fields)}>"
