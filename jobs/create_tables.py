"""Make the Delta tables that are missing; existing ones stay as they are.

    spark-submit jobs/create_tables.py [FOLDER]

With FOLDER, also fill empty tables from FOLDER/<table>.jsonl (one JSON object a row): a network and
first subscriptions, as ``stackcast lab up`` writes them to var/lab/network.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from jobs.adapters import session
from jobs.adapters.logs import set_up
from jobs.adapters.settings import Settings
from jobs.adapters.tables import NAMES, Tables
from udfs.errors import StackcastError

log = logging.getLogger("stackcast.create_tables")


def main(arguments: list[str]) -> int:
    set_up()
    try:
        spark = session.start("stackcast create_tables")
        settings = Settings.read(spark.sparkContext.getConf().getAll())
        tables = Tables(spark, settings.tables)
        tables.create()
        log.info("%d tables are in %s", len(NAMES), tables.location)
        for folder in arguments:
            fill(tables, Path(folder))
    except StackcastError as error:
        log.error("%s", error)
        return 2
    return 0


def fill(tables: Tables, folder: Path) -> None:
    """Fill the empty tables for which the folder has rows."""
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem in NAMES and tables.read(path.stem).isEmpty():
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            tables.append(path.stem, rows)
            log.info("%s: %d rows from %s", path.stem, len(rows), path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
