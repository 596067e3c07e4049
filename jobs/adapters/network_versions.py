"""The table `network_versions`: what the switches are ready for, and what streams may still use.

`jobs.adapters.refresh` publishes, `jobs.adapters.delivery` follows and announces itself; what the
rows mean together says `udfs.switches.rollout`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from jobs.adapters.tables import Tables
from udfs.switches import rollout
from udfs.switches.rollout import Versions

TABLE = "network_versions"
LEDGER = "egress_ledger"

#: The tables that decide what switches hold.
SOURCES = ("switches", "hosts", "links", "virtual_trees")

COLUMNS = (
    "versions",
    "topic",
    "term",
    "entries_version",
    "committed_at",
    "ready_at",
    "seconds",
)

_WRITER = "stackcast-refresh"
_TERM_BITS = 32

#: Rows that come later may be stamped earlier, by another machine's clock.
_SKEW = dt.timedelta(hours=1)


class NetworkVersions:
    """Reads the table again only when it has a new version, and then only what is new."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._version: int | None = None
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._ledger_version: int | None = None
        self._last: dict[str, dict[str, Any]] = {}
        self._term: int | None = None
        self._published = 0

    def ready(self) -> list[Versions]:
        """All versions that were ever ready, in no order. Raises TableError MISSING."""
        self._read()
        rows = self._rows.values()
        return [row["versions"] for row in rows if row["topic"] is None and row["versions"]]

    def newest(self, current: Versions) -> Versions | None:
        """The newest versions that are ready, or None; ``current`` are the tables' now."""
        return rollout.newest(self.ready(), current)

    def used(self) -> list[Versions]:
        """Of each stream the versions of its last batch, or those that it announced."""
        self._read()
        self._read_ledger()
        used: dict[str, Versions] = {}
        for row in self._rows.values():
            topic = row["topic"]
            if topic is not None and topic not in self._last:
                known = used.setdefault(topic, row["versions"])
                used[topic] = min(known, row["versions"], key=rollout.age)
        return [*used.values(), *(row["versions"] for row in self._last.values())]

    def topics(self) -> dict[str, Versions]:
        """Of each stream on record in `egress_ledger` the versions of its last batch."""
        self._read_ledger()
        return {topic: row["versions"] for topic, row in self._last.items()}

    def begin_term(self) -> None:
        """Take the lead in this table: from now on, `publish` of those before us has no effect.

        Without this, one that was cut off between its last look at the switches and the end of its
        commit could say of versions that they are ready after we have taken them off.
        """
        while True:
            self._read()
            term = 1 + max((row["term"] or 0 for row in self._rows.values()), default=0)
            now = dt.datetime.now(dt.UTC)
            self._append({"versions": {}, "term": term, "ready_at": now}, term << _TERM_BITS)
            self._read()
            if any(row["term"] == term and row["ready_at"] == now for row in self._rows.values()):
                self._term, self._published = term, 0
                return

    def superseded(self) -> bool:
        """Whether another has begun a term since ours, so that our `publish` has no effect."""
        self._read()
        newest = max((row["term"] or 0 for row in self._rows.values()), default=0)
        return self._term is not None and newest > self._term

    def publish(
        self,
        versions: Versions,
        entries_version: int,
        committed_at: dt.datetime | None,
        ready_at: dt.datetime,
    ) -> None:
        """Say that all switches hold what stacks made from these versions name."""
        self._published += 1
        number = None if self._term is None else self._term << _TERM_BITS | self._published
        row: dict[str, Any] = {
            "versions": dict(versions),
            "term": self._term,
            "entries_version": entries_version,
            "committed_at": committed_at,
            "ready_at": ready_at,
        }
        if committed_at is not None:
            row["seconds"] = (ready_at - committed_at).total_seconds()
        self._append(row, number)

    def announce(self, topic: str, versions: Versions) -> None:
        """Say, before the first batch of a stream, which versions it begins with.

        From then on nothing that became ready with them or later leaves the switches until
        `egress_ledger` has a batch of the stream. So ask for the newest again after this.
        """
        now = dt.datetime.now(dt.UTC)
        self._append({"versions": dict(versions), "topic": topic, "ready_at": now})

    def _append(self, row: dict[str, Any], number: int | None = None) -> None:
        transaction = None if number is None else (_WRITER, number)
        self._tables.append(TABLE, [dict.fromkeys(COLUMNS) | row], transaction)

    def _read(self) -> None:
        version = self._tables.version(TABLE)
        if version == self._version:
            return
        since: Mapping[str, Any] = {}
        if self._version is not None and version > self._version and self._rows:
            since = {"ready_at": max(row["ready_at"] for row in self._rows.values()) - _SKEW}
        else:
            self._rows.clear()
        for row in self._tables.rows(TABLE, version, since):
            versions = {str(name): int(number) for name, number in dict(row["versions"]).items()}
            key = (row["topic"], row["term"], row["ready_at"], *sorted(versions.items()))
            self._rows[key] = row | {"versions": versions}
        self._version = version

    def _read_ledger(self) -> None:
        version = self._tables.version(LEDGER)
        if version == self._ledger_version:
            return
        if self._ledger_version is not None and version < self._ledger_version:
            self._last.clear()
        since = {topic: row["started_at"] for topic, row in self._last.items()}
        for row in self._tables.last_of_each(LEDGER, "topic", "started_at", "versions", since):
            self._last[row["topic"]] = row | {"versions": dict(row["versions"])}
        self._ledger_version = version
