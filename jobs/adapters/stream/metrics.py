"""Metrics of a stream for Prometheus: counters, gauges and histograms, all called ``stackcast_*``.

Nothing here is called per event: once a batch, once a plan, once a look of the watch. No label
takes a value per rule, and one per host only where there are few; others have as many values as a
topic has partitions, or as there are tables, stages, reasons and codes.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

from stackcast.jobs.adapters.stream.report import BatchReport
from stackcast.udfs.delivery.plan import Compilation
from stackcast.udfs.messages.readers import REASONS

ETHERNET = 14
#: A stage may be a look at a folder or the pass over all records.
STAGE_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
PLAN_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)
_CODE = re.compile(r"\b([A-Z][A-Z0-9]+\.[A-Z][A-Z0-9_]+)\b")


class StreamMetrics:
    """Metrics of one stream, on a registry of their own. For any thread.

    running: the batch in progress and when it began (``time.monotonic``), or None. last: the last
    batch that ended and when. versions: of the tables that the plan in use is made from.
    refused_versions: those of tables that cannot be used, None where all can. failure: the code of
    the last batch if it failed, else "". dead: what `/health` says of the last batches if all of
    their records are dead letters, otherwise "". hosts: where more than so many were sent
    something, none has a series of its own.
    """

    def __init__(self, hosts: int = 0) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.running: tuple[int, float] | None = None
        self.last: tuple[int, float] | None = None
        self.versions: dict[str, int] = {}
        self.refused_versions: dict[str, int] | None = None
        self.failure = ""
        self.dead = ""
        self.dead_alone = False
        self.offsets: dict[int, int] = {}
        self.journal_waits = 0
        self._pending: float | None = None
        self._oldest: float | None = None
        self._lock = threading.Lock()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"stackcast_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"stackcast_{name}", text, labels, registry=registry)

        def histogram(
            name: str, text: str, *labels: str, buckets: tuple[float, ...] = STAGE_BUCKETS
        ) -> Histogram:
            return Histogram(f"stackcast_{name}", text, labels, buckets=buckets, registry=registry)

        self._packets = counter("packets", "Kafka records read")
        self._messages = counter("messages", "Messages in the records that were read")
        self._matched = counter("matched_messages", "Messages with at least one receiver")
        self._frames = counter("frames", "Frames passed to the sink")
        self._frame_bytes = counter("frame_bytes", "Bytes of frames passed to the sink")
        self._unicast_bytes = counter(
            "unicast_bytes",
            ("Bytes if each receiver of a notification got its own frame without a header stack"),
        )
        self._most_hosts = hosts
        self._hosts: set[str] = set()
        self._host_notifications = counter(
            "host_notifications", "Notifications sent to a host", "host"
        )
        self._host_bytes = counter(
            "host_bytes", "Bytes of frames that carry notifications to a host", "host"
        )
        self._dead = counter(
            "dead_letters",
            "Records and messages that could not be read or are not sent, by reason",
            "reason",
        )
        for reason in REASONS.values():
            self._dead.labels(reason)
        self._batches = counter("batches", "Batches that were delivered")
        self._again = counter("batches_retried", "Batches that were repeated after an interruption")
        self._failures = counter("batch_failures", "Batches that failed, by error code", "code")
        self._batch = histogram("batch_seconds", "Duration of a batch")
        self._stage = histogram("batch_stage_seconds", "Duration of a stage of a batch", "stage")
        running = gauge(
            "batch_running_seconds", "Duration of the batch in progress; 0 if there is none"
        )
        running.set_function(lambda: self.running_for(time.monotonic()))
        self._last = gauge("last_batch_id", "Number of the last delivered batch")
        self._last_at = gauge(
            "last_batch_timestamp_seconds", "Time at which the last delivered batch ended"
        )
        self._spark = gauge(
            "spark_stage_seconds",
            "Duration of a stage of the last batch as reported by Spark",
            "stage",
        )

        self._plan = histogram(
            "plan_seconds", "Duration of computing a plan from the tables", buckets=PLAN_BUCKETS
        )
        self._rules = gauge("rules", "Live rules")
        self._rejected = gauge("rejected_rules", "Rejected rules, by code", "code")
        self._versions = gauge("table_version", "Table version in use", "table")
        self._refused = gauge("versions_rejected", "1 while the newest tables cannot be used")
        self._unknown = gauge(
            "header_stacks_pending", "Receiver sets whose header stacks are not computed yet"
        )
        pending = gauge(
            "plan_pending_seconds",
            "Time that newer tables have been waiting to become live; 0 if there are none",
        )
        pending.set_function(lambda: self.pending_for(time.monotonic()))

        self._journal = gauge(
            "journal_reports", "Batches that are not in ledger and statistics yet"
        )
        oldest = gauge(
            "journal_oldest_seconds",
            "Age of the oldest batch that is not in the ledger yet; 0 if there is none",
        )
        oldest.set_function(lambda: self.journal_age(time.monotonic()))

        self._lag = gauge("lag_records", "Records in the topic that are not sent yet", "partition")
        self._margin = gauge(
            "retention_margin_records",
            "Records between the first one that Kafka still has and the next one to read",
            "partition",
        )
        self._broker = gauge("broker_reachable", "1 if the broker answered the last request")
        self._free = gauge("disk_free_bytes", "Free bytes on the disk of a folder", "place")
        self._size = gauge("disk_size_bytes", "Size of the disk of a folder", "place")

    @contextmanager
    def batch(self, batch_id: int) -> Iterator[None]:
        """Around all of a micro-batch; an error is counted by its code and goes on."""
        began = self.began(batch_id)
        try:
            yield
        except Exception as error:
            self.failed(error)
            raise
        else:
            self.recorded(batch_id, time.monotonic() - began)
        finally:
            self.ended()

    def began(self, batch_id: int) -> float:
        """A batch is in progress; returns since when."""
        began = time.monotonic()
        self.running = batch_id, began
        return began

    def ended(self) -> None:
        """None is in progress."""
        self.running = None

    def recorded(self, batch_id: int, seconds: float) -> None:
        """A batch is done, which took so long."""
        self.failure = ""
        self.last = batch_id, time.monotonic()
        self._batches.inc()
        self._batch.observe(seconds)
        self._last.set(batch_id)
        self._last_at.set_to_current_time()

    def failed(self, error: BaseException) -> None:
        """A batch ended in this error; one that a stop asked for is none."""
        if type(error).__name__ == "StopAsked":
            return
        code = getattr(error, "code", None)
        found = _CODE.search(str(error))
        self.failure = code if isinstance(code, str) else found[1] if found else "UNKNOWN"
        self._failures.labels(self.failure).inc()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Around one step of a batch; ``name`` is one of a few fixed words."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._stage.labels(name).observe(time.monotonic() - began)

    def ran_again(self) -> None:
        """The batch in progress had been begun by an earlier run."""
        self._again.inc()

    def delivered(self, report: BatchReport, versions: Mapping[str, int]) -> None:
        """Takes what all tasks of a batch reported, and the versions that it was made from."""
        self.counted(
            report.total("packets"),
            report.total("messages"),
            report.total("matched"),
            report.total("frames"),
            report.total("bytes"),
            in_unicast(report.publications()),
            report.reasons,
        )
        if self._most_hosts:
            self._by_host(report.subscriber_columns)
        self.in_use(versions)

    def _by_host(self, sent: Mapping[str, Sequence[Any]]) -> None:
        self._hosts.update(sent["subscriber"])
        if len(self._hosts) > self._most_hosts:
            self._most_hosts = 0
            self._host_notifications.clear()
            self._host_bytes.clear()
            return
        columns = (sent[name] for name in ("subscriber", "notifications", "bytes"))
        for host, notifications, size in zip(*columns, strict=True):
            self._host_notifications.labels(host).inc(notifications)
            self._host_bytes.labels(host).inc(size)

    def counted(
        self,
        packets: int,
        messages: int,
        matched: int,
        frames: int,
        frame_bytes: int,
        unicast_bytes: int,
        dead_letters: Mapping[str, int],
    ) -> None:
        """Let the counters grow by what was sent since."""
        self._packets.inc(packets)
        self._messages.inc(messages)
        self._matched.inc(matched)
        self._frames.inc(frames)
        self._frame_bytes.inc(frame_bytes)
        self._unicast_bytes.inc(unicast_bytes)
        for reason, count in dead_letters.items():
            self._dead.labels(reason).inc(count)

    def dead_records(self, text: str, alone: bool = False) -> None:
        """Note that all records of the last batches are dead letters, or with "" that they are not.

        Args:
            text: what `/health` says of it.
            alone: whether it was a single record.
        """
        self.dead, self.dead_alone = text, alone

    def in_use(self, versions: Mapping[str, int]) -> None:
        """Versions that batches are made from by now."""
        self.versions = dict(versions)
        for table, version in versions.items():
            self._versions.labels(table).set(version)

    def planned(self, plan: Compilation, seconds: float) -> None:
        """A plan of tables is in use from now on; it took so long to make."""
        self._plan.observe(seconds)
        self._rules.set(len(plan.rules))
        counts: dict[str, int] = {}
        for rejection in plan.rejections:
            counts[rejection.code] = counts.get(rejection.code, 0) + 1
        with self._lock:
            self._rejected.clear()
            for code, count in counts.items():
                self._rejected.labels(code).set(count)
        self.in_use(plan.versions)
        self.refused(None)

    def refused(self, versions: Mapping[str, int] | None) -> None:
        """Tables of these versions cannot be used, and those before stay live; None: all can."""
        self.refused_versions = None if versions is None else dict(versions)
        self._refused.set(versions is not None)

    def stacks_unknown(self, sets: int) -> None:
        """So many receiver sets of the plan have no header stack yet."""
        self._unknown.set(sets)

    def pending(self, since: float | None) -> None:
        """Newer tables were seen at ``time.monotonic`` and are not live; None: none are.

        The first time that they were seen counts.
        """
        if since is None or self._pending is None:
            self._pending = since

    def pending_for(self, now: float) -> float:
        """Seconds that newer tables wait to be live."""
        since = self._pending
        return 0.0 if since is None else max(0.0, now - since)

    def running_for(self, now: float) -> float:
        """Seconds that the batch in progress runs."""
        running = self.running
        return 0.0 if running is None else max(0.0, now - running[1])

    def journal(self, waiting: int, oldest_seconds: float = 0.0) -> None:
        """So many batches are not in ledger and statistics yet, the oldest for so long."""
        self.journal_waits = waiting
        self._journal.set(waiting)
        # It grows by itself: who writes them may hang.
        self._oldest = time.monotonic() - oldest_seconds if waiting else None

    def journal_age(self, now: float) -> float:
        """Seconds that the oldest batch waits for ledger and statistics."""
        since = self._oldest
        return 0.0 if since is None else max(0.0, now - since)

    def processed(self, offsets: Mapping[int, int]) -> None:
        """By partition, the offset after the last record whose frames were handed over."""
        self.offsets |= offsets

    def spans(self, spans: Mapping[int, tuple[int, int]], start: Mapping[int, int]) -> None:
        """Takes what a topic holds: by partition the first offset that is there, and the end.

        ``start``: where reading begins in partitions of which nothing was processed yet.
        """
        self._broker.set(1)
        for partition, (first, end) in spans.items():
            at = self.offsets.get(partition, start.get(partition))
            if at is not None:
                self._lag.labels(partition).set(max(0, end - at))
                self._margin.labels(partition).set(at - first)

    def broker_gone(self) -> None:
        """The broker did not answer."""
        self._broker.set(0)

    def spark_stages(self, milliseconds: Mapping[str, float]) -> None:
        """``durationMs`` of Spark's last progress."""
        for stage, duration in milliseconds.items():
            self._spark.labels(stage).set(duration / 1000)

    def disk(self, place: str, free: int, size: int) -> None:
        """Bytes free and in all on the disk of a place."""
        self._free.labels(place).set(free)
        self._size.labels(place).set(size)


def in_unicast(publications: Iterable[Mapping[str, Any]]) -> int:
    """Bytes at the publisher's link if each receiver got an Ethernet frame of its own.

    ``publications``: rows of `publication_statistics`.
    """
    return sum(
        len(row["receivers"]) * (row["datagram_bytes"] + ETHERNET * row["notifications"])
        for row in publications
    )
