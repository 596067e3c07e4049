"""Watches a running stream from beside it: lag, broker, disk, health.

A thread asks Spark and Kafka every few seconds and writes down what it saw; `health_of` decides by
that and by what the stream's batches noted, and asks nobody. The stream never waits for either.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.error_texts import one_line
from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.app.lifecycle import RunningStream
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.places import qualified
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.checkpoint.hadoop_files import open_folder
from stackcast.jobs.adapters.checkpoint.progress import position
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.slices import Slices
from stackcast.jobs.adapters.tables.open_tables import open_tables

log = logging.getLogger(__name__)

#: Between two polls.
POLL_SECONDS = 5.0
#: Between two polls if no metrics are served.
WARN_SECONDS = 30.0
#: A broker that has not answered for so long is told as gone.
BROKER_SECONDS = 15.0
#: A batch that runs for longer hangs, or has far too much to do.
BATCH_SECONDS = 120.0
#: Spark that has not answered for so long hangs.
SPARK_SECONDS = 60.0
#: Newer tables should be live before that.
PENDING_SECONDS = 30.0
#: Batches that may wait for ledger and statistics, half of those at which the stream waits; and how
#: long.
JOURNAL_BATCHES = 32
JOURNAL_SECONDS = 60.0
#: A transaction that is open for so long hangs; Kafka ends one after a minute by default.
TRANSACTION_SECONDS = 90.0
#: Less of a disk free than that is worth a remark.
LEAST_FREE = 0.05


@dataclass(frozen=True)
class Seen:
    """Findings of the last poll. at, broker_at: of ``time.monotonic``, when it began, and when the
    broker last answered; lag: records by partition; full: places with hardly any room; slow: why
    the stream is slow or partly stands still, and what to do."""

    at: float
    active: bool
    broker_at: float
    broker_error: str = ""
    lag: Mapping[int, int] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    slow: tuple[str, ...] = ()


def health_of(seen: Seen | None, metrics: StreamMetrics, now: float) -> Health:
    """Returns the health of the stream at ``time.monotonic() == now``, by what was noted. Asks
    nobody.

    Each problem is a 503:

    - no query runs, yet or any more;
    - a batch has run for longer than `BATCH_SECONDS`, or the last batch has failed;
    - the broker has not answered for `BROKER_SECONDS`, or Spark for `SPARK_SECONDS`;
    - a transaction has held a partition back for `TRANSACTION_SECONDS`;
    - in real time, the topic has more partitions than Spark has slots;
    - all records of the last batch, and not just one record, were dead letters.

    Tables that cannot be used or are not live yet, rows that the ledger does not have yet, a
    disk that fills, and a single dead record are remarks, because frames leave all the same.
    """
    problems, remarks = [], []
    running, last = metrics.running, metrics.last
    broker_ok = seen is not None and now - seen.broker_at <= BROKER_SECONDS
    if seen is None:
        problems.append("the stream is starting")
    else:
        if not seen.active:
            problems.append("the query is not running")
        if now - seen.at > SPARK_SECONDS:
            problems.append(f"Spark has not answered for {now - seen.at:.0f} s")
        if not broker_ok:
            why = seen.broker_error or "no answer"
            problems.append(f"the broker has not answered for {now - seen.broker_at:.0f} s: {why}")
        problems += seen.slow
        remarks += [f"the disk of {place} is almost full" for place in seen.full]
    if running is not None and now - running[1] > BATCH_SECONDS:
        problems.append(f"batch {running[0]} has been running for {now - running[1]:.0f} s")
    if metrics.failure:
        problems.append(f"the last batch failed: {metrics.failure}")
    if metrics.dead:
        (remarks if metrics.dead_alone else problems).append(metrics.dead)
    if metrics.refused_versions is not None:
        remarks.append("the newest tables cannot be used, so the last valid ones remain live")
    if metrics.pending_for(now) > PENDING_SECONDS:
        remarks.append(
            f"newer tables have been waiting to become live for {metrics.pending_for(now):.0f} s"
        )
    age = metrics.journal_age(now)
    if metrics.journal_waits > JOURNAL_BATCHES or age > JOURNAL_SECONDS:
        remarks.append(
            f"{metrics.journal_waits} batches are not in the ledger yet, the oldest of them for "
            f"{age:.0f} s"
        )
    lag = {} if seen is None else dict(seen.lag)
    facts: dict[str, Any] = {
        "last_batch": None if last is None else last[0],
        "last_batch_age_seconds": None if last is None else round(now - last[1], 1),
        "running_batch": None if running is None else running[0],
        "running_seconds": round(metrics.running_for(now), 1),
        "versions": metrics.versions,
        "refused_versions": metrics.refused_versions,
        "broker_reachable": broker_ok,
        "sink_ok": not metrics.failure.startswith("SINK."),
        "lag": sum(lag.values()) if lag else None,
        "lag_by_partition": lag,
        "batches_not_in_ledger": metrics.journal_waits,
    }
    return Health(tuple(problems), tuple(remarks), facts)


class StreamWatch:
    """Metrics, health and their server for one stream.

    ``open`` raises SettingsError PORT_TAKEN or BAD_HOST. If ``spark.stackcast.metrics.port`` is 0,
    nothing is served, but warnings are logged and `metrics` count. `close` may be called at any
    time.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        topics: Topics,
        stood_still: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._stood_still = stood_still
        self.metrics = StreamMetrics(settings.metrics_hosts)
        self._spark = spark
        self._settings = settings
        self._topics = topics
        self._query: RunningStream | None = None
        self._seen: Seen | None = None
        self._start: dict[int, int] | None = None
        self._progress = -1
        #: By partition, the first offset of an open transaction, and since when it is seen there.
        self._held: dict[int, tuple[int, float]] = {}
        self._slow: tuple[str, ...] = ()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._open = ExitStack()
        tables = open_tables(spark, settings.tables)
        self._places = {
            "tables": tables.location,
            "checkpoint": qualified(spark, settings.checkpoint),
            **({"sink": settings.pcap_path} if settings.sink == "pcap" else {}),
        }

    def open(self) -> None:
        """Serve from now on."""
        self._open.enter_context(serve(self._settings, self.metrics.registry, self.health))

    def attach(self, query: RunningStream) -> None:
        """The query runs: it is watched from now on."""
        self._query = query
        self._thread = threading.Thread(target=self._watch, name="stream-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops watching and serving."""
        self._closing.set()
        if self._thread is not None:
            # It may be waiting for a broker that is gone, and the job's end must not.
            self._thread.join(1.0)
        self._open.close()

    def health(self) -> Health:
        """Returns the health of the stream now."""
        found = health_of(self._seen, self.metrics, time.monotonic())
        if seconds := self._stood_still():
            problem = f"the driver did not respond for {seconds:.0f} s and stops"
            found = replace(found, problems=(*found.problems, problem))
        return found

    def _watch(self) -> None:
        said = ""
        served = self._settings.metrics_port != 0
        # If nothing is served, it only looks for reasons to warn.
        seconds = POLL_SECONDS if served else WARN_SECONDS
        if not served:
            self._closing.wait(seconds)
        while not self._closing.is_set():
            try:
                self._poll()
                said = ""
            except Exception as error:
                # Whatever it is, the stream goes on; /health tells that nobody watches.
                if not self._closing.is_set() and said != (said := one_line(error)):
                    log.warning("the stream could not be monitored: %s", said)
            self._closing.wait(seconds)

    def _poll(self) -> None:
        query, before, now = self._query, self._seen, time.monotonic()
        if query is None:
            return
        active = bool(query.isActive)
        progress: Any = query.lastProgress if active else None
        if progress is not None and progress["batchId"] != self._progress:
            self._progress = progress["batchId"]
            self.metrics.spark_stages(progress["durationMs"])
        error, answered = "", now
        lag = {} if before is None else before.lag
        try:
            lag = self._measure()
            self._slow = self._slowness(query)
        except Exception as failed:
            error = one_line(failed)
            # Until the first answer, the time is counted from the first question.
            answered = now if before is None else before.broker_at
            self.metrics.broker_gone()
        else:
            answered = time.monotonic()
        full = self._disks()
        self._seen = Seen(time.monotonic(), active, answered, error, lag, full, self._slow)

    def _slowness(self, query: RunningStream) -> tuple[str, ...]:
        """Returns why the stream is slow or partly stands still; logs what is new."""
        found = []
        topic, now = self._settings.topic, time.monotonic()
        held = self._topics.held_back()
        self._held = {
            p: self._held[p] if self._held.get(p, (-1, 0.0))[0] == offset else (offset, now)
            for p, (offset, _) in held.items()
        }
        for partition, (offset, since) in sorted(self._held.items()):
            if now - since > TRANSACTION_SECONDS:
                found.append(
                    f"an open transaction holds back partition {partition} of {topic} at offset "
                    f"{offset}: find it with kafka-transactions.sh find-hanging, and abort it "
                    "with kafka-transactions.sh abort"
                )
        slots, partitions = 0, 0
        if isinstance(query, Slices):
            slots, partitions = session.slots(self._spark), len(self._topics.end_offsets())
        if 0 < slots < partitions:
            found.append(
                f"{topic} has {partitions} partitions, but Spark has only {slots} slots, so "
                "partitions wait for each other in real-time mode: give the stream one core per "
                "partition"
            )
        for text in found:
            if text not in self._slow:
                log.warning("%s", text)
        return tuple(found)

    def _measure(self) -> dict[int, int]:
        spans = self._topics.spans()
        if self._start is None:
            self._start = beginning(self._spark, self._settings)
        start = {p: first for p, (first, _) in spans.items()} | self._start
        if self._settings.starting_offsets != "earliest":
            start = self._start
        self.metrics.spans(spans, start)
        at = start | self.metrics.offsets
        return {p: max(0, end - at[p]) for p, (_, end) in sorted(spans.items()) if p in at}

    def _disks(self) -> tuple[str, ...]:
        full = []
        for place, where in self._places.items():
            folder = local_folder(where)
            if folder is None:
                continue
            usage = shutil.disk_usage(folder)
            self.metrics.disk(place, usage.free, usage.total)
            if usage.free < LEAST_FREE * usage.total:
                full.append(place)
        return tuple(full)


def beginning(spark: SparkSession, settings: Settings) -> dict[int, int]:
    """By partition, the offset that a stream goes on from, by its checkpoint.

    Empty where that is new.
    """
    found = position(open_folder(spark, settings.checkpoint))
    return found.offsets if found is not None and found.topic == settings.topic else {}


def local_folder(place: str) -> Path | None:
    """The folder on this machine that a place is in or will be in; None where it is elsewhere."""
    parts = urlparse(place)
    if parts.scheme not in ("", "file") or ("/" not in place and "." in place):
        return None
    path = Path(parts.path).absolute()
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
