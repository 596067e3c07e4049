"""The tables that explain a plan, written beside the stream: nothing of it depends on them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.logs import named
from jobs.adapters.planning.matches import match_rows
from jobs.adapters.tables.tables import Tables
from udfs.delivery.plan import Compilation
from udfs.errors import StackcastError
from udfs.filters.subscriptions import Subscription
from udfs.network.network import Network

log = logging.getLogger(__name__)

MATCHES = "matches"


class PlanTables:
    """Writes `rejected_subscriptions`, `filter_entries`, `filter_leaves` and `matches`, in order.

    Errors go to the log: the next plan writes them anew. Call `close` at the end.
    """

    def __init__(self, tables: Tables, publisher: str) -> None:
        self._tables = tables
        self._publisher = publisher
        self._no_matches = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan-tables")

    def submit(
        self, compilation: Compilation, subscriptions: Sequence[Subscription], network: Network
    ) -> None:
        """Write the tables of this plan, when those before are written."""
        self._thread.submit(self._write, compilation)
        self._thread.submit(self._write_matches, compilation, subscriptions, network)

    def close(self) -> None:
        """Wait for what is still being written."""
        self._thread.shutdown(wait=True)

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

    def _write_matches(
        self, compilation: Compilation, subscriptions: Sequence[Subscription], network: Network
    ) -> None:
        """How subscribers stand to what is advertised."""
        if not compilation.announced and self._no_matches:
            return
        try:
            rows = match_rows(compilation, subscriptions, network, self._publisher)
            if rows or self._tables.rows(MATCHES):
                self._tables.overwrite(MATCHES, rows)
            self._no_matches = not rows
        except (*SQL_ERRORS, StackcastError) as error:
            log.error(
                "table %s could not be written for the plan of %s: %s",
                MATCHES,
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
