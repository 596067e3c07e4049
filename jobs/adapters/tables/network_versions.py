"""The table `network_versions`: what the switches are ready for, and what streams may still use.

`stackcast.jobs.adapters.switches.publish` publishes, `stackcast.jobs.adapters.stream.plan_keeper`
follows and announces itself; what the rows mean together says `stackcast.udfs.switches.rollout`.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping
from typing import Any

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.tables.changes import only_added
from stackcast.jobs.adapters.tables.tables import GRANTS, LEDGER, SENIORITY, SUBSCRIPTIONS, Tables
from stackcast.udfs.switches import rollout
from stackcast.udfs.switches.rollout import Versions

TABLE = "network_versions"

#: The tables that decide what switches hold.
SOURCES = ("switches", "hosts", "links", "virtual_trees")
#: Where switches match, these do, too.
MATCHED = (SUBSCRIPTIONS, SENIORITY, GRANTS)

COLUMNS = (
    "versions",
    "topic",
    "term",
    "entries_version",
    "committed_at",
    "ready_at",
    "seconds",
    "table_ids",
)

_WRITER = "stackcast-refresh"
_TERM_BITS = 32

#: Rows that come later may be stamped earlier, by another machine's clock.
_SKEW = dt.timedelta(hours=1)


class NetworkVersions:
    """Reads the table again only when it has a new version, and then only what is new.

    For several threads. What rows say of tables that were deleted and made anew since counts no
    more, as the new ones will reach the same versions.
    """

    def __init__(self, tables: Tables, clock: Clock = SYSTEM_CLOCK) -> None:
        self._tables = tables
        self._clock = clock
        self._lock = threading.RLock()
        self._seen: tuple[str, int] | None = None
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._ledger_seen: tuple[str, int] | None = None
        self._last: dict[str, dict[str, Any]] = {}
        self._term: int | None = None
        self._published = 0

    def ready(self) -> list[Versions]:
        """All versions that were ever ready, in no order. Raises TableError MISSING."""
        return [row["versions"] for row in self._valid() if row["topic"] is None]

    def newest(self, current: Versions) -> Versions | None:
        """The newest versions that are ready, or None; ``current`` are the tables' now."""
        return rollout.newest(self.ready(), current)

    def used(self) -> list[Versions]:
        """Returns, for each stream, the versions of its last batch, or those that it announced."""
        last = self.topics()
        used: dict[str, Versions] = {}
        for row in self._valid():
            topic = row["topic"]
            if topic is not None and topic not in last:
                known = used.setdefault(topic, row["versions"])
                used[topic] = min(known, row["versions"], key=rollout.age)
        return [*used.values(), *last.values()]

    def topics(self) -> dict[str, Versions]:
        """Returns, for each stream on record in `egress_ledger`, the versions of its last batch."""
        with self._lock:
            self._read_ledger()
            return {topic: row["versions"] for topic, row in self._last.items()}

    def in_use(self, current: Versions) -> list[Versions]:
        """Returns all versions that a stack may be made from, oldest first."""
        ready = self.ready()
        return rollout.in_use(ready, self.used() if ready else [], current)

    def begin_term(self) -> int:
        """Takes the lead in this table: from now on, `publish` of those before us has no effect.

        Returns the number of the term.

        Without this, one that was cut off between its last look at the switches and the end of its
        commit could say of versions that they are ready after we have taken them off.
        """
        term, step = 0, 1
        while True:
            # Delta refuses a number that counted before, also where its row was deleted since.
            term = max(term, self._newest_term()) + step
            step *= 2
            now = utc(self._clock)
            row = {"versions": {}, "term": term, "ready_at": now, "table_ids": {}}
            self._append(row, term << _TERM_BITS)
            with self._lock:
                # All of it: no clock decides whether we find our row.
                self._seen = None
                self._read()
                if any(
                    row["term"] == term and row["ready_at"] == now for row in self._rows.values()
                ):
                    self._term, self._published = term, 0
                    return term

    def superseded(self) -> bool:
        """Tells whether another has begun a term since ours: `publish` then has no effect."""
        newest = self._newest_term()
        return self._term is not None and newest > self._term

    def led_by_another(self) -> bool:
        """Tells whether the newest term is not ours; one may have led before us, too."""
        return self._newest_term() > (self._term or 0)

    def _newest_term(self) -> int:
        self._read()
        with self._lock:
            return max((row["term"] or 0 for row in self._rows.values()), default=0)

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
            "table_ids": self._ids(versions),
        }
        if committed_at is not None:
            row["seconds"] = waited(committed_at, ready_at)
        self._append(row, number)

    def announce(self, topic: str, versions: Versions) -> None:
        """Say, before the first batch of a stream, which versions it begins with.

        From then on nothing that became ready with them or later leaves the switches until
        `egress_ledger` has a batch of the stream. So ask for the newest again after this.
        """
        now = utc(self._clock)
        ids = self._ids(versions)
        self._append(
            {"versions": dict(versions), "topic": topic, "ready_at": now, "table_ids": ids}
        )

    def _append(self, row: dict[str, Any], number: int | None = None) -> None:
        transaction = None if number is None else (_WRITER, number)
        self._tables.append(TABLE, [dict.fromkeys(COLUMNS) | row], transaction)

    def _ids(self, versions: Versions) -> dict[str, str]:
        """Returns the ids of the tables that these are versions of; none where a table has not come
        so far."""
        heads = {name: self._tables.head(name) for name in versions}
        return {
            name: table if versions[name] <= version else ""
            for name, (table, version) in heads.items()
        }

    def _valid(self) -> list[dict[str, Any]]:
        """Rows with versions, all of tables that still are the same."""
        self._read()
        with self._lock:
            rows = [row for row in self._rows.values() if row["versions"]]
        names = {name for row in rows for name in row["table_ids"]}
        now = {name: self._tables.head(name)[0] for name in names}
        return [row for row in rows if row["table_ids"].items() <= now.items()]

    def _read(self) -> None:
        if self._tables.head(TABLE) == self._seen:
            return
        with self._lock:
            # Another thread may have read meanwhile, and more.
            now, seen = self._tables.head(TABLE), self._seen
            if now == seen:
                return
            since: Mapping[str, Any] = {}
            if self._rows and self._goes_on(TABLE, seen, now):
                # A row of the future, by a clock that was wrong, must not hide those after it.
                newest = max(row["ready_at"] for row in self._rows.values())
                since = {"ready_at": min(newest, utc(self._clock)) - _SKEW}
            rows = self._tables.rows(TABLE, now[1], since)
            if not since:
                self._rows.clear()
            for row in rows:
                versions = {str(name): int(v) for name, v in dict(row["versions"]).items()}
                ids = dict(row["table_ids"])
                key = (row["topic"], row["term"], row["ready_at"], *sorted(versions.items()))
                self._rows[key] = row | {"versions": versions, "table_ids": ids}
            self._seen = now

    def _read_ledger(self) -> None:
        now = self._tables.head(LEDGER)
        if now == self._ledger_seen:
            return
        since = {}
        if self._goes_on(LEDGER, self._ledger_seen, now):
            since = {topic: row["started_at"] for topic, row in self._last.items()}
        rows = self._tables.last_rows(LEDGER, "topic", "started_at", "versions", since)
        if not since:
            self._last.clear()
        for row in rows:
            self._last[row["topic"]] = row | {"versions": dict(row["versions"])}
        self._ledger_seen = now

    def _goes_on(self, name: str, seen: tuple[str, int] | None, now: tuple[str, int]) -> bool:
        """Tells whether a table has all rows that it had when it was ``seen``."""
        if seen is None or seen[0] != now[0]:
            return False
        return only_added(self._tables, name, seen[1], now[1])


def waited(committed_at: dt.datetime, ready_at: dt.datetime) -> float:
    """Seconds from an edit's commit until it was ready: 0 where the clock was set back between, or
    another machine's, that stamped the commit, is ahead."""
    return max(0.0, (ready_at - committed_at).total_seconds())
