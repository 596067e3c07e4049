"""Follows table ``egress_ledger``: who sent which offsets, from which tables and settings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.app.settings import INGRESSES
from stackcast.jobs.adapters.fetch.client import NO_EPOCH
from stackcast.jobs.adapters.tables.recorded_topics import topic_of_row
from stackcast.jobs.adapters.tables.tables import LEDGER, MOST_COMMITS, Tables
from stackcast.udfs.messages.sequence import Topic, session_id
from stackcast.udfs.replay.sent_ranges import NOTHING, SentRange, SentRanges

#: New commits that are looked at one by one; behind by more, the table is read anew.
_MOST_STEPS = 20
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Origin:
    """The topic, the versions of tables and the settings that batches were computed from."""

    topic: Topic
    versions: Mapping[str, int]
    settings: Mapping[str, str]


class KnownSession(NamedTuple):
    """A session of which batches are on record.

    Attributes:
        partition: partition of the topic.
        begin: offset at which the session began.
        until: offset from which on its records are gone, because the topic was created again or its
            log truncated; None for a session that continues.
        end: offset after the last record that was sent in the session, if it has ended.
    """

    partition: int
    begin: int = 0
    until: int | None = None
    end: int = 0


class SentLedger:
    """An index of the rows of one topic, in memory. For one thread.

    If the topic was created again, the index has the batches of the newest topic of that name. If
    its log was truncated, it has what each offset means now.

    by_ingress: whether what entered the network by another link has another origin: its frames
    differ, and notifications do not. ranges: what is known since the last `refresh`, which numbers
    the ``origins``. topic: the newest on record, None before the first batch. sessions: of each
    partition that a batch read. read: by partition, the offset after the last record of the newest
    batch, and its leader epoch or `NO_EPOCH`.
    """

    def __init__(self, tables: Tables, topic: str, by_ingress: bool = False) -> None:
        self._tables = tables
        self._by_ingress = by_ingress
        self._name = topic
        self._head: tuple[str, int] | None = None
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.ranges = SentRanges()
        self.origins: list[Origin] = []
        self.topic: Topic | None = None
        self.sessions: dict[bytes, KnownSession] = {}
        self.read: dict[int, tuple[int, int]] = {}

    def refresh(self) -> bool:
        """Take what is new; whether there was something. Raises TableError MISSING, Spark's errors.

        Without anything new it is one look at the table's log; else one at the new files.
        """
        head = self._tables.head(LEDGER)
        if head == self._head:
            return False
        rows = self._new(head)
        if rows is None:
            # Of this version: what is committed meanwhile is for the next time.
            rows = self._tables.rows(LEDGER, head[1])
            self._numbers, self.origins = {}, []
            self.ranges, self.sessions, self.read = SentRanges(), {}, {}
            self.topic = None
        self._add(rows)
        self._head = head
        return True

    def _new(self, head: tuple[str, int]) -> list[dict[str, Any]] | None:
        if self._head is None or self._head[0] != head[0]:
            return None
        before, version = self._head[1], head[1]
        if not before <= version <= before + _MOST_STEPS * MOST_COMMITS:
            return None
        rows: list[dict[str, Any]] = []
        for at in range(before, version, MOST_COMMITS):
            try:
                some = self._tables.added(LEDGER, at, min(version, at + MOST_COMMITS))
            except SQL_ERRORS:
                return None  # files that are gone since were put together: read the table
            if some is None:
                return None
            rows += some
        return rows

    def _add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        mine = [row for row in rows if row["topic"] == self._name]
        for row in sorted(mine, key=lambda row: (row["started_at"], row["batch_id"])):
            self._begin_topic(row)
            started = (row["started_at"] - _EPOCH) // _MICROSECOND
            batch, origin = row["batch_id"], self._origin(row)
            self.ranges.batch(batch, started, origin)
            for p in row["partitions"]:
                epoch = NO_EPOCH if p["leader_epoch"] is None else p["leader_epoch"]
                self.read[p["partition"]] = p["until_offset"], epoch
                if p["from_offset"] == p["until_offset"]:
                    continue
                own = self._origin(row, p["partition"])
                offsets = p["from_offset"], p["until_offset"]
                sent = (_number(p["first_sequence"]), _number(p["last_sequence"]))
                new = SentRange(*offsets, *offsets, *sent, batch, started, own, p["records"])
                self.ranges.add(p["partition"], new)
            assert self.topic is not None
            for p in row["partitions"]:
                session = session_id(self.topic, p["partition"])
                self.sessions.setdefault(session, KnownSession(p["partition"]))

    def _begin_topic(self, row: Mapping[str, Any]) -> None:
        """Ends the sessions of other topics and of other generations if a row is of a new one."""
        before, topic = self.topic, topic_of_row(row)
        if before == topic:
            return
        self.topic = topic
        if before is None:
            return
        begins = {p["partition"]: p["from_offset"] for p in row["partitions"]}
        again = before.id != topic.id
        for session, known in self.sessions.items():
            begin = 0 if again else begins.get(known.partition)
            if begin is not None and (known.until is None or begin < known.until):
                end = known.end or self.read.get(known.partition, (0, NO_EPOCH))[0]
                self.sessions[session] = known._replace(until=begin, end=max(begin, end))
        if again:
            self.ranges, self.read = SentRanges(), {}
            return
        for partition, begin in begins.items():
            self.ranges.cut(partition, begin)
            self.sessions[session_id(topic, partition)] = KnownSession(partition, begin)

    def _origin(self, row: Mapping[str, Any], partition: int | None = None) -> int:
        """Returns the number of a batch's origin, or of what it sent of a partition, with the
        ingress that this had."""
        versions, settings = dict(row["versions"]), dict(row["settings"])
        entered = settings.pop(INGRESSES, "")
        if self._by_ingress and entered:
            hosts = dict(pair.split("=") for pair in entered.split(","))
            host = hosts.get(str(partition))
            settings |= {INGRESSES: f"then={host}"} if host else {}
        topic = topic_of_row(row)
        key = topic, tuple(sorted(versions.items())), tuple(sorted(settings.items()))
        if key not in self._numbers:
            self._numbers[key] = len(self.origins)
            self.origins.append(Origin(topic, versions, settings))
        return self._numbers[key]


def _number(sequence: int | None) -> int:
    return NOTHING if sequence is None else sequence
