"""Changes of a table from version to version, read from the commits in its log."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from stackcast.jobs.adapters.tables.tables import Action, Row, Tables

#: Largest number of commits that are read one by one. For more of them, reading the whole table is
#: as fast.
MOST_COMMITS = 100


def only_added(tables: Tables, name: str, before: int, version: int) -> bool:
    """Return True if a version is known to contain all rows of an earlier version.

    Compaction, as by OPTIMIZE, removes no rows. The caller ensures by `Tables.head` that both are
    versions of the same table.
    """
    if not before <= version <= before + MOST_COMMITS:
        return False
    return all(only_adds(tables.commit(name, number)) for number in range(before + 1, version + 1))


def rows_added(tables: Tables, name: str, before: int, version: int) -> list[Row] | None:
    """Return the rows that were added after a version, or None if the whole table must be read.

    That is the case if rows were removed, or if the log does not say which rows are new. Only new
    files are opened.
    """
    if not before <= version <= before + MOST_COMMITS:
        return None
    files: list[str] = []
    for number in range(before + 1, version + 1):
        actions = tables.commit(name, number)
        new_files = added_files(actions) if only_adds(actions) else None
        if new_files is None:
            return None
        files += new_files
    return tables.rows_of_files(name, files) if files else []


def commit_info(tables: Tables, name: str, version: int) -> Mapping[str, Any]:
    """Return Delta's description of a commit, or nothing if the log does not contain it.

    It has the keys ``timestamp`` (milliseconds since 1970), ``operation``, ``operationParameters``
    and ``operationMetrics``, among others.
    """
    actions = tables.commit(name, version)
    return next((action["commitInfo"] for action in actions if "commitInfo" in action), {})


def committed_at(tables: Tables, name: str, version: int) -> dt.datetime | None:
    """Return the time of a commit, or None if the log does not contain it."""
    milliseconds = commit_info(tables, name, version).get("timestamp")
    if milliseconds is None:
        return None
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)


def only_adds(actions: Sequence[Action]) -> bool:
    """Return True if a commit is known to have removed no rows."""
    return bool(actions) and not any(
        action["remove"].get("dataChange", True) for action in actions if "remove" in action
    )


def added_files(actions: Sequence[Action]) -> list[str] | None:
    """Return the files of a commit that contain new rows, relative to the folder of the table.

    Returns:
        None if the files also contain rows that are not new.
    """
    added = [action["add"] for action in actions if "add" in action]
    new = [add for add in added if add.get("dataChange", True)]
    if not actions or any(add.get("deletionVector") or add.get("partitionValues") for add in new):
        return None
    return [unquote(add["path"]) for add in new]
