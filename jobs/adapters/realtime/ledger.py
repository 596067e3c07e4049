"""The ledger of a real-time stream: a Kafka topic, positions, and the versions in use.

Workers report every second. A report is taken once; its rows are written to Kafka beside that, and
positions after them, so a row may be there twice after a crash, and none is missing.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.settings import Settings
from jobs.adapters.checkpoint.positions import Positions
from jobs.adapters.realtime.plans import Reported
from jobs.adapters.realtime.topic_writer import Producer, Row, TopicWriter
from jobs.adapters.stream.metrics import StreamMetrics, in_unicast
from jobs.adapters.stream.report import BatchReport
from jobs.adapters.tables.tables import LEDGER, Tables
from udfs.delivery.realtime import TaskReport

log = logging.getLogger(__name__)

#: Rows that may wait for the ledger's topic, about one a second and partition: some 50 MB. With
#: more, workers keep their reports and then send nothing: what a crash sends again has a bound.
MOST_ROWS = 50_000
#: Samples that may wait for their topic.
MOST_LETTERS = 10_000
#: Rows that wait for less are on their way, and no backlog.
_BEHIND_SECONDS = 5.0
_COUNTS = ("packets", "messages", "matched", "frames", "bytes")
_OFFSETS = ("partition", "from_offset", "until_offset", "first_sequence", "last_sequence")


class RealTimeLedger:
    """Takes reports, for any thread, which waits for no topic; ``sent``: by partition, the offset
    before which everything was sent.

    Positions follow what is in the ledger's topic. Samples of dead letters are thrown away where
    theirs cannot be written: they are counted in ledger and metrics all the same.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        positions: Positions,
        sent: Mapping[int, int],
        metrics: StreamMetrics,
    ) -> None:
        self._settings = settings
        self._positions = positions
        self._metrics = metrics
        self._producer = Producer(spark, settings)
        self._rows = TopicWriter(
            self._producer,
            settings.realtime_ledger_topic,
            "the ledger",
            MOST_ROWS,
            keeps=True,
            written=self._record,
            tell=self._tell,
        )
        self._letters = TopicWriter(
            self._producer, settings.dead_letter_topic, "dead letters", MOST_LETTERS, keeps=False
        )
        self._lock = threading.Lock()
        self._sent = dict(sent)
        self._recorded = dict(sent)
        self._written: dict[int, int] = {}

    @property
    def sent(self) -> dict[int, int]:
        with self._lock:
            return dict(self._sent)

    @property
    def waiting(self) -> int:
        """Number of rows that are not in the ledger's topic yet."""
        return self._rows.waiting

    def take(self, report: TaskReport, plan: Reported | None) -> bool:
        """Returns False if too much waits to be written: tell it again. plan: the report's own, if
        that is still known."""
        batch = BatchReport(report.rows, () if plan is None else plan.reached)
        versions = {} if plan is None else dict(plan.versions)
        if not self._rows.put(ledger_rows(self._settings.topic, report, versions)):
            return False
        if batch.dead_letters:
            log.warning("dead letters by reason: %s", dict(batch.reasons))
            self._letters.put([{"topic": self._settings.topic, **each} for each in batch.letters])
        self._count(batch, versions)
        with self._lock:
            for row in batch.partitions:
                _advance(self._sent, row)
        return True

    def write_positions(self) -> dict[int, int]:
        """Makes durable what is in the ledger, if that has changed; returns it."""
        with self._lock:
            now = dict(self._recorded)
        if now != self._written:
            self._positions.write(now)
            self._written = now
        return now

    def close(self) -> None:
        """Write what is to be written, and end."""
        try:
            self._rows.close()
            self._letters.close()
            self.write_positions()
        finally:
            self._producer.close()

    def _tell(self, waiting: int, oldest: float) -> None:
        self._metrics.journal(waiting if oldest > _BEHIND_SECONDS else 0, oldest)

    def _record(self, row: Row) -> None:
        with self._lock:
            _advance(self._recorded, row)

    def _count(self, batch: BatchReport, versions: Mapping[str, int]) -> None:
        packets, messages, matched, frames, size = (batch.total(column) for column in _COUNTS)
        # Of a plan that is long gone, nobody knows whom its stacks reach.
        unicast = in_unicast(batch.publications()) if versions else 0
        self._metrics.counted(packets, messages, matched, frames, size, unicast, batch.reasons)
        self._metrics.processed({p["partition"]: p["until_offset"] for p in batch.partitions})


def _advance(offsets: dict[int, int], row: Row) -> None:
    p = row["partition"]
    offsets[p] = max(row["until_offset"], offsets.get(p, 0))


def ledger_rows(
    topic: str, report: TaskReport, versions: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Rows of the ledger's topic, one a partition; dead letters stand in the first."""
    reasons = {row["reason"]: row["count"] for row in report.rows if row["kind"] == "reason"}
    started = dt.datetime.fromtimestamp(report.started_at, dt.UTC).isoformat()
    found = [row for row in report.rows if row["kind"] == "partition"]
    return [
        {
            "topic": topic,
            **{name: row[name] for name in _OFFSETS},
            "versions": dict(versions),
            **{name: row[name] for name in _COUNTS},
            "dead_letters": {} if number else reasons,
            "started_at": started,
            "seconds": round(report.seconds, 6),
        }
        for number, row in enumerate(found)
    ]


class VersionsInUse:
    """Writes rows of `egress_ledger` that say which versions a stream uses, and nothing else.

    The refresher takes from switches what no stream names any more, and knows it by that table.
    Rows have no partitions and count nothing: what was sent is in the ledger's topic. They are
    written beside the caller.
    """

    def __init__(self, tables: Tables, topic: str) -> None:
        self._tables = tables
        self._topic = topic
        self._written: Mapping[str, int] = {}
        self._thread: threading.Thread | None = None

    def put(self, number: int, versions: Mapping[str, int]) -> None:
        """Says that all workers use these versions, if that is not said yet."""
        if versions == self._written or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(
            target=self._write, args=(number, dict(versions)), name="versions-in-use", daemon=True
        )
        self._thread.start()

    def _write(self, number: int, versions: dict[str, int]) -> None:
        row: dict[str, Any] = {
            **dict.fromkeys(self._tables.read(LEDGER).columns),
            "batch_id": number,
            "topic": self._topic,
            "partitions": [],
            "versions": versions,
            **dict.fromkeys((*_COUNTS, "dead_letters"), 0),
            "started_at": dt.datetime.now(dt.UTC),
            "seconds": 0.0,
        }
        try:
            self._tables.append(LEDGER, [row])
            self._written = versions
        except SQL_ERRORS as error:
            log.error("table %s could not be written: %s", LEDGER, one_line(error))
