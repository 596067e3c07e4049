"""The tables that explain a plan. They are written in the background, and no batch needs them."""

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

#: Attempts to write a table.
ATTEMPTS = 5
#: Tables that determine which hosts may receive events of a publisher.
_MATCHED = (*MATCHED, "advertisements", "attributes")


class PlanTables:
    """Writes the tables of plans.

    The state of subscriptions is written first (`rejected_subscriptions`, `live_subscriptions`),
    then the explanation of the plan (`subscription_warnings`, `filter_entries`, `filter_leaves`,
    `matches`). If plans follow each other faster than they are written, only the newest one is
    written. Errors are logged, and the next plan writes the tables again.

    Args:
        tables: tables of the stream.
        publisher: publisher of the stream.
        rejections: whether to write `rejected_subscriptions`; another program may do so.
        threads: threads of the driver.
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
        #: Tables that have no rows.
        self._empty: set[str] = set()
        # Editors wait for the row of their rule, so these two tables are written in parallel.
        self._to_rejected = _Writer(threads, REJECTED, self._write_rejected)
        self._to_live = _Writer(threads, LIVE, self._write_live)
        self._to_others = _Writer(threads, "plan-tables", self._explain)

    def submit(
        self, compilation: Compilation, subscriptions: Sequence[Subscription], network: Network
    ) -> None:
        """Write the tables of a plan, which is in use from now on."""
        plan = PlanInUse(compilation, subscriptions, network, utc(self._clock))
        if self._rejections:
            self._to_rejected.submit(plan)
        self._to_live.submit(plan)

    def close(self) -> None:
        """Wait for tables that are still being written."""
        for writer in (self._to_rejected, self._to_live, self._to_others):
            writer.close()

    def _write_rejected(self, plans: Sequence[PlanInUse]) -> None:
        newest = plans[-1].compilation
        _try(REJECTED, newest, lambda: self._replace(REJECTED, newest.rejection_rows()))
        _try(REJECTED, newest, lambda: self._tables.prepare_overwrite(REJECTED))

    def _write_live(self, plans: Sequence[PlanInUse]) -> None:
        newest = plans[-1].compilation
        # A rule is live since its first plan, even if that plan is not written.
        for plan in plans:
            version = plan.compilation.versions["subscriptions"]
            _try(LIVE, plan.compilation, partial(self._live.take, plan.live, version, plan.time))
        _try(LIVE, newest, self._live.write)
        self._to_others.submit(plans[-1])
        _try(LIVE, newest, lambda: self._tables.prepare_overwrite(LIVE))

    def _explain(self, plans: Sequence[PlanInUse]) -> None:
        plan = plans[-1]
        compilation = plan.compilation
        entries, leaves = compilation.filter_rows()
        for name, write in (
            ("subscription_warnings", partial(self._write_warnings, plan)),
            ("filter_entries", partial(self._tables.overwrite, "filter_entries", entries)),
            ("filter_leaves", partial(self._tables.overwrite, "filter_leaves", leaves)),
            ("matches", partial(self._write_matches, plan)),
        ):
            _try(name, compilation, write)

    def _write_warnings(self, plan: PlanInUse) -> None:
        """Write warnings about live rules that are probably not intended."""
        compilation = plan.compilation
        version = {"subscriptions_version": compilation.versions["subscriptions"]}
        warnings = self._warnings.of(plan.live, compilation.plan.specification)
        self._replace("subscription_warnings", [vars(warning) | version for warning in warnings])

    def _write_matches(self, plan: PlanInUse) -> None:
        """Write which subscribers may receive advertised events."""
        rows = match_rows(plan.compilation, plan.live, plan.network, self._publisher)
        self._replace("matches", rows)
        # If there are several publishers, a host needs matches of only one of them.
        matching = {row["subscriber"] for row in rows if row["match"] != "none"}
        hosts = dict.fromkeys(row["subscriber"] for row in rows)
        unmatched = [host for host in hosts if host not in matching]
        if unmatched:
            log.warning(
                "with %s, the subscriptions of %d hosts match nothing that %s advertises; the "
                "first of them: %s",
                named(plan.compilation.versions),
                len(unmatched),
                self._publisher,
                ", ".join(unmatched[:10]),
            )

    def _replace(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Write a table that usually has no rows."""
        if not rows and (name in self._empty or not self._tables.rows(name)):
            self._empty.add(name)
            return
        self._tables.overwrite(name, rows)
        if rows:
            self._empty.discard(name)
        else:
            self._empty.add(name)


class _Writer:
    """Calls a function on a thread of its own, with the plans since its last call."""

    def __init__(
        self, threads: Threads, name: str, write: Callable[[Sequence[PlanInUse]], None]
    ) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: list[PlanInUse] = []
        self._worker = threads.worker(name)

    def submit(self, plan: PlanInUse) -> None:
        with self._lock:
            self._waiting.append(plan)
        self._worker.submit(self._run)

    def close(self) -> None:
        """Wait for plans that are still being written."""
        self._worker.close()

    def _run(self) -> None:
        with self._lock:
            plans, self._waiting = self._waiting, []
        if plans:
            self._write(plans)


class PlanInUse(NamedTuple):
    """A plan in use, with its sources.

    Attributes:
        compilation: the plan.
        subscriptions: rows of its rules.
        network: its network.
        time: time since which it is in use.
    """

    compilation: Compilation
    subscriptions: Sequence[Subscription]
    network: Network
    time: dt.datetime

    @property
    def live(self) -> list[Subscription]:
        """Rows of `subscriptions` that are live."""
        return live_rows(self.subscriptions, self.compilation.rejections)


def _try(table: str, compilation: Compilation, write: Callable[[], object]) -> None:
    """Write a table, and try again after a conflict with another stream on the same tables.

    Errors are logged.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            write()
            return
        except (StorageError, StackcastError) as error:
            if attempt < ATTEMPTS and isinstance(error, StorageError) and error.conflict:
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
    """Return the rows of table ``matches``, one per publisher and host with rules, sorted by host.

    Each match is permanent, potential or none (WERNECKE 5.3.4, Fig. 5.7). Without advertisements,
    there are no rows. If there are several publishers, those without advertisements have no rows.

    Args:
        compilation: the plan.
        subscriptions: its live rules.
        network: its network.
        publisher: publisher of the stream, if it is the only one.

    Raises:
        StackcastError: see `stackcast.udfs.retuning.relations.clients_of`.
    """
    if not compilation.announced:
        return []
    specification = compilation.plan.specification
    # The order of fields in the plan is also efficient here.
    order = [field.qualified for field in compilation.plan.matcher.definitions]
    publishers = [publisher]
    if compilation.plan.publishers is not None:
        publishers = list(dict.fromkeys(row.publisher for row in compilation.announced))
    clients = clients_of(
        compilation.announced, subscriptions, network, specification, publishers, order
    )
    versions = {name: v for name, v in compilation.versions.items() if name in _MATCHED}
    hosts = sorted({name for rule in compilation.rules for name in rule.receivers})
    return [
        {
            "publisher": name,
            "subscriber": host,
            "match": "permanent"
            if host in clients.permanent[name]
            else "potential"
            if host in clients.potential[name]
            else "none",
            "versions": versions,
        }
        for name in publishers
        for host in hosts
    ]
