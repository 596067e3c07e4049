"""The tables that explain a plan, written beside the stream: nothing of it depends on them."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.planning.live_subscriptions import LiveSubscriptions
from stackcast.jobs.adapters.runtime.clock import utc
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.jobs.adapters.tables.network_versions import MATCHED
from stackcast.jobs.adapters.tables.tables import LIVE, REJECTED, Tables
from stackcast.udfs.delivery.plan import Compilation
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.filters.rule_warnings import SubscriptionWarnings
from stackcast.udfs.filters.subscriptions import Subscription, live_rows
from stackcast.udfs.network.network import Network
from stackcast.udfs.retuning.relations import clients_of

log = logging.getLogger(__name__)

TRIES = 5
#: The tables that say who may get what of a publisher.
_MATCHED = (*MATCHED, "advertisements", "attributes")


class PlanTables:
    """Writes what a plan's subscriptions have become (`rejected_subscriptions`,
    `live_subscriptions`), and then what explains the plan (`subscription_warnings`,
    `filter_entries`, `filter_leaves`, `matches`).

    Of plans that come faster than they are written, the newest is. Errors go to the log: the next
    plan writes the tables anew. Call `close` at the end. rejections: False where
    `rejected_subscriptions` is somebody else's.
    """

    def __init__(
        self,
        tables: Tables,
        publisher: str,
        rejections: bool = True,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._tables = tables
        self._publisher = publisher
        self._rejections = rejections
        self._clock = threads.clock
        self._live = LiveSubscriptions(tables)
        self._warnings = SubscriptionWarnings()
        # Tables that are known to have no rows, and need none.
        self._empty: set[str] = set()
        # Who has edited a rule waits for its row: neither table waits for another one.
        self._to_rejected = _Writer(threads, REJECTED, self._write_rejected)
        self._to_live = _Writer(threads, LIVE, self._write_live)
        self._to_others = _Writer(threads, "plan-tables", self._explain)

    def submit(
        self, compilation: Compilation, subscriptions: Sequence[Subscription], network: Network
    ) -> None:
        """Writes the tables of this plan, which is in use from now on."""
        made = Made(compilation, subscriptions, network, utc(self._clock))
        if self._rejections:
            self._to_rejected.submit(made)
        self._to_live.submit(made)

    def close(self) -> None:
        """Wait for what is still being written."""
        for writer in (self._to_rejected, self._to_live, self._to_others):
            writer.close()

    def _write_rejected(self, plans: Sequence[Made]) -> None:
        newest = plans[-1].compilation
        _try(REJECTED, newest, lambda: self._replace(REJECTED, newest.rejection_rows()))
        _try(REJECTED, newest, lambda: self._tables.prepare_overwrite(REJECTED))

    def _write_live(self, plans: Sequence[Made]) -> None:
        newest = plans[-1].compilation
        # Those that are not written, too: what went live with one is live since then.
        for made in plans:
            version = made.compilation.versions["subscriptions"]
            _try(LIVE, made.compilation, partial(self._live.take, made.live, version, made.at))
        _try(LIVE, newest, self._live.write)
        self._to_others.submit(plans[-1])
        _try(LIVE, newest, lambda: self._tables.prepare_overwrite(LIVE))

    def _explain(self, plans: Sequence[Made]) -> None:
        made = plans[-1]
        compilation = made.compilation
        entries, leaves = compilation.filter_rows()
        for name, write in (
            ("subscription_warnings", partial(self._write_warnings, made)),
            ("filter_entries", partial(self._tables.overwrite, "filter_entries", entries)),
            ("filter_leaves", partial(self._tables.overwrite, "filter_leaves", leaves)),
            ("matches", partial(self._write_matches, made)),
        ):
            _try(name, compilation, write)

    def _write_warnings(self, made: Made) -> None:
        """Writes what live subscriptions most likely do not mean."""
        compilation = made.compilation
        version = {"subscriptions_version": compilation.versions["subscriptions"]}
        found = self._warnings.of(made.live, compilation.plan.specification)
        self._replace("subscription_warnings", [vars(warning) | version for warning in found])

    def _write_matches(self, made: Made) -> None:
        """Writes which subscribers may get something of what is advertised."""
        rows = match_rows(made.compilation, made.live, made.network, self._publisher)
        self._replace("matches", rows)
        # Of several publishers a host need not have something of each.
        some = {row["subscriber"] for row in rows if row["match"] != "none"}
        lost = list(dict.fromkeys(r["subscriber"] for r in rows if r["subscriber"] not in some))
        if lost:
            log.warning(
                "with %s, the subscriptions of %d hosts match nothing that %s advertises; the "
                "first of them: %s",
                named(made.compilation.versions),
                len(lost),
                self._publisher,
                ", ".join(lost[:10]),
            )

    def _replace(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Writes a table that has no rows most of the time."""
        if not rows and (name in self._empty or not self._tables.rows(name)):
            self._empty.add(name)
            return
        self._tables.overwrite(name, rows)
        if rows:
            self._empty.discard(name)
        else:
            self._empty.add(name)


