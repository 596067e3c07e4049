"""Metrics of a stream for Prometheus: counters, gauges and histograms named ``stackcast_*``.

They are updated once per batch, per plan and per poll of the monitor, and never per event. No label
has a value per rule. A label has a value per host only if there are few hosts; all other labels are
partitions, tables, stages, reasons and error codes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.stream.health import BatchTime, StreamStatus
from stackcast.jobs.adapters.stream.report import BatchReport
from stackcast.udfs.delivery.plan import Compilation
from stackcast.udfs.messages.readers import REASONS
from stackcast.udfs.stop_request import StopAsked

_ETHERNET_BYTES = 14
_CODE = re.compile(r"\b([A-Z][A-Z0-9]+\.[A-Z][A-Z0-9_]+)\b")


class _Metric(NamedTuple):
    """Declaration of a metric; its exported name starts with ``stackcast_``."""

    name: str
    kind: type[Counter | Gauge | Histogram]
    help: str
    label: str = ""
    buckets: tuple[float, ...] = ()


#: A stage may be a look at a folder or the pass over all records.
_STAGE_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
_PLAN_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)

_TRAFFIC = (
    _Metric("packets", Counter, "Kafka records read"),
    _Metric("messages", Counter, "Messages in the records that were read"),
    _Metric("matched_messages", Counter, "Messages with at least one receiver"),
    _Metric("frames", Counter, "Frames passed to the sink"),
    _Metric("frame_bytes", Counter, "Bytes of frames passed to the sink"),
    _Metric(
        "unicast_bytes",
        Counter,
        "Bytes if each receiver of a notification got its own frame without a header stack",
    ),
    _Metric(
        "dead_letters",
        Counter,
        "Records and messages that could not be read or are not sent, by reason",
        "reason",
    ),
)
_HOSTS = (
    _Metric("host_notifications", Counter, "Notifications sent to a host", "host"),
    _Metric("host_bytes", Counter, "Bytes of frames that carry notifications to a host", "host"),
)
_BATCHES = (
    _Metric("batches", Counter, "Batches that were delivered"),
    _Metric("batches_retried", Counter, "Batches that were repeated after an interruption"),
    _Metric("batch_failures", Counter, "Batches that failed, by error code", "code"),
    _Metric("batch_seconds", Histogram, "Duration of a batch", buckets=_STAGE_BUCKETS),
    _Metric(
        "batch_stage_seconds",
        Histogram,
        "Duration of a stage of a batch",
        "stage",
        _STAGE_BUCKETS,
    ),
    _Metric(
        "batch_running_seconds", Gauge, "Duration of the batch in progress; 0 if there is none"
    ),
    _Metric("last_batch_id", Gauge, "Number of the last delivered batch"),
    _Metric("last_batch_timestamp_seconds", Gauge, "Time at which the last delivered batch ended"),
    _Metric(
        "spark_stage_seconds",
        Gauge,
        "Duration of a stage of the last batch, from durationMs of its progress report",
        "stage",
    ),
    _Metric(
        "input_rows_per_second", Gauge, "inputRowsPerSecond of the last batch's progress report"
    ),
    _Metric(
        "processed_rows_per_second",
        Gauge,
        "processedRowsPerSecond of the last batch's progress report",
    ),
    _Metric("journal_reports", Gauge, "Batches that are not in ledger and statistics yet"),
    _Metric(
        "journal_oldest_seconds",
        Gauge,
        "Age of the oldest batch that is not in the ledger yet; 0 if there is none",
    ),
)
_TABLES = (
    _Metric(
        "plan_seconds",
        Histogram,
        "Duration of computing a plan from the tables",
        buckets=_PLAN_BUCKETS,
    ),
    _Metric("rules", Gauge, "Live rules"),
    _Metric("rejected_rules", Gauge, "Rejected rules, by code", "code"),
    _Metric("table_version", Gauge, "Table version in use", "table"),
    _Metric("versions_rejected", Gauge, "1 while the newest tables cannot be used"),
    _Metric(
        "header_stacks_pending",
        Gauge,
        "Receiver sets whose header stacks are not computed yet",
    ),
    _Metric(
        "plan_pending_seconds",
        Gauge,
        "Time that newer tables have been waiting to become live; 0 if there are none",
    ),
)
_OUTSIDE = (
    _Metric("lag_records", Gauge, "Records in the topic that are not sent yet", "partition"),
    _Metric(
        "retention_margin_records",
        Gauge,
        "Records between the first one that Kafka still has and the next one to read",
        "partition",
    ),
    _Metric("broker_reachable", Gauge, "1 if the broker answered the last request"),
    _Metric("disk_free_bytes", Gauge, "Free bytes on the disk of a folder", "place"),
    _Metric("disk_size_bytes", Gauge, "Size of the disk of a folder", "place"),
)


class StreamMetrics:
    """Metrics and status of one stream. All methods may be called by any thread.

    Args:
        hosts: maximum number of hosts with time series of their own; if the stream has sent
            notifications to more hosts, no host has any.
        clock: clock of the driver.

    Attributes:
        registry: the metrics, in a registry of their own.
        status: the same facts for `/health`.
    """

    def __init__(self, hosts: int = 0, clock: Clock = SYSTEM_CLOCK) -> None:
        self.registry = CollectorRegistry()
        self.status = StreamStatus()
        self._clock = clock
        self._lock = threading.Lock()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in (*_TRAFFIC, *_HOSTS, *_BATCHES, *_TABLES, *_OUTSIDE):
            self._register(metric)
        self._hosts = _HostCounters(hosts, *(self._counters[metric.name] for metric in _HOSTS))
        for reason in REASONS.values():
            self._counters["dead_letters"].labels(reason)
        self._measure_age("batch_running_seconds", self.status.running_for)
        self._measure_age("plan_pending_seconds", self.status.pending_for)
        self._measure_age("journal_oldest_seconds", self.status.journal_age)

    def _measure_age(self, name: str, age: Callable[[float], float]) -> None:
        """Compute a gauge whenever it is read."""
        self._gauges[name].set_function(lambda: age(self._clock.monotonic()))

    def _register(self, metric: _Metric) -> None:
        name, labels = f"stackcast_{metric.name}", [metric.label] if metric.label else []
        if metric.kind is Counter:
            self._counters[metric.name] = Counter(name, metric.help, labels, registry=self.registry)
        elif metric.kind is Gauge:
            self._gauges[metric.name] = Gauge(name, metric.help, labels, registry=self.registry)
        else:
            self._histograms[metric.name] = Histogram(
                name, metric.help, labels, registry=self.registry, buckets=metric.buckets
            )

    # Batches

    @contextmanager
    def batch(self, batch_id: int) -> Iterator[None]:
        """Measure a micro-batch; an error of the block is counted by its code and raised again."""
        start = self.began(batch_id)
        try:
            yield
        except Exception as error:
            self.failed(error)
            raise
        else:
            self.recorded(batch_id, self._clock.monotonic() - start)
        finally:
            self.ended()

    def began(self, batch_id: int) -> float:
        """Set the batch in progress, and return its start by the monotonic clock."""
        self.status.running = BatchTime(batch_id, self._clock.monotonic())
        return self.status.running.time

    def ended(self) -> None:
        """Note that no batch is in progress."""
        self.status.running = None

    def recorded(self, batch_id: int, seconds: float) -> None:
        """Count a batch that was delivered and recorded.

        Args:
            batch_id: number of the batch.
            seconds: its duration.
        """
        self.status.failure = ""
        self.status.last = BatchTime(batch_id, self._clock.monotonic())
        self._counters["batches"].inc()
        self._histograms["batch_seconds"].observe(seconds)
        self._gauges["last_batch_id"].set(batch_id)
        self._gauges["last_batch_timestamp_seconds"].set(self._clock.wall_time())

    def failed(self, error: BaseException) -> None:
        """Count a batch that ended in an error, unless a requested stop was the cause."""
        if isinstance(error, StopAsked):
            return
        code, match = getattr(error, "code", None), _CODE.search(str(error))
        if not isinstance(code, str):
            code = match[1] if match else "UNKNOWN"
        self.status.failure = code
        self._counters["batch_failures"].labels(code).inc()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage of a batch; the name is one of a few fixed words."""
        start = self._clock.monotonic()
        try:
            yield
        finally:
            seconds = self._clock.monotonic() - start
            self._histograms["batch_stage_seconds"].labels(name).observe(seconds)

    def ran_again(self) -> None:
        """Count a batch that an earlier run had started."""
        self._counters["batches_retried"].inc()

    def progress(self, report: Mapping[str, Any]) -> None:
        """Export the durations and rates of a progress report (``StreamingQueryProgress``)."""
        for stage, milliseconds in report["durationMs"].items():
            self._gauges["spark_stage_seconds"].labels(stage).set(milliseconds / 1000)
        self._gauges["input_rows_per_second"].set(report["inputRowsPerSecond"])
        self._gauges["processed_rows_per_second"].set(report["processedRowsPerSecond"])

    def journal(self, batches: int, oldest_seconds: float = 0.0) -> None:
        """Set how many batches are not in ledger and statistics yet.

        Args:
            batches: number of these batches.
            oldest_seconds: age of the oldest one. It grows by itself, because the thread that
                writes the tables may hang.
        """
        self.status.journal_batches = batches
        since = self._clock.monotonic() - oldest_seconds
        self.status.journal_since = since if batches else None
        self._gauges["journal_reports"].set(batches)

    # Traffic

    def delivered(self, report: BatchReport, versions: Mapping[str, int]) -> None:
        """Add what the tasks of a batch reported.

        Args:
            report: sums over the tasks.
            versions: versions of the tables that the batch used.
        """
        counts = {
            "packets": report.total("packets"),
            "messages": report.total("messages"),
            "matched_messages": report.total("matched"),
            "frames": report.total("frames"),
            "frame_bytes": report.total("bytes"),
            "unicast_bytes": unicast_bytes(report.publications()),
        }
        for name, count in counts.items():
            self._counters[name].inc(count)
        for reason, count in report.reasons.items():
            self._counters["dead_letters"].labels(reason).inc(count)
        self._hosts.add(report)
        self.in_use(versions)

    def dead_records(self, text: str, single: bool = False) -> None:
        """Set what `/health` reports of batches in which all records are dead letters.

        Args:
            text: description of these batches; empty if there are none.
            single: whether they contain only one record.
        """
        self.status.dead, self.status.single_dead_record = text, single

    def processed(self, offsets: Mapping[int, int]) -> None:
        """Set, by partition, the offset after the last record that was sent."""
        self.status.offsets |= offsets

    # Rules and tables

    def planned(self, compilation: Compilation, seconds: float) -> None:
        """Export the rules of a new plan, and the seconds in which it was made."""
        self._histograms["plan_seconds"].observe(seconds)
        self._gauges["rules"].set(len(compilation.rules))
        counts: dict[str, int] = {}
        for rejection in compilation.rejections:
            counts[rejection.code] = counts.get(rejection.code, 0) + 1
        with self._lock:
            rejected = self._gauges["rejected_rules"]
            rejected.clear()
            for code, count in counts.items():
                rejected.labels(code).set(count)
        self.in_use(compilation.versions)
        self.refused(None)

    def in_use(self, versions: Mapping[str, int]) -> None:
        """Set the versions of the tables from which batches are planned."""
        self.status.versions = dict(versions)
        for table, version in versions.items():
            self._gauges["table_version"].labels(table).set(version)

    def refused(self, versions: Mapping[str, int] | None) -> None:
        """Set the versions of tables that cannot be used, or None if all can be used."""
        self.status.refused_versions = None if versions is None else dict(versions)
        self._gauges["versions_rejected"].set(versions is not None)

    def stacks_unknown(self, sets: int) -> None:
        """Set the number of receiver sets whose header stacks are not computed yet."""
        self._gauges["header_stacks_pending"].set(sets)

    def pending(self, since: float | None) -> None:
        """Note that newer tables are not live yet, or with None that there are none.

        Args:
            since: when they were seen, by the monotonic clock. Only the first time counts.
        """
        if since is None or self.status.pending_since is None:
            self.status.pending_since = since

    # Kafka and disks

    def spans(self, spans: Mapping[int, tuple[int, int]], start: Mapping[int, int]) -> None:
        """Compute lag and retention margin from the offsets of the topic.

        Args:
            spans: by partition, the first offset that Kafka still has, and the end.
            start: by partition, the offset at which the stream starts to read.
        """
        self._gauges["broker_reachable"].set(1)
        positions = {**start, **self.status.offsets}
        for partition, (first, end) in spans.items():
            if (position := positions.get(partition)) is not None:
                self._gauges["lag_records"].labels(partition).set(max(0, end - position))
                self._gauges["retention_margin_records"].labels(partition).set(position - first)

    def broker_gone(self) -> None:
        """Note that the broker did not answer."""
        self._gauges["broker_reachable"].set(0)

    def disk(self, place: str, free: int, size: int) -> None:
        """Set the free bytes and the size of the disk of a place."""
        self._gauges["disk_free_bytes"].labels(place).set(free)
        self._gauges["disk_size_bytes"].labels(place).set(size)


class _HostCounters:
    """Counters with a time series per host, as long as there are few hosts."""

    def __init__(self, most_hosts: int, notifications: Counter, octets: Counter) -> None:
        self._most_hosts = most_hosts
        self._notifications, self._bytes = notifications, octets
        self._names: set[str] = set()

    def add(self, report: BatchReport) -> None:
        if not self._most_hosts:
            return
        sent = report.subscriber_columns
        self._names.update(sent["subscriber"])
        if len(self._names) > self._most_hosts:
            self._most_hosts = 0
            self._notifications.clear()
            self._bytes.clear()
            return
        columns: Iterable[Sequence[Any]] = (
            sent[name] for name in ("subscriber", "notifications", "bytes")
        )
        for host, notifications, size in zip(*columns, strict=True):
            self._notifications.labels(host).inc(notifications)
            self._bytes.labels(host).inc(size)


def unicast_bytes(publications: Iterable[Mapping[str, Any]]) -> int:
    """Return the bytes on the publisher's link if each receiver got its own Ethernet frames.

    Args:
        publications: rows of the table ``publication_statistics``.
    """
    return sum(
        len(row["receivers"]) * (row["datagram_bytes"] + _ETHERNET_BYTES * row["notifications"])
        for row in publications
    )
