"""The ledger of a real-time stream: a Kafka topic, positions, and the versions in use.

Workers report every second; a report counts as taken when its rows are in Kafka. Positions are
written after that, so a row may be there twice after a crash, and none is missing.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.settings import Settings
from jobs.adapters.checkpoint.positions import Positions
from jobs.adapters.realtime.plans import Reported
from jobs.adapters.stream.metrics import StreamMetrics, in_unicast
from jobs.adapters.stream.report import BatchReport
from jobs.adapters.tables.tables import LEDGER, Tables
from udfs.delivery.realtime import TaskReport

log = logging.getLogger(__name__)

_COUNTS = ("packets", "messages", "matched", "frames", "bytes")
_OFFSETS = ("partition", "from_offset", "until_offset", "first_sequence", "last_sequence")


class Producer:
    """Sends texts to Kafka by the JVM's client, so that its options are those of the source."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._jvm: Any = spark._jvm
        properties = self._jvm.java.util.Properties()
        text = "org.apache.kafka.common.serialization.StringSerializer"
        # Nobody may wait long: reports stay with the workers until they are taken.
        usual = {
            "key.serializer": text,
            "value.serializer": text,
            "acks": "all",
            "max.block.ms": "5000",
            "request.timeout.ms": "4000",
            "delivery.timeout.ms": "6000",
        }
        for key, value in (usual | settings.kafka).items():
            properties.setProperty(key, value)
        self._producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(properties)

    def send(self, topic: str, values: Sequence[str]) -> None:
        """Return when the broker has them. Raises Py4JError."""
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        for future in [self._producer.send(record(topic, value)) for value in values]:
            future.get()

    def close(self) -> None:
        """Release its connections."""
        self._producer.close()


class RealTimeLedger:
    """Takes reports, for any thread; ``sent``: by partition, the offset before which everything
    was sent and is in the ledger."""

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
        self._lock = threading.Lock()
        self._failing = False
        self._written: dict[int, int] = {}
        self.sent = dict(sent)

    def take(self, report: TaskReport, plan: Reported | None) -> bool:
        """Tells whether its rows are in Kafka now. plan: its own, if that is still known."""
        batch = BatchReport(report.rows, () if plan is None else plan.reached)
        versions = {} if plan is None else dict(plan.versions)
        rows = ledger_rows(self._settings.topic, report, versions)
        try:
            self._producer.send(self._settings.realtime_ledger_topic, [json.dumps(r) for r in rows])
        except Py4JError as error:
            if not self._failing:
                log.error(
                    "the ledger cannot be written to topic %s, workers keep it meanwhile: %s",
                    *(self._settings.realtime_ledger_topic, one_line(error)),
                )
            self._failing = True
            return False
        self._failing = False
        self._write_dead_letters(batch)
        self._count(batch, versions)
        with self._lock:
            for row in batch.partitions:
                p, until = row["partition"], row["until_offset"]
                self.sent[p] = max(until, self.sent.get(p, 0))
        return True

    def write_positions(self) -> None:
        """Make ``sent`` durable, if it has changed."""
        with self._lock:
            now = dict(self.sent)
        if now != self._written:
            self._positions.write(now)
            self._written = now

    def close(self) -> None:
        """Write what is to be written, and end."""
        try:
            self.write_positions()
        finally:
            self._producer.close()

    def _write_dead_letters(self, batch: BatchReport) -> None:
        if not batch.dead_letters:
            return
        log.warning("dead letters by reason: %s", dict(batch.reasons))
        letters = [json.dumps({"topic": self._settings.topic, **each}) for each in batch.letters]
        try:
            self._producer.send(self._settings.dead_letter_topic, letters)
        except Py4JError as error:
            # Counted in ledger and log all the same.
            log.error(
                "%d samples could not be written to topic %s: %s",
                *(len(letters), self._settings.dead_letter_topic, one_line(error)),
            )

    def _count(self, batch: BatchReport, versions: Mapping[str, int]) -> None:
        packets, messages, matched, frames, size = (batch.total(column) for column in _COUNTS)
        # Of a plan that is long gone, nobody knows whom its stacks reach.
        unicast = in_unicast(batch.publications()) if versions else 0
        self._metrics.counted(packets, messages, matched, frames, size, unicast, batch.reasons)
        self._metrics.processed({p["partition"]: p["until_offset"] for p in batch.partitions})


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