class _Writer:
    """Calls ``write`` in a thread of its own, with the plans that came since its last call."""

    def __init__(
        self, threads: Threads, name: str, write: Callable[[Sequence[Made]], None]
    ) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: list[Made] = []
        self._thread = threads.worker(name)

    def submit(self, plan: Made) -> None:
        with self._lock:
            self._waiting.append(plan)
        self._thread.submit(self._run)

    def close(self) -> None:
        """Wait for what is still being written."""
        self._thread.close()

    def _run(self) -> None:
        with self._lock:
            plans, self._waiting = self._waiting, []
        if plans:
            self._write(plans)


class Made(NamedTuple):
    """A plan, what it was made from, and when."""

    compilation: Compilation
    subscriptions: Sequence[Subscription]
    network: Network
    at: dt.datetime

    @property
    def live(self) -> list[Subscription]:
        """The rows of `subscriptions` that are live."""
        return live_rows(self.subscriptions, self.compilation.rejections)


def _try(table: str, compilation: Compilation, write: Callable[[], object]) -> None:
    """Writes a table; again where somebody else wrote it meanwhile, as another stream on the same
    tables does. What goes wrong is said in the log."""
    for tries in range(1, TRIES + 1):
        try:
            write()
            return
        except (StorageError, StackcastError) as error:
            if tries < TRIES and isinstance(error, StorageError) and error.conflict:
                continue
            log.error(
                "table %s could not be written for the plan of %s: %s",
                table,
                named(compilation.versions),
                one_line(error),
            )
            return
        except Exception:
            log.exception("table %s could not be written", table)
            return


def match_rows(
    compilation: Compilation,
    subscriptions: Sequence[Subscription],
    network: Network,
    publisher: str,
) -> list[dict[str, Any]]:
    """Returns rows of table ``matches``, one for each host that subscribes, by name; of several
    publishers, for each that advertises.

    They say permanent, potential or no match (WERNECKE 5.3.4, Fig. 5.7). There are none where
    nothing is advertised.

    Errors: as of ``clients_of``.
    """
    if not compilation.announced:
        return []
    specification = compilation.plan.specification
    # The order that the stream's own tables are in costs as little here.
    order = [field.qualified for field in compilation.plan.matcher.definitions]
    publishers = [publisher]
    if compilation.plan.publishers is not None:
        publishers = list(dict.fromkeys(row.publisher for row in compilation.announced))
    found = clients_of(
        compilation.announced, subscriptions, network, specification, publishers, order
    )
    versions = {name: v for name, v in compilation.versions.items() if name in _MATCHED}
    hosts = sorted({name for rule in compilation.rules for name in rule.receivers})
    return [
        {
            "publisher": name,
            "subscriber": host,
            "match": "permanent"
            if host in found.permanent[name]
            else "potential"
            if host in found.potential[name]
            else "none",
            "versions": versions,
        }
        for name in publishers
        for host in hosts
    ]
