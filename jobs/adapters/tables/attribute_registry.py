"""New rows of table ``attributes``, also while other jobs register attributes."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.tables.conflicts import is_conflict
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import TableError
from stackcast.udfs.messages.attributes.events import WIDTHS, Widths
from stackcast.udfs.messages.attributes.registry import Attribute, Registry

TABLE = "attributes"

_TRIES = 10
_WAIT = 0.05
"""Seconds before the second try; twice as many before each other, at most 2."""


def register(
    tables: Tables, new: Sequence[Attribute], by: str, widths: Widths = WIDTHS
) -> Registry:
    """Add attributes, and return the registry as it is then.

    A name that is there by then keeps the row that it has. An id that is there by then is another
    attribute's: the new one gets the lowest free id instead. Attributes that no id is left for are
    left out, so that whoever needs them looks at what is returned. Jobs that register at once
    never give one id or name twice.

    Raises TableError BUSY where other jobs keep writing, AttributeTableError, and Delta's errors.
    """
    wait = _WAIT
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(wait)
            wait = min(2 * wait, 2.0)
        held = Registry.from_rows(tables.rows(TABLE), widths)
        missing = _placed(new, held)
        if not missing:
            return held
        try:
            _merge(tables, missing, by)
        except SQL_ERRORS as error:
            if not is_conflict(error):
                raise
    raise TableError(
        "BUSY",
        f"{', '.join(one.name for one in new)[:200]} could not be registered, because other jobs "
        f"kept writing to {tables.sql_name(TABLE)}: try again",
        table=TABLE,
    )


def _placed(new: Sequence[Attribute], held: Registry) -> list[Attribute]:
    """The attributes whose names are missing, with ids that are free."""
    missing = [one for one in new if one.name not in held.by_name]
    wanted = {one.id for one in missing}
    # Who can keep an id does; the others take what is left, in the order of their names.
    placed = [one for one in missing if not held.known >> one.id & 1]
    left = iter([id for id in held.free if id not in wanted])
    moved = sorted((one for one in missing if held.known >> one.id & 1), key=lambda one: one.name)
    placed += [replace(one, id=id) for one, id in zip(moved, left, strict=False)]
    held.extended(placed)
    return placed


def _merge(tables: Tables, new: Sequence[Attribute], by: str) -> None:
    """Insert rows whose id and name nobody has, in one commit.

    Delta refuses the commit if another one since the read could have matched.
    """
    now = dt.datetime.now(dt.UTC)
    rows = [
        (one.id, one.name, one.type, one.scale, one.offset, by, now)
        for one in sorted(new, key=lambda one: one.id)
    ]
    frame = tables.read(TABLE)
    wanted = frame.sparkSession.createDataFrame(rows, frame.schema)
    columns: dict[str, Any] = {name: f"wanted.{name}" for name in frame.columns}
    (
        _delta_table(frame.sparkSession, tables)
        .alias("held")
        .merge(wanted.alias("wanted"), "held.id = wanted.id OR held.name = wanted.name")
        .whenNotMatchedInsert(values=columns)
        .execute()
    )


def _delta_table(spark: SparkSession, tables: Tables) -> DeltaTable:
    if tables.schema == tables.location:
        return DeltaTable.forName(spark, tables.sql_name(TABLE))
    return DeltaTable.forPath(spark, f"{tables.location}/{TABLE}")
