"""Tables read for pages: each version of a table once, however many pages are open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from stackcast.jobs.adapters.tables.changes import MOST_COMMITS, rows_added
from stackcast.jobs.adapters.tables.spark_tables import SparkTables

Row = dict[str, Any]
#: Delta's id of a table, and its version.
Head = tuple[str, int]
_Made = TypeVar("_Made")
_Key = TypeVar("_Key", bound=Hashable)


class Reading:
    """Rows of tables, kept as long as their version is the current one. For any thread.

    Who gets rows must leave them as they are.
    """

    def __init__(self, tables: SparkTables) -> None:
        self.tables = tables
        self._locks: dict[str, threading.RLock] = {}
        self._kept: dict[str, tuple[object, Any]] = {}

    def rows(self, table: str) -> list[Row]:
        """All rows. Raises TableError MISSING."""
        return self.of((table,), table, lambda: self.tables.rows(table))

    def newest(self, table: str, number: str, count: int) -> list[Row]:
        """The rows whose ``number`` is among the last ``count`` below that of the last commit that
        added any, for tables that only grow; files without them are not opened."""

        def read() -> list[Row]:
            version = self.tables.version(table)
            for before in range(version, 0, -1):
                added = rows_added(self.tables, table, before - 1, before)
                if added is None:
                    break
                if added:
                    last = max(row[number] for row in added)
                    return self.tables.rows(table, version, {number: last - count + 1})
            return self.tables.rows(table, version)

        return list(self.of((table,), f"newest {table}", read))

    def grown(self, table: str, before: Head | None) -> tuple[Head, list[Row], bool]:
        """Returns of a table that only grows its head, the rows that came since it was at
        ``before``, and whether these are all rows instead, as it is hard to tell."""
        head = self.tables.head(table)
        if head == before:
            return head, [], False
        if before is not None and before[0] == head[0] and 0 <= head[1] - before[1] <= MOST_COMMITS:
            added = rows_added(self.tables, table, before[1], head[1])
            if added is not None:
                return head, added, False
        return head, self.tables.rows(table, head[1]), True

    def of(self, tables: tuple[str, ...], name: str, make: Callable[[], _Made]) -> _Made:
        """Returns what ``make`` makes of the current versions of tables, kept under a name.

        Readers of one name wait for each other, and no others: rules may take long to check.
        """
        with self._locks.setdefault(name, threading.RLock()):
            versions = tuple(self.tables.head(table) for table in tables)
            kept = self._kept.get(name)
            if kept is None or kept[0] != versions:
                kept = self._kept[name] = versions, make()
            found: _Made = kept[1]
            return found


class Folded(Generic[_Key]):
    """What the rows of a table that only grows come to by a key, each row read once. For any
    thread.

    key: of a row. fold: takes what there is of its key, or None, and the row.
    """

    def __init__(
        self,
        reading: Reading,
        table: str,
        key: Callable[[Row], _Key],
        fold: Callable[[Row | None, Row], Row],
    ) -> None:
        self._reading = reading
        self._table = table
        self._key = key
        self._fold = fold
        self._lock = threading.Lock()
        self._head: Head | None = None
        self._found: dict[_Key, Row] = {}

    def read(self) -> dict[_Key, Row]:
        """Returns it by key; whoever gets it leaves it as it is. Raises TableError MISSING."""
        with self._lock:
            self._head, rows, anew = self._reading.grown(self._table, self._head)
            if anew:
                self._found = {}
            for row in rows:
                key = self._key(row)
                self._found[key] = self._fold(self._found.get(key), row)
            return dict(self._found)
