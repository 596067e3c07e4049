"""Make the Delta tables that are missing; existing ones stay as they are, but for constraints of
ours that have changed since, and for columns whose type was too narrow.

    spark-submit jobs/create_tables.py [FOLDER]

With FOLDER, also fill empty tables from FOLDER/<table>.jsonl (one JSON object a row; a column that
may be null may be left out): a network and first subscriptions, as ``stackcast lab up`` writes them
to var/lab/network.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.types import DoubleType, StructField, StructType, TimestampType

from jobs.adapters.app import application, session
from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.tables.tables import NAMES, Tables
from udfs.errors import TableError

log = logging.getLogger("stackcast.create_tables")


def main(arguments: list[str]) -> int:
    return application.run(partial(create, arguments))


def create(folders: list[str], settings: Settings, _lifecycle: Lifecycle) -> int:
    tables = Tables(session.start("stackcast create_tables"), settings.tables)
    tables.create()
    log.info("%d tables are in %s", len(NAMES), tables.location)
    for folder in folders:
        fill(tables, Path(folder))
    return 0


def fill(tables: Tables, folder: Path) -> None:
    """Fill the empty tables for which the folder has rows.

    Raises TableError NO_ROWS (no such file in the folder), BAD_ROW (file, and what it says).
    """
    paths = [path for path in sorted(folder.glob("*.jsonl")) if path.stem in NAMES]
    if not paths:
        raise TableError(
            "NO_ROWS", f"{folder} has no rows of any table: expected <table>.jsonl, as hosts.jsonl"
        )
    # All are read before any is written.
    read = {path: read_rows(path, tables.read(path.stem).schema) for path in paths}
    for path, rows in read.items():
        if tables.read(path.stem).isEmpty():
            try:
                tables.append(path.stem, rows)
            except SQL_ERRORS as error:
                raise TableError("BAD_ROW", f"{path}: {one_line(error)}") from error
            log.info("%s: %d rows from %s", path.stem, len(rows), path)
        else:
            log.info("%s has rows already and stays as it is", path.stem)


def read_rows(path: Path, schema: StructType) -> list[dict[str, Any]]:
    """Rows of a file, with the types of the table. Raises TableError BAD_ROW."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise TableError("BAD_ROW", f"{where}: no JSON ({error})") from None
        if not isinstance(row, dict):
            raise TableError("BAD_ROW", f"{where}: no JSON object")
        unknown = sorted(set(row) - set(schema.names))
        if unknown:
            raise TableError(
                "BAD_ROW",
                f"{where}: there is no column {unknown[0]!r}; there are {', '.join(schema.names)}",
            )
        rows.append({f.name: _value(row.get(f.name), f, where) for f in schema.fields})
    return rows


def _value(value: Any, field: StructField, where: str) -> Any:
    if value is None and not field.nullable:
        raise TableError("BAD_ROW", f"{where}: column {field.name!r} is missing")
    try:
        if isinstance(value, str) and field.dataType == TimestampType():
            value = dt.datetime.fromisoformat(value)
        elif isinstance(value, int) and field.dataType == DoubleType():
            value = float(value)
    except ValueError as error:
        raise TableError("BAD_ROW", f"{where}: column {field.name!r}: {error}") from None
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
