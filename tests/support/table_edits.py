"""Edits of tables through delta-rs, as the console makes them.

An UPDATE by Spark takes seconds, a merge by delta-rs takes 20 milliseconds. Tests of what an edit
causes use these functions; tests of how users edit use SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable

from stackcast.jobs.adapters.tables.tables import Tables

#: Column that identifies a row, by table.
KEYS = {"hosts": "host", "links": "link_id", "subscriptions": "id", "virtual_trees": "tree_id"}


def change(tables: Tables, name: str, where: Mapping[str, Any], **columns: Any) -> None:
    """Change columns of some rows in one commit.

    Args:
        tables: tables of a deployment.
        name: name of the table.
        where: values by column; the rows that have all of them are changed.
        columns: new values.
    """
    rows = [row | columns for row in tables.rows(name) if where.items() <= row.items()]
    assert tables.merge(name, rows, [], (KEYS[name],)), f"{name} has no row with {where}"


def vacuum(tables: Tables, name: str) -> None:
    """Remove all files that the current version of a table does not use."""
    table = DeltaTable(f"{tables.location}/{name}")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
