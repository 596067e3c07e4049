"""The table of live subscriptions, and since when each one is live."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa

from stackcast.jobs.adapters.tables.tables import LIVE, Tables
from stackcast.udfs.filters.subscriptions import Subscription


class LiveSubscriptions:
    """Writes table `live_subscriptions` for each plan.

    A rule that does not change keeps its time, also over restarts. The methods are for one thread.

    Args:
        tables: tables of the stream.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        #: By live rule, the version and the time since which it is live.
        self._since: dict[Subscription, tuple[int, dt.datetime]] | None = None
        self._version = -1
        self._written = False

    def take(self, live: Sequence[Subscription], version: int, time: dt.datetime) -> None:
        """Set the live rules of the next plan.

        Args:
            live: live rules of a version of `subscriptions`.
            version: that version.
            time: time since which the plan is in use.

        Raises:
            StorageError: the table cannot be read.
        """
        if self._since is None:
            self._since = {
                Subscription(row["id"], row["subscriber"], row["filter"]): (
                    row["since_version"],
                    row["since"],
                )
                for row in self._tables.rows(LIVE)
            }
        previous, new = self._since, (version, time)
        self._since = {row: previous.get(row, new) for row in live}
        self._written &= version == self._version and previous.keys() == self._since.keys()
        self._version = version

    def write(self) -> None:
        """Write the table if it is out of date.

        Raises:
            StorageError: the table cannot be written.
        """
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
