"""The tables that explain a plan, written beside the stream: nothing of it depends on them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.logs import named
from jobs.adapters.tables.tables import Tables
from udfs.delivery.plan import Compilation
from udfs.errors import StackcastError
from udfs.filters.rule_warnings import SubscriptionWarnings
from udfs.filters.subscriptions import Subscription
from udfs.network.network import Network
from udfs.retuning.relations import clients_of

log = logging.getLogger(__name__)

#: The tables that say who may get what of a publisher.
_MATCHED = ("subscriptions", "advertisements", "attributes")


class PlanTables:
    """Writes `rejected_subscriptions`, `subscription_warnings`, `filter_entries`, `filter_leaves`
    and `matches`.

    Errors go to the log: the next plan writes them anew. Call `close` at the end.
    """

    def __init__(self, tables: Tables, publisher: str) -> None:
        self._tables = tables
        self._publisher = publisher
        self._no_matches = False
        self._no_warnings = False
        self._warnings = SubscriptionWarnings()
        self._lock = threading.Lock()
        self._newest: tuple[Compilation, Sequence[Subscription], Network] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan-tables")

    def submit(
        self, compilation: Compilation, subscriptions: Sequence[Subscription], network: Network
    ) -> None:
        """Writes the tables of this plan; one that still waits to be written is given up for it."""
        with self._lock:
            self._newest = compilation, subscriptions, network
        self._thread.submit(self._write_newest)

    def close(self) -> None:
        """Wait for what is still being written."""
        self._thread.shutdown(wait=True)

    def _write_newest(self) -> None:
        with self._lock:
            newest, self._newest = self._newest, None
        if newest is not None:
            self._write(newest[0])
            self._write_warnings(newest[0], newest[1])
            self._write_matches(*newest)

    def _write(self, compilation: Compilation) -> None:
        entries, leaves = compilation.filter_rows()
        for name, rows in (
            ("rejected_subscriptions", compilation.rejection_rows()),
            ("filter_entries", entries),
            ("filter_leaves", leaves),
        ):
            try:
                self._tables.overwrite(name, rows)
            except SQL_ERRORS as error:
                log.error(
                    "table %s could not be written for the plan of %s: %s",
                    name,
                    named(compilation.versions),
                    one_line(error),
                )

    def _write_warnings(
        self, compilation: Compilation, subscriptions: Sequence[Subscription]
    ) -> None:
        """Writes what live subscriptions most likely do not mean."""
        rejected = {rejection.id for rejection in compilation.rejections}
        live = [row for row in subscriptions if row.id not in rejected]
        found = self._warnings.of(live, compilation.plan.specification)
        if not found and self._no_warnings:
            return
        rows = [
            vars(warning) | {"subscriptions_version": compilation.versions["subscriptions"]}
            for warning in found
        ]
        try:
            if rows or self._tables.rows("subscription_warnings"):
                self._tables.overwrite("subscription_warnings", rows)
            self._no_warnings = not rows
        except SQL_ERRORS as error:
            log.error(
                "table %s could not be written for the plan of %s: %s",
                "subscription_warnings",
                named(compilation.versions),
                one_line(error),
            )

    def _write_matches(
        self, compilation: Compilation, subscriptions: Sequence[Subscription], network: Network
    ) -> None:
        """Writes which subscribers may get something of what is advertised."""
        if not compilation.announced and self._no_matches:
            return
        try:
            rows = match_rows(compilation, subscriptions, network, self._publisher)
            if rows or self._tables.rows("matches"):
                self._tables.overwrite("matches", rows)
            self._no_matches = not rows
        except (*SQL_ERRORS, StackcastError) as error:
            log.error(
                "table %s could not be written for the plan of %s: %s",
                "matches",
                named(compilation.versions),
                one_line(error),
            )
            return
        lost = [row["subscriber"] for row in rows if row["match"] == "none"]
        if lost:
            log.warning(
                "with %s, %d hosts subscribe to nothing that %s advertises, the first: %s",
                named(compilation.versions),
                len(lost),
                self._publisher,
                ", ".join(lost[:10]),
            )


def match_rows(
    compilation: Compilation,
    subscriptions: Sequence[Subscription],
    network: Network,
    publisher: str,
) -> list[dict[str, Any]]:
    """Returns rows of table ``matches``, one for each host that subscribes, by name.

    They say permanent, potential or no match (WERNECKE 5.3.4, Fig. 5.7). There are none where
    nothing is advertised.

    Errors: as of ``clients_of``.
    """
    if not compilation.announced:
        return []
    specification = compilation.plan.specification
    # The order that the stream's own tables are in costs as little here.
    order = [field.qualified for field in compilation.plan.matcher.definitions]
    found = clients_of(
        compilation.announced, subscriptions, network, specification, [publisher], order
    )
    versions = {name: v for name, v in compilation.versions.items() if name in _MATCHED}
    hosts = sorted({name for rule in compilation.rules for name in rule.receivers})
    return [
        {
            "publisher": publisher,
            "subscriber": host,
            "match": "permanent"
            if host in found.permanent[publisher]
            else "potential"
            if host in found.potential[publisher]
            else "none",
            "versions": versions,
        }
        for host in hosts
    ]
