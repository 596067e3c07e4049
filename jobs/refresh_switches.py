"""Keep the switches' tables in step with the Delta table `switch_entries`.

    spark-submit jobs/refresh_switches.py [--once]

Derives `switch_entries` from the network and its trees, writes all switches, and then follows the
table's change data feed; edits of `virtual_trees`, `links` or `hosts` are taken up within a second.
With --once it ends after the first pass. Exit code 0 only if every switch is in step.
"""

from __future__ import annotations

import logging
import sys
import time

from pyspark.sql import DataFrame

from jobs.adapters import session
from jobs.adapters.lifecycle import Lifecycle
from jobs.adapters.logs import set_up
from jobs.adapters.refresh import Refresher
from jobs.adapters.settings import Settings
from jobs.adapters.tables import Tables
from udfs.errors import StackcastError

log = logging.getLogger("stackcast.refresh_switches")

SOURCES = ("switches", "hosts", "links", "virtual_trees")
POLL_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    set_up()
    if set(arguments) - {"--once"}:
        print(__doc__, file=sys.stderr)
        return 2
    with Lifecycle() as lifecycle:
        try:
            spark = session.start("stackcast refresh_switches")
            lifecycle.hold_jvm(spark)
            settings = Settings.read(spark.sparkContext.getConf().getAll())
            tables = Tables(spark, settings.tables)
            refresher = Refresher(tables, settings, lifecycle.stopping.is_set)
            version = refresher.derive()
            in_step = all(s["in_step"] for s in refresher.refresh(version))
            if not in_step or "--once" in arguments:
                return 0 if in_step else 1
            follow(tables, refresher, lifecycle, version)
        except StackcastError as error:
            log.error("%s", error)
            return 2
    return 0


def follow(tables: Tables, refresher: Refresher, lifecycle: Lifecycle, version: int) -> None:
    """Follow the change data feed of `switch_entries` from ``version`` until asked to stop."""

    def refresh(changes: DataFrame, _batch: int) -> None:
        lifecycle.boundary()
        rows = changes.select("switch", "_commit_version").distinct().collect()
        if rows:
            newest = max(row["_commit_version"] for row in rows)
            refresher.refresh(newest, only={row["switch"] for row in rows})

    # No checkpoint to keep: the snapshot at every start covers whatever was missed.
    query = tables.changes("switch_entries", version).writeStream.foreachBatch(refresh).start()
    seen = {name: tables.version(name) for name in SOURCES}
    checked = time.monotonic()

    def derive_again() -> bool:
        nonlocal seen, checked
        if time.monotonic() - checked >= POLL_SECONDS:
            checked = time.monotonic()
            now = {name: tables.version(name) for name in SOURCES}
            if now != seen:
                seen = now
                refresher.derive()
        return False

    lifecycle.run(query, finished=derive_again)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
