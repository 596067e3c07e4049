"""Since when each subscription is live."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa

from stackcast.jobs.adapters.tables.tables import LIVE, Tables
from stackcast.udfs.filters.subscriptions import Subscription


class LiveSubscriptions:
    """Follows plans, and writes table `live_subscriptions`.

    A rule that stays as it is stays live since then, also over restarts. For one thread.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._since: dict[Subscription, tuple[int, dt.datetime]] | None = None
        self._version = -1
        self._written = False

    def take(self, live: Sequence[Subscription], version: int, at: dt.datetime) -> None:
        """Takes the live rules of the next plan.

        Args:
            live: live rules of a version of `subscriptions`.
            version: that version.
            at: time since when the plan is in use.

        Raises:
            Exception: Spark's errors if the table cannot be read.
        """
        if self._since is None:
            self._since = {
                Subscription(row["id"], row["subscriber"], row["filter"]): (
                    row["since_version"],
                    row["since"],
                )
                for row in self._tables.rows(LIVE)
            }
        before, new = self._since, (version, at)
        self._since = {row: before.get(row, new) for row in live}
        self._written &= version == self._version and before.keys() == self._since.keys()
        self._version = version

    def write(self) -> None:
        """Writes the table, if it is not what it should be. Raises Spark's errors."""
        if self._since is None or self._written:
            return
        rows = list(self._since)
        since = list(self._since.values())
        columns = {
            "id": pa.array([row.id for row in rows], pa.string()),
            "subscriber": pa.array([row.subscriber for row in rows], pa.string()),
            "filter": pa.array([row.filter for row in rows], pa.string()),
            "since_version": pa.array([version for version, _ in since], pa.int64()),
            "since": pa.array([at for _, at in since], pa.timestamp("us", "UTC")),
            "subscriptions_version": pa.repeat(pa.scalar(self._version, pa.int64()), len(rows)),
        }
        self._tables.overwrite(LIVE, pa.table(columns))
        self._written = True
