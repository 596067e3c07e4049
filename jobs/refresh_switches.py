"""Keep the tables of the switches in sync with the Delta table `switch_entries`.

    spark-submit [--properties-file conf/X.conf] jobs/refresh_switches.py
        [--once | --reconcile | --dry-run]

The job derives `switch_entries` from the network and its trees, reads and writes all switches, and
then follows the change data feed of the table. It applies edits of `virtual_trees`, `links`,
`hosts` or `switches` within a second, and if the switches match events
(spark.stackcast.match=network), also edits of `subscriptions` and `attributes`. The job reads a
switch that has restarted or was unreachable, and corrects its entries; it retries a switch that
does not answer or rejects an entry. SIGTERM ends the job. While a refresher with a higher election
id runs, this one waits, and takes over when that one ends.

With --once, --reconcile or --dry-run, the exit code is 0 if all switches are in sync, 1 if some are
not, or not yet, and 2 after an error.
"""

from __future__ import annotations

import logging
import sys
from functools import partial

from stackcast.jobs.command_lines.refresh_switches import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from pyspark.sql import DataFrame

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.switches.results import Comparison
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import SwitchError, printable
from stackcast.udfs.switches.entry import SwitchEntry

log = logging.getLogger("stackcast.refresh_switches")

#: How often Spark looks for rows of others; without it, a hundred times a second.
FEED_TRIGGER = "1 second"
#: Added to the election id by --reconcile: above those of refreshers that run.
FIRST = 1 << 63


def main(arguments: list[str]) -> int:
    return application.run(partial(work, parser(__doc__).parse_args(arguments).mode))


def work(mode: str, settings: Settings, lifecycle: Lifecycle) -> int:
    """Run in a mode of the command line.

    Args:
        mode: key of `MODES`; empty to run until SIGTERM.
        settings: settings of the deployment.
        lifecycle: lifecycle of the job.

    Returns:
        The exit code.
    """
    spark = session.start("stackcast refresh_switches")
    lifecycle.hold_jvm(spark)
    tables = open_tables(spark, settings.tables)
    own = settings.election_id | (FIRST if mode == "--reconcile" else 0)
    with Refresher(tables, settings, lifecycle.stopping, own) as refresher:
        if mode == "--dry-run":
            return show(refresher)
        if mode:
            return 1 if refresher.once() else 0
        with serve(settings, refresher.metrics.registry, refresher.metrics.health):
            follow(tables, refresher, lifecycle)
    return 0


def show(refresher: Refresher) -> int:
    """Prints what a refresh would change, a line an entry; returns the exit code."""
    failed = differs = False
    for switch, found in refresher.compare().items():
        if isinstance(found, SwitchError):
            log.error("%s", found)
            failed = True
            continue
        differs = differs or bool(found)
        if isinstance(found, Comparison) and found.program is not None:
            print(printable(f"~ {switch} program -> {found.program}"))
        marks = (("+", found.insert), ("-", found.delete), ("~", found.modify))
        for mark, entry in sorted(
            ((mark, entry) for mark, entries in marks for entry in entries),
            key=lambda line: (line[1].key, line[0]),
        ):
            print(printable(f"{mark} {switch} {entry.key} -> {_action(entry)}"))
    return application.FAILED if failed else int(differs)


def _action(entry: SwitchEntry) -> str:
    params = ", ".join(f"{name}={value.hex()}" for name, value in entry.params)
    return f"{entry.action}({params})"


def follow(tables: Tables, refresher: Refresher, lifecycle: Lifecycle) -> None:
    """Keeps the switches in step until asked to stop."""
    version = tables.version("switch_entries")

    def take(changes: DataFrame, _batch: int) -> None:
        lifecycle.boundary()
        # The feed begins with the commit of ``version``, which the first poll takes up.
        if not changes.where(f"_commit_version > {version}").isEmpty():
            refresher.wake.set()

    def poll() -> bool:
        refresher.poll()
        return False  # nothing but a stop ends it

    # No checkpoint to keep: the snapshot at every start covers whatever was missed.
    changes = tables.changes("switch_entries", version).writeStream
    query = changes.trigger(processingTime=FEED_TRIGGER).foreachBatch(take).start()
    lifecycle.run(query, finished=poll)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
