"""Errors of all implementations of `Tables`: missing tables, and tables of another layout."""

from __future__ import annotations

from stackcast.jobs.adapters.tables.definitions import LAYOUT
from stackcast.udfs.errors import TableError

#: Property of a table with the number of its layout.
PROPERTY = "stackcast.layout"


def check(name: str, location: str, number: str | None) -> None:
    """Refuse a table of another layout.

    Args:
        name: name of the table.
        location: location of the tables.
        number: the property `PROPERTY`. A table created by other programs has none.

    Raises:
        TableError: OLDER_LAYOUT, NEWER_LAYOUT.
    """
    layout = int(number or LAYOUT)
    if layout < LAYOUT:
        raise TableError(
            "OLDER_LAYOUT",
            f"table {name} in {location} has layout {layout}, but this version of "
            f"Stackcast requires layout {LAYOUT}: create new tables in another location with "
            "jobs/create_tables.py, and copy the edited tables",
            table=name,
        )
    if layout > LAYOUT:
        raise TableError(
            "NEWER_LAYOUT",
            f"table {name} in {location} has layout {layout}, but this version of "
            f"Stackcast supports layouts up to {LAYOUT}: use the version that wrote it, or a "
            "newer one, or restore the earlier tables",
            table=name,
        )


def missing(name: str, location: str) -> TableError:
    """Return the error for a table that does not exist."""
    return TableError(
        "MISSING",
        f"Delta table {name} does not exist in {location}: run jobs/create_tables.py, "
        "or set spark.stackcast.tables to its location",
        table=name,
    )


def label(name: str, location: str, version: int | None) -> str:
    """Return the words for a version of a table in messages."""
    return f"table {name} in {location}" + ("" if version is None else f", version {version}")
