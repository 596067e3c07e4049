"""Progress reports of a stream in real time, in the format of Spark's ``StreamingQueryProgress``.

A stream in real time is not a ``StreamingQuery``, but it reports the same events with the same
fields, so code that monitors Structured Streaming can read them. All events are JSON objects, which
the method ``fromJson`` of the corresponding class of pyspark accepts.
"""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.stream.report import BatchReport

log = logging.getLogger(__name__)

Event = Mapping[str, Any]

#: Number of recent reports that are kept: Spark's default for ``numRecentProgressUpdates``.
_RECENT = 100
#: Minimum interval between two idle events, in seconds, which is also Spark's.
IDLE_SECONDS = 10.0


class QueryListener(Protocol):
    """The methods of Spark's ``StreamingQueryListener``. Events are JSON objects."""

    def onQueryStarted(self, event: Event) -> None:  # noqa: N802 - names of Spark
        """Handle the start of a stream: ``id``, ``runId``, ``name``, ``timestamp``."""

    def onQueryProgress(self, event: Event) -> None:  # noqa: N802
        """Handle the report of a batch, which is in ``progress``."""

    def onQueryIdle(self, event: Event) -> None:  # noqa: N802
        """Handle a time without records: ``id``, ``runId``, ``timestamp``."""

    def onQueryTerminated(self, event: Event) -> None:  # noqa: N802
        """Handle the end of a stream: ``id``, ``runId``, ``exception`` and its code."""


class RecordedBatch(NamedTuple):
    """A batch that is on record.

    Attributes:
        number: number of the batch.
        start: when it started.
        seconds: its duration, without the time to record it.
        stages: duration of its stages in seconds, by name.
        report: sums over the reports of its tasks.
        ends: by partition, the offset at which the next batch starts.
    """

    number: int
    start: dt.datetime
    seconds: float
    stages: Mapping[str, float]
    report: BatchReport
    ends: Mapping[int, int]


