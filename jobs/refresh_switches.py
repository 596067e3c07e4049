"""Keep the switches' tables in step with the Delta table `switch_entries`.

    spark-submit jobs/refresh_switches.py [--once | --reconcile | --dry-run]

Derives `switch_entries` from the network and its trees, reads and writes all switches, and then
follows the table's change data feed; edits of `virtual_trees`, `links`, `hosts` or `switches` are
taken up within a second, and so are those of `subscriptions` and `attributes` where the switches
match (`spark.stackcast.match=network`). A switch that restarted or was away is read and mended; one
that does not answer, or refuses an entry, is tried again. SIGTERM ends the job. While another
refresher with a higher election id lives, this one waits, and takes over when it ends.

--once       end after the first pass
--reconcile  the same, taking over from a refresher that runs for as long as it takes
--dry-run    write nothing, print what would be: + new, - gone, ~ changed entries and programs

Exit code with one of these: 0 all in step, 1 not so (or not yet), 2 an error.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from functools import partial

from pyspark.sql import DataFrame

from jobs.adapters.app import application, session
from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.logs import named
from jobs.adapters.app.metrics_server import serve
from jobs.adapters.app.settings import Settings
from jobs.adapters.switches.refresh import UNUSABLE, Refresher
from jobs.adapters.switches.session import Comparison
from jobs.adapters.tables.tables import Tables
from udfs.errors import SwitchError
from udfs.switches.entry import SwitchEntry

log = logging.getLogger("stackcast.refresh_switches")

POLL_SECONDS = 0.5
STANDBY_SECONDS = 1.0
#: How often Spark looks for rows of others; without it, a hundred times a second.
FEED_TRIGGER = "1 second"
#: Pause before a switch that is not in step is tried again: the first and the longest.
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 10.0
#: Rounds of --once at most: each state of a tree that moves on takes one.
ROUNDS = 5
#: Added to the election id by --reconcile: above those of refreshers that run.
FIRST = 1 << 63

MODES = ("--once", "--reconcile", "--dry-run")


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 or set(arguments) - set(MODES):
        print(__doc__, file=sys.stderr)
        return application.FAILED
    return application.run(partial(work, arguments[0] if arguments else ""))


def work(mode: str, settings: Settings, lifecycle: Lifecycle) -> int:
    spark = session.start("stackcast refresh_switches")
    lifecycle.hold_jvm(spark)
    tables = Tables(spark, settings.tables)
    own = settings.election_id | (FIRST if mode == "--reconcile" else 0)
    with Refresher(tables, settings, lifecycle.stopping.is_set, own) as refresher:
        if mode == "--dry-run":
            return show(refresher)
        if mode:
            wait_to_lead(refresher, settings.wait_seconds, lifecycle)
            return 0 if once(refresher) else 1
        with serve(settings, refresher.metrics.registry, refresher.metrics.judge):
            follow(tables, refresher, lifecycle)
    return 0


def show(refresher: Refresher) -> int:
    """Print what a refresh would change: a line an entry, switch by switch."""
    failed = differs = False
    for switch, found in refresher.compare().items():
        if isinstance(found, SwitchError):
            log.error("%s", found)
            failed = True
            continue
        differs = differs or bool(found)
        if isinstance(found, Comparison) and found.program is not None:
            print(f"~ {switch} program -> {found.program}")
        marks = (("+", found.insert), ("-", found.delete), ("~", found.modify))
        for mark, entry in sorted(
            ((mark, entry) for mark, entries in marks for entry in entries),
            key=lambda line: (line[1].key, line[0]),
        ):
            print(f"{mark} {switch} {entry.key} -> {_action(entry)}")
    return application.FAILED if failed else int(differs)


def _action(entry: SwitchEntry) -> str:
    params = ", ".join(f"{name}={value.hex()}" for name, value in entry.params)
    return f"{entry.action}({params})"


def wait_to_lead(refresher: Refresher, seconds: float, lifecycle: Lifecycle) -> None:
    """Raises SwitchError NOT_PRIMARY if another refresher goes before us for so long."""
    deadline = time.monotonic() + seconds
    while not refresher.leads():
        if time.monotonic() >= deadline or lifecycle.stopping.is_set():
            raise SwitchError(
                "NOT_PRIMARY",
                f"nothing was written, as another client goes before us: "
                f"{refresher.written_by_others()}. End it; --dry-run compares all the same, "
                "--reconcile takes over",
            )
        lifecycle.stopping.wait(STANDBY_SECONDS)


def once(refresher: Refresher) -> bool:
    """Bring all switches in step; returns whether they are, and with the newest tables."""
    refresher.begin_term()
    refresher.refresh(_derive(refresher))
    for _ in range(ROUNDS):
        # Trees that became active or may go now.
        if refresher.behind() or not refresher.stale():
            break
        refresher.refresh(_derive(refresher), refresher.behind())
    return not refresher.behind() and not refresher.without_room()


def _derive(refresher: Refresher) -> int:
    """Raises SwitchError NOT_PRIMARY if another has come to lead in the meantime."""
    version = refresher.derive()
    if refresher.superseded() or not refresher.leads(connect=False):
        raise SwitchError(
            "NOT_PRIMARY",
            "another refresher has come to write the switches: they were left to it",
        )
    return version


def follow(tables: Tables, refresher: Refresher, lifecycle: Lifecycle) -> None:
    """Keep the switches in step until asked to stop."""
    version = tables.version("switch_entries")
    following = Following(refresher)

    def take(changes: DataFrame, _batch: int) -> None:
        lifecycle.boundary()
        # The feed begins with the commit of ``version``, which the first look takes up.
        if not changes.where(f"_commit_version > {version}").isEmpty():
            following.wake.set()

    # No checkpoint to keep: the snapshot at every start covers whatever was missed.
    changes = tables.changes("switch_entries", version).writeStream
    query = changes.trigger(processingTime=FEED_TRIGGER).foreachBatch(take).start()
    lifecycle.run(query, finished=following.look)


class Following:
    """Does what is due, whenever it is asked to `look`, from one thread.

    wake: set it, from any thread, to have the next look find everything due: somebody has written
    `switch_entries`.
    """

    def __init__(self, refresher: Refresher) -> None:
        self.wake = threading.Event()
        self._refresher = refresher
        self._leads: bool | None = None
        self._due = 0.0
        #: Of switches that are not in step: when they are tried again, and the pause after that.
        self._again: dict[str, tuple[float, float]] = {}

    def look(self) -> bool:
        """Returns False: nothing ends it."""
        now = time.monotonic()
        if now >= self._due or self.wake.is_set():
            self.wake.clear()
            self._due = now + (POLL_SECONDS if self._leads else STANDBY_SECONDS)
            try:
                self._do(now)
                self._refresher.looked(bool(self._leads))
            except SQL_ERRORS as error:
                # Two have written one table at once, or its storage does not answer.
                log.error("tried again in %g s: %s", LONGEST_RETRY_SECONDS, one_line(error))
                self._due = now + LONGEST_RETRY_SECONDS
        return False

    def _do(self, now: float) -> None:
        if not self._refresher.leads(connect=not self._leads):
            if self._leads is not False:
                log.warning(
                    "another refresher writes the switches, or another client; waiting until it "
                    "ends: %s",
                    self._refresher.written_by_others(),
                )
            self._leads = False
            return
        if self._leads is False:
            log.warning("no other refresher goes before us any more: taking over")
        if not self._leads or self._refresher.superseded():
            self._refresher.begin_term()
            self._again.clear()
            self._leads = True
        self._keep_up(now)

    def _keep_up(self, now: float) -> None:
        refresher = self._refresher
        if refresher.stale():
            self._derive()
            # That may have taken seconds.
            if refresher.superseded() or not refresher.leads(connect=False):
                return
        refresher.settle()
        wrong = refresher.disturbed() | refresher.behind()
        due = {name for name in wrong if self._again.get(name, (now, 0.0))[0] <= now}
        if due and refresher.version is not None:
            self._refresh(due, refresher.version)

    def _derive(self) -> None:
        try:
            self._refresher.derive()
        except UNUSABLE as error:
            # Switches that are away or restarted still get what they should have held.
            log.error(
                "the tables cannot be used, the switches stay as they are: %s; %s",
                error,
                named(self._refresher.derived_from),
            )
        else:
            self._again.clear()

    def _refresh(self, switches: set[str], version: int) -> None:
        statuses = self._refresher.refresh(version, switches, wait=False)
        now = time.monotonic()
        for status in statuses:
            name = status["switch"]
            if status["in_step"]:
                self._again.pop(name, None)
            else:
                pause = self._again.get(name, (0.0, RETRY_SECONDS))[1]
                self._again[name] = now + pause, min(2 * pause, LONGEST_RETRY_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
