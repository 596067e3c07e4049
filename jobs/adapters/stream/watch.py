"""Monitoring of a running stream: lag, broker, open transactions and disks.

A background thread asks Spark and Kafka every few seconds and records what it observed. The health
of the stream is computed from these records and from those of the batches, so neither the stream
nor `/health` ever waits for an answer.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlparse

from prometheus_client.process_collector import ProcessCollector

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.running_stream import RunningStream
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Poll, Threads
from stackcast.jobs.adapters.stream.health import Observation, health_of
from stackcast.jobs.adapters.stream.metrics import StreamMetrics

log = logging.getLogger(__name__)

#: Interval between two polls, in seconds.
POLL_SECONDS = 5.0
#: Interval between two polls if no metrics are served. They only look for reasons to warn.
WARN_SECONDS = 30.0
#: Age at which an open transaction counts as hanging. By default, Kafka ends one after a minute.
TRANSACTION_SECONDS = 90.0
#: Share of free space below which a disk is almost full.
LEAST_FREE = 0.05
#: Maximum wait for a poll in progress at the end, in seconds: its broker may be gone.
CLOSE_SECONDS = 1.0

#: Returns the number of slots if each partition needs its own slot.
Slots = Callable[[], int]


class WatchedTopic(Protocol):
    """The topic of a stream, as far as its monitoring needs it."""

    def spans(self) -> dict[int, tuple[int, int]]:
        """Return, by partition, the first offset that Kafka still has, and the end."""

    def held_back(self) -> dict[int, tuple[int, int]]:
        """Return, by partition, the offset of an open transaction, and the end."""


class StreamWatch:
    """Metrics, health and their server for one stream.

    If ``spark.stackcast.metrics.port`` is 0, nothing is served, but the stream still logs warnings
    and counts in `metrics`.

    Args:
        settings: settings of the stream.
        topic: the topic that the stream reads.
        places: locations of the tables, the checkpoint and the files of the sink.
        start_offsets: returns, by partition, the offsets at which the checkpoint continues; empty
            if it is new.
        standstill: returns for how many seconds the driver did not respond.
        threads: threads of the driver.
    """

    def __init__(
        self,
        settings: Settings,
        topic: WatchedTopic,
        places: Mapping[str, str],
        start_offsets: Callable[[], Mapping[int, int]],
        standstill: Callable[[], float] = lambda: 0.0,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self.metrics = StreamMetrics(settings.metrics_hosts, threads.clock)
        self._settings = settings
        self._topic = topic
        self._places = places
        self._standstill = standstill
        self._threads = threads
        self._clock = threads.clock
        self._lag = _Lag(settings, start_offsets, self.metrics)
        self._slowness = _Slowness(settings.topic, topic)
        self._observation: Observation | None = None
        self._resources = ExitStack()

    def open(self) -> None:
        """Start to serve metrics and health.

        Raises:
            SettingsError: PORT_TAKEN, BAD_HOST.
        """
        ProcessCollector(registry=self.metrics.registry)
        self._resources.enter_context(serve(self._settings, self.metrics.registry, self.health))

    def attach(self, query: RunningStream, slots: Slots | None = None) -> None:
        """Start to monitor a running query.

        Args:
            query: the query.
            slots: returns the number of slots of Spark, if the query needs one per partition.
        """
        served = self._settings.metrics_port != 0
        reported = ""

        def poll() -> float:
            nonlocal reported
            try:
                self._poll(query, slots)
                reported = ""
            except Exception as error:
                # The stream must not end, and /health reports that Spark does not answer.
                if reported != (reported := one_line(error)):
                    log.warning("the stream could not be monitored: %s", reported)
            return POLL_SECONDS if served else WARN_SECONDS

        polls = self._threads.poll("stream-watch", poll, 0.0 if served else WARN_SECONDS)
        self._resources.callback(_close, polls)

    def close(self) -> None:
        """Stop monitoring and serving."""
        self._resources.close()

    def health(self) -> Health:
        """Return the current health of the stream."""
        health = health_of(self._observation, self.metrics.status, self._clock.monotonic())
        if seconds := self._standstill():
            problem = f"the driver did not respond for {seconds:.0f} s and stops"
            health = replace(health, problems=(*health.problems, problem))
        return health

    def _poll(self, query: RunningStream, slots: Slots | None) -> None:
        start = self._clock.monotonic()
        active = bool(query.isActive)
        if active and (progress := query.lastProgress):
            self.metrics.progress(progress)
        previous, error = self._observation, ""
        lag = {} if previous is None else previous.lag
        slow = () if previous is None else previous.slow
        try:
            spans = self._topic.spans()
            lag = self._lag.measure(spans)
            slow = self._slowness.find(self._clock.monotonic(), slots, len(spans))
        except Exception as failure:
            error = one_line(failure)
            # Until the first answer, the time is counted from the first question.
            broker_time = start if previous is None else previous.broker_time
            self.metrics.broker_gone()
        else:
            broker_time = self._clock.monotonic()
        full = self.full_disks()
        self._observation = Observation(
            self._clock.monotonic(), active, broker_time, error, lag, full, slow
        )

    def full_disks(self) -> tuple[str, ...]:
        """Measure the disks of this machine, and return the places that are almost full."""
        full = []
        for place, location in self._places.items():
            folder = local_folder(location)
            if folder is None:
                continue
            usage = shutil.disk_usage(folder)
            self.metrics.disk(place, usage.free, usage.total)
            if usage.free < LEAST_FREE * usage.total:
                full.append(place)
        return tuple(full)


def _close(poll: Poll) -> None:
    with suppress(Exception):
        poll.close(CLOSE_SECONDS)


class _Lag:
    """Number of records that the stream has not sent yet."""

    def __init__(
        self,
        settings: Settings,
        start_offsets: Callable[[], Mapping[int, int]],
        metrics: StreamMetrics,
    ) -> None:
        self._from_first = settings.starting_offsets == "earliest"
        self._read_start = start_offsets
        self._start: Mapping[int, int] | None = None
        self._metrics = metrics

    def measure(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        if self._start is None:
            self._start = self._read_start()
        start = dict(self._start)
        if self._from_first:
            start = {p: first for p, (first, _) in spans.items()} | start
        self._metrics.spans(spans, start)
        positions = start | self._metrics.status.offsets
        return {
            partition: max(0, end - positions[partition])
            for partition, (_, end) in sorted(spans.items())
            if partition in positions
        }


class _Slowness:
    """Reasons why a stream is slow or partly stopped. A new reason is logged once."""

    def __init__(self, name: str, topic: WatchedTopic) -> None:
        self._name = name
        self._topic = topic
        #: By partition, the first offset of an open transaction, and when it was first seen.
        self._transactions: dict[int, tuple[int, float]] = {}
        self._reasons: tuple[str, ...] = ()

    def find(self, time: float, slots: Slots | None, partitions: int) -> tuple[str, ...]:
        reasons = [*self._hanging_transactions(time), *self._missing_slots(slots, partitions)]
        for reason in reasons:
            if reason not in self._reasons:
                log.warning("%s", reason)
        self._reasons = tuple(reasons)
        return self._reasons

    def _hanging_transactions(self, time: float) -> list[str]:
        previous = self._transactions
        self._transactions = {
            partition: previous[partition]
            if previous.get(partition, (-1, 0.0))[0] == offset
            else (offset, time)
            for partition, (offset, _) in self._topic.held_back().items()
        }
        return [
            f"an open transaction holds back partition {partition} of {self._name} at offset "
            f"{offset}: find it with kafka-transactions.sh find-hanging, and abort it with "
            "kafka-transactions.sh abort"
            for partition, (offset, since) in sorted(self._transactions.items())
            if time - since > TRANSACTION_SECONDS
        ]

    def _missing_slots(self, count_slots: Slots | None, partitions: int) -> list[str]:
        slots = 0 if count_slots is None else count_slots()
        if not 0 < slots < partitions:
            return []
        return [
            f"{self._name} has {partitions} partitions, but Spark has only {slots} slots, so "
            "partitions wait for each other in real-time mode: give the stream one core per "
            "partition"
        ]


def local_folder(place: str) -> Path | None:
    """Return the existing folder of this machine that contains a place, or will contain it.

    Args:
        place: path, URI or name of a schema.

    Returns:
        The folder; None if the place is not on this machine.
    """
    parts = urlparse(place)
    if parts.scheme not in ("", "file") or ("/" not in place and "." in place):
        return None
    path = Path(parts.path).absolute()
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), None)