class ProgressReports:
    """Reports the progress of one run of a stream to listeners.

    Args:
        query_id: UUID of the query, which its checkpoint contains.
        topic: name of the topic, which is also the name of the query.
        sink: name of the sink.
        listeners: listeners of the run. An error of a listener does not affect the stream.
        parse: converts the JSON object of a report to what `last` and `recent` return.
        clock: clock of the driver.
    """

    def __init__(
        self,
        query_id: str,
        topic: str,
        sink: str,
        listeners: Sequence[QueryListener] = (),
        parse: Callable[[dict[str, Any]], Mapping[str, Any]] = dict,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._topic = topic
        self._sink = sink
        self._listeners = listeners
        self._parse = parse
        self._clock = clock
        self._run = {"id": query_id, "runId": str(uuid.uuid4())}
        self._reports: deque[Mapping[str, Any]] = deque(maxlen=_RECENT)
        self._latest: dict[int, int] = {}
        self._previous_start: dt.datetime | None = None
        self._idle_until = clock.monotonic() + IDLE_SECONDS

    @property
    def last(self) -> Mapping[str, Any] | None:
        """The report of the last batch; None before the first one."""
        return self._reports[-1] if self._reports else None

    @property
    def recent(self) -> list[Mapping[str, Any]]:
        """The reports of the last batches, oldest first."""
        return list(self._reports)

    def started(self) -> None:
        """Report the start of the stream."""
        event = {"name": self._topic, "timestamp": _text(utc(self._clock)), "jobTags": []}
        self._notify(lambda listener: listener.onQueryStarted(self._run | event))

    def topic_grew(self, ends: Mapping[int, int]) -> None:
        """Set, by partition, the end of the topic. It may be a few seconds old."""
        self._latest = dict(ends)

    def recorded(self, batch: RecordedBatch) -> None:
        """Report the progress of a batch."""
        progress = self._progress(batch)
        self._reports.append(self._parse(progress))
        self._previous_start = batch.start
        self._idle_until = self._clock.monotonic() + IDLE_SECONDS
        self._notify(lambda listener: listener.onQueryProgress({"progress": progress}))

    def idle(self) -> None:
        """Report that no records arrive, at most every `IDLE_SECONDS`."""
        now = self._clock.monotonic()
        if now < self._idle_until:
            return
        self._idle_until = now + IDLE_SECONDS
        event = self._run | {"timestamp": _text(utc(self._clock))}
        self._notify(lambda listener: listener.onQueryIdle(event))

    def terminated(self, error: BaseException | None) -> None:
        """Report the end of the stream, and the error that has ended it."""
        text = None if error is None else one_line(error)
        event = self._run | {
            "exception": text,
            "errorClassOnException": getattr(error, "code", None),
        }
        self._notify(lambda listener: listener.onQueryTerminated(event))

    def _notify(self, call: Callable[[QueryListener], None]) -> None:
        for listener in self._listeners:
            try:
                call(listener)
            except Exception as error:
                log.warning("%s failed: %s", type(listener).__name__, one_line(error))

    def _progress(self, batch: RecordedBatch) -> dict[str, Any]:
        """Return the JSON object of a batch; see `StreamingQueryProgress.fromJson`."""
        rows = batch.report.total("packets")
        interval = 0.0
        if self._previous_start is not None:
            interval = (batch.start - self._previous_start).total_seconds()
        counts = {
            "numInputRows": rows,
            "inputRowsPerSecond": _rate(rows, interval),
            "processedRowsPerSecond": _rate(rows, batch.seconds),
        }
        stages = {"triggerExecution": batch.seconds, **batch.stages}
        return {
            **self._run,
            "name": self._topic,
            "timestamp": _text(batch.start),
            "batchId": batch.number,
            "batchDuration": _milliseconds(batch.seconds),
            **counts,
            "durationMs": {name: _milliseconds(stages[name]) for name in sorted(stages)},
            # Spark's Python listeners cannot read reports without these two fields.
            "eventTime": {},
            "observedMetrics": {},
            "stateOperators": [],
            "sources": [self._source(batch) | counts],
            "sink": self._sink_progress(batch.report),
        }

    def _source(self, batch: RecordedBatch) -> dict[str, Any]:
        starts = {row["partition"]: row["from_offset"] for row in batch.report.partitions}
        ends = batch.ends
        latest = {p: max(end, self._latest.get(p, end)) for p, end in ends.items()}
        behind = [latest[p] - end for p, end in ends.items()] or [0]
        return {
            "description": f"Kafka[Subscribe[{self._topic}]]",
            "startOffset": self._offset({**ends, **starts}),
            "endOffset": self._offset(ends),
            "latestOffset": self._offset(latest),
            "metrics": {
                "minOffsetsBehindLatest": str(min(behind)),
                "maxOffsetsBehindLatest": str(max(behind)),
                "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
            },
        }

    def _offset(self, offsets: Mapping[int, int]) -> dict[str, dict[str, int]]:
        """Return offsets in the format of Spark's Kafka source."""
        return {self._topic: {str(p): offset for p, offset in sorted(offsets.items())}}

    def _sink_progress(self, report: BatchReport) -> dict[str, Any]:
        metrics = {
            "messages": report.total("messages"),
            "matchedMessages": report.total("matched"),
            "frameBytes": report.total("bytes"),
            "deadLetters": report.dead_letters,
        }
        return {
            "description": f"Stackcast[{self._sink}]",
            "numOutputRows": report.total("frames"),
            "metrics": {name: str(value) for name, value in metrics.items()},
        }


def _text(time: dt.datetime) -> str:
    """Return a time as Spark writes it, such as ``2026-11-30T22:40:00.316Z``."""
    return time.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _rate(rows: int, seconds: float) -> float:
    return round(rows / seconds, 1) if seconds > 0 else 0.0
