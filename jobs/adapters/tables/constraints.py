"""The constraints of our tables, for rows that are not in a table yet."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from stackcast.jobs.adapters.tables.definitions import definition

_PREFIX = "delta.constraints."


class Constraints:
    """The constraints of a table. SQLite evaluates them: it knows the SQL of all of ours.

    Args:
        table: name of the table.
    """

    def __init__(self, table: str) -> None:
        defined = definition(table)
        conditions = [
            condition for key, condition in defined.properties.items() if key.startswith(_PREFIX)
        ]
        self._columns = {
            condition: [name for name in _words(condition) if name in defined.columns.names]
            for condition in conditions
        }
        self._database = sqlite3.connect(":memory:")
        self._database.create_function("regexp", 2, _matches, deterministic=True)

    def violated(self, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield each constraint that a row violates: its first column, and its condition as SQL.

        Constraints on columns that the row does not have are not checked.
        """
        for condition, columns in self._columns.items():
            if all(name in row for name in columns) and not self._holds(condition, columns, row):
                yield columns[0], condition

    def _holds(self, condition: str, columns: list[str], row: Mapping[str, Any]) -> bool:
        values = ", ".join(f'? AS "{name}"' for name in columns)
        query = f"SELECT {condition.replace(' RLIKE ', ' REGEXP ')} FROM (SELECT {values})"
        (holds,) = self._database.execute(query, [_plain(row[name]) for name in columns]).fetchone()
        return bool(holds)


def _words(condition: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"\w+", re.sub(r"'[^']*'", "", condition))))


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def _plain(value: Any) -> Any:
    """Return a value that SQLite can compare."""
    if isinstance(value, Decimal):
        return float(value)
    return value if value is None or isinstance(value, int | float | str) else str(value)
