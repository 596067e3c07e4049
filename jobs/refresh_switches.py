"""Keep the switches' tables in step with the Delta table `switch_entries`.

    spark-submit jobs/refresh_switches.py [--once]

Derives `switch_entries` from the network and its trees, writes all switches, and then follows the
table's change data feed; edits of `virtual_trees`, `links` or `hosts` are taken up within a second,
and after an edit of `switches` all of them are written.
A switch that does not answer, or refuses an entry, is tried again every ten seconds; SIGTERM ends
the job. With --once it ends after the first pass, with exit code 1 if a switch is not in step.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Collection

from pyspark.sql import DataFrame

from jobs.adapters import session
from jobs.adapters.lifecycle import Lifecycle
from jobs.adapters.logs import set_up
from jobs.adapters.refresh import Refresher
from jobs.adapters.settings import Settings
from jobs.adapters.sql_errors import SQL_ERRORS, one_line
from jobs.adapters.tables import Tables
from udfs.errors import NetworkError, StackcastError

log = logging.getLogger("stackcast.refresh_switches")

POLL_SECONDS = 1.0
RETRY_SECONDS = 10.0


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
            behind = [s["switch"] for s in refresher.refresh(version) if not s["in_step"]]
            if "--once" in arguments:
                return 1 if behind else 0
            follow(tables, refresher, lifecycle, version, behind)
        except StackcastError as error:
            log.error("%s", error)
            return 2
        except SQL_ERRORS as error:
            log.error("%s", one_line(error))
            return 2
        except KeyboardInterrupt:
            log.warning("interrupted")
            return 130
    return 0


def follow(
    tables: Tables,
    refresher: Refresher,
    lifecycle: Lifecycle,
    version: int,
    behind: Collection[str] = (),
) -> None:
    """Follow the change data feed of `switch_entries` after ``version`` until asked to stop.

    ``behind`` names switches that are not in step yet: they are tried again every
    ``RETRY_SECONDS``, as are those that fall behind later. None of them holds up the others.
    """
    lagging = set(behind)
    looked = retried = time.monotonic()
    one_at_a_time = threading.Lock()  # a switch is written by one connection

    written_for = refresher.derived_from.get("switches")

    def refresh(newest: int, only: set[str] | None) -> None:
        with one_at_a_time:
            asked = set(lagging) if only is None else only
            statuses = refresher.refresh(newest, only, wait=False)
            # One that has no status is a switch no more.
            lagging.difference_update(asked)
            lagging.update(s["switch"] for s in statuses if not s["in_step"])

    def take(changes: DataFrame, _batch: int) -> None:
        lifecycle.boundary()
        rows = changes.select("switch", "_commit_version").distinct().collect()
        # The feed begins with the commit of ``version``, which is on the switches already.
        changed = {row["switch"] for row in rows if row["_commit_version"] > version}
        if changed:
            refresh(max(row["_commit_version"] for row in rows), changed)

    def look_after() -> bool:
        nonlocal looked, retried, written_for
        now = time.monotonic()
        if now - looked >= POLL_SECONDS:
            looked = now
            if refresher.stale() and _derive(refresher):
                switches = refresher.derived_from["switches"]
                if switches != written_for:
                    # An address is in no entry: the feed does not tell of a switch that moved.
                    refresh(tables.version("switch_entries"), None)
                    written_for = switches
        if lagging and now - retried >= RETRY_SECONDS:
            refresh(tables.version("switch_entries"), set(lagging))
            retried = time.monotonic()
        return False

    # No checkpoint to keep: the snapshot at every start covers whatever was missed.
    query = tables.changes("switch_entries", version).writeStream.foreachBatch(take).start()
    lifecycle.run(query, finished=look_after)


def _derive(refresher: Refresher) -> bool:
    """Derive again; sources that do not fit together leave the switches as they are."""
    try:
        refresher.derive()
    except NetworkError as error:
        log.error("the changed tables cannot be used, the switches stay as they are: %s", error)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
