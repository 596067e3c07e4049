"""Follows table ``egress_ledger``: who sent which offsets, from which tables and settings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH
from stackcast.jobs.adapters.tables.changes import MOST_COMMITS, rows_added
from stackcast.jobs.adapters.tables.recorded_topics import topic_of_row
from stackcast.jobs.adapters.tables.tables import LEDGER, Tables
from stackcast.udfs.messages.sequence import MAX_OFFSET, Topic, session_id
from stackcast.udfs.replay.sent_ranges import NOTHING, SentRange, SentRanges

#: New commits that are looked at one by one; behind by more, the table is read anew.
_MOST_STEPS = 20
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Origin:
    """The topic, the versions of tables and the settings that batches were computed from.

    Attributes:
        topic: topic with its generation.
        versions: versions of the tables.
        settings: settings that affect the bytes of notifications.
        ingress: host through whose link all frames entered; empty if each frame entered through the
            link of its publisher.
    """

    topic: Topic
    versions: Mapping[str, int]
    settings: Mapping[str, str]
    ingress: str = ""


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
    partition that a batch read. read: by partition, the furthest offset up to which batches of the
    newest generation have read, and the epoch of the leader from which they did, or `NO_EPOCH`.
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
                some = rows_added(self._tables, LEDGER, at, min(version, at + MOST_COMMITS))
            except SQL_ERRORS:
                return None  # files that are gone since were put together: read the table
            if some is None:
                return None
            rows += some
        return rows

    def _add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        mine = [row for row in rows if row["topic"] == self._name]
        begun: dict[str, dt.datetime] = {}
        for row in mine:
            at = row["started_at"]
            begun[row["topic_id"]] = min(at, begun.get(row["topic_id"], at))

        def order(row: Mapping[str, Any]) -> tuple[Any, ...]:
            # Clocks may go back, generations do not.
            return begun[row["topic_id"]], row["generation"], row["started_at"], row["batch_id"]

        for row in sorted(mine, key=order):
            self._begin_topic(topic_of_row(row))
            started = (row["started_at"] - _EPOCH) // _MICROSECOND
            batch, origin = row["batch_id"], self._origin(row)
            self.ranges.batch(batch, started, origin)
            for p in row["partitions"]:
                partition, offsets = p["partition"], (p["from_offset"], p["until_offset"])
                self._begin_session(partition, offsets[0])
                epoch = NO_EPOCH if p["leader_epoch"] is None else p["leader_epoch"]
                read = offsets[1], epoch
                self.read[partition] = max(read, self.read.get(partition, read))
                if offsets[0] == offsets[1]:
                    continue
                own = self._origin(row, p["ingress"] or "")
                sent = (_number(p["first_sequence"]), _number(p["last_sequence"]))
                new = SentRange(*offsets, *offsets, *sent, batch, started, own, p["records"])
                self.ranges.add(partition, new)

    def _begin_topic(self, topic: Topic) -> None:
        """Ends the sessions of a topic if one of the same name was created since."""
        if self.topic is not None and self.topic.id != topic.id:
            for session, known in self.sessions.items():
                self._end(session, known, 0)
            self.ranges, self.read = SentRanges(), {}
        self.topic = topic

    def _begin_session(self, partition: int, offset: int) -> None:
        """Notes that the newest generation has read a partition from an offset on.

        Records that earlier generations sent from there on are gone. A new checkpoint may read the
        same generation again from an earlier offset on.
        """
        assert self.topic is not None
        session = session_id(self.topic, partition)
        known = self.sessions.get(session)
        if known is not None and known.begin <= offset:
            return
        for other, earlier in list(self.sessions.items()):
            if earlier.partition == partition and other != session:
                self._end(other, earlier, offset)
        self.ranges.cut(partition, offset, MAX_OFFSET + 1 if known is None else known.begin)
        if known is None:
            self.read.pop(partition, None)
        begin = offset if self.topic.generation else 0
        self.sessions[session] = KnownSession(partition, begin)

    def _end(self, session: bytes, known: KnownSession, until: int) -> None:
        if known.until is None or until < known.until:
            end = known.end or self.read.get(known.partition, (0, NO_EPOCH))[0]
            self.sessions[session] = known._replace(until=until, end=max(until, end))

    def generation_at(self, partition: int, offset: int) -> tuple[Topic, int | None]:
        """Returns the topic with the generation that sent an offset of a partition, and the offset
        at which that generation ended; None for the newest generation.

        Not before the first batch is on record.
        """
        assert self.topic is not None
        for number in range(self.topic.generation):
            topic = self.topic._replace(generation=number)
            known = self.sessions.get(session_id(topic, partition))
            if known is not None and known.until is not None and offset < known.until:
                return topic, known.until
        return self.topic, None

    def _origin(self, row: Mapping[str, Any], ingress: str = "") -> int:
        """Returns the number of the origin of a batch, or of a partition that had an ingress."""
        versions, settings = dict(row["versions"]), dict(row["settings"])
        ingress = ingress if self._by_ingress else ""
        topic = topic_of_row(row)
        key = topic, tuple(sorted(versions.items())), tuple(sorted(settings.items())), ingress
        if key not in self._numbers:
            self._numbers[key] = len(self.origins)
            self.origins.append(Origin(topic, versions, settings, ingress))
        return self._numbers[key]


def _number(sequence: int | None) -> int:
    return NOTHING if sequence is None else sequence
