"""Edits of rows by their keys, expressed as merges that touch only the rows that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stackcast.jobs.adapters.tables.definitions import definition
from stackcast.jobs.adapters.tables.tables import TREES, Row, Tables


def is_empty(tables: Tables, name: str) -> bool:
    """Return True if a table has no rows."""
    return not tables.rows(name, columns=definition(name).columns.names[:1])


def replace_changed(
    tables: Tables,
    name: str,
    rows: Sequence[Row],
    keys: Sequence[str],
    current: Sequence[Row] | None = None,
    onto: int | None = None,
) -> bool:
    """Replace the rows of a table, and touch only those that differ.

    The change data feed then contains only real changes, and without any difference there is no
    new version.

    Args:
        tables: the tables.
        name: name of the table.
        rows: all rows that the table contains afterwards.
        keys: columns that identify a row.
        current: the rows of version ``onto``, if the caller knows them.
        onto: version on which the edit is based, see `Tables.merge`.

    Returns:
        True if this made a new version.
    """
    current = tables.rows(name, onto) if current is None else current
    before = {tuple(row[key] for key in keys): row for row in current}
    after = {tuple(row[key] for key in keys): row for row in rows}
    if len(before) < len(current):
        # A merge cannot distinguish two rows with the same key.
        if onto is not None and tables.version(name) != onto:
            return False
        tables.overwrite(name, rows)
        return True
    changed = [row for key, row in after.items() if before.get(key) != row]
    gone = [row for key, row in before.items() if key not in after]
    return tables.merge(name, changed, gone, keys, onto)


def change_tree_states(
    tables: Tables, changes: Mapping[int, tuple[str, str]], onto: int | None = None
) -> bool:
    """Change the states of virtual trees in one commit.

    Args:
        tables: the tables.
        changes: state before and after, by id of the tree. Trees in another state stay as they are.
        onto: version of `virtual_trees` on which the edit is based; any version by default.

    Returns:
        False if nothing was written, because ``onto`` is not the newest version.
    """
    while changes:
        version = tables.version(TREES) if onto is None else onto
        changed = [
            row | {"state": changes[row["tree_id"]][1]}
            for row in tables.rows(TREES, version)
            if row["tree_id"] in changes and changes[row["tree_id"]][0] == row["state"]
        ]
        if tables.merge(TREES, changed, [], ("tree_id",), version):
            break
        if onto is not None:
            return not changed and tables.version(TREES) == onto
        if not changed:
            break
    return True
