"""Create the Delta tables that are missing. Tables that exist are not changed.

    spark-submit [--properties-file conf/X.conf] jobs/create_tables.py [FOLDER]

With FOLDER, empty tables are also filled from FOLDER/<table>.jsonl, which has one JSON object per
row. Columns that may be null may be left out, times are ISO 8601 text, and exact decimals may be
numbers or text. 'stackcast lab up' writes such files to var/lab/network. The log names
subscriptions that will not be live, and subscriptions that are probably not what their author
intended.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

from stackcast.jobs.command_lines.create_tables import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.tables.definitions import NAMES, definition
from stackcast.jobs.adapters.tables.edits import is_empty
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.row_files import read_rows
from stackcast.jobs.adapters.tables.tables import GRANTS, SENIORITY, Tables
from stackcast.udfs.errors import TableError
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.rule_warnings import SubscriptionWarnings
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import check, live_rows, rejection
from stackcast.udfs.network.publishers import several

log = logging.getLogger("stackcast.create_tables")

#: Remarks on subscriptions that are logged, at most.
SHOWN = 20


def main(arguments: list[str]) -> int:
    return application.run(partial(create, parser(__doc__).parse_args(arguments).folders))


def create(folders: list[Path], settings: Settings, _lifecycle: Lifecycle) -> int:
    # Tables in a folder of this machine mostly need no session, which takes seconds to start.
    spark: Any = session.LateSession("stackcast create_tables")
    tables = open_tables(spark, settings.tables)
    tables.create()
    log.info("%d tables are in %s", len(NAMES), tables.location)
    for folder in folders:
        fill(tables, folder)
    if folders:
        for line in remarks(tables, settings):
            log.warning("%s", line)
    return 0


def remarks(tables: Tables, settings: Settings) -> list[str]:
    """Returns a line for each subscription that a stream would reject or warn of, and why.

    None where the tables have no hosts yet. Of many the last line says how many more there are.
    """
    many = several(settings.publisher)
    hosts = {row["host"] for row in tables.rows("hosts") if many or row["role"] == "subscriber"}
    rows = tables.rows("subscriptions")
    found: dict[tuple[str, str], str] = {}
    for form in FORMATS if hosts else ():
        if not any(row["format"] == form for row in rows):
            continue
        settings = dataclasses.replace(settings, format=form)
        specification = specification_of(settings, tables)
        seniority = partial(tables.rows, SENIORITY)
        quota = settings.rule_quota
        chosen, refused = select(rows, form, FORMATS, specification, seniority, quota)
        grants = Grants.of_table(tables.rows(GRANTS), form, specification)
        refused += [rejection(*error) for error in grants.errors] if grants else []
        wrong = check(chosen, specification, hosts, "" if many else settings.publisher, grants)[1]
        live = live_rows(chosen, wrong)
        for kind, remarks in (
            ("will not be live", [*refused, *wrong]),
            ("is most likely not meant", SubscriptionWarnings().of(live, specification)),
        ):
            found |= {(r.id, r.code): f"{r.id} {kind}: {r.code}: {r.message}" for r in remarks}
    lines = [f"subscription {line}" for line in found.values()]
    more = len(lines) - SHOWN
    return lines if more <= 0 else [*lines[:SHOWN], f"{more} more have a remark"]


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
    read = {path: read_rows(path, definition(path.stem).columns) for path in paths}
    for path, rows in read.items():
        version = tables.version(path.stem)
        if is_empty(tables, path.stem):
            try:
                # If two programs fill a table at once, only one of them writes.
                tables.append(path.stem, rows, transaction=("create_tables", version))
            except SQL_ERRORS as error:
                raise TableError("BAD_ROW", f"{path}: {one_line(error)}") from error
            log.info("%s: %d rows from %s", path.stem, len(rows), path)
        else:
            log.info("%s has rows already and stays as it is", path.stem)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
