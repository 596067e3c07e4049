"""Progress reports have the format of StreamingQueryProgress."""

from __future__ import annotations

import datetime as dt
import json
import logging
from typing import Any

import pytest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)
from virtual_time import VirtualTime

from stackcast.jobs.adapters.stream.progress_reports import (
    IDLE_SECONDS,
    ProgressReports,
    RecordedBatch,
)
from stackcast.jobs.adapters.stream.report import BatchReport
from stackcast.udfs.errors import StreamError

pytestmark = pytest.mark.unit

QUERY = "5d0b0dd4-5a1b-4b3e-9a2f-2f6c1f0f6a11"
START = dt.datetime(2026, 1, 1, 12, 30, 0, 250_000, dt.UTC)


class RecordingListener:
    """Keeps the events that it receives."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("onQuery"):
            raise AttributeError(name)
        return lambda event: self.events.append((name, json.loads(json.dumps(event))))


def batch(number: int, seconds: float, *partitions: tuple[int, int, int]) -> RecordedBatch:
    """Return a batch that read these ranges: partition, first offset, end."""
    rows = [
        {
            "kind": "partition",
            "partition": partition,
            "from_offset": first,
            "until_offset": end,
            "first_sequence": None,
            "last_sequence": None,
            "packets": end - first,
            "messages": 3 * (end - first),
            "matched": 2,
            "frames": 4,
            "bytes": 400,
        }
        for partition, first, end in partitions
    ]
    rows.append({"kind": "reason", "reason": "empty_record", "count": 5})
    start = START + dt.timedelta(seconds=number)
    stages = {"deliver": seconds, "record": 0.125}
    ends = {0: 10, 1: 20} | {partition: end for partition, _, end in partitions}
    return RecordedBatch(number, start, seconds, stages, BatchReport(rows, ()), ends)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def listener() -> RecordingListener:
    return RecordingListener()


@pytest.fixture
def reports(time: VirtualTime, listener: RecordingListener) -> ProgressReports:
    return ProgressReports(QUERY, "itch.raw", "udp", [listener], clock=time)  # type: ignore[list-item]


def test_a_report_has_exactly_the_fields_of_spark(reports: ProgressReports):
    reports.topic_grew({0: 17, 1: 90})
    reports.recorded(batch(0, 0.5, (0, 10, 16)))
    reports.recorded(batch(1, 0.25, (0, 16, 18), (1, 20, 23)))
    assert reports.recent[0]["inputRowsPerSecond"] == 0
    progress = StreamingQueryProgress.fromJson(reports.last)
    assert json.loads(progress.json) == reports.last
    assert set(reports.last) == set(progress)
    assert (progress.batchId, progress.batchDuration, progress.name) == (1, 250, "itch.raw")
    assert str(progress.id) == QUERY
    assert progress.timestamp == "2026-01-01T12:30:01.250Z"
    assert progress.numInputRows == 5
    assert (progress.inputRowsPerSecond, progress.processedRowsPerSecond) == (5, 20)
    assert progress.durationMs == {"deliver": 250, "record": 125, "triggerExecution": 250}
    assert progress.stateOperators == []
    (source,) = progress.sources
    assert json.loads(source.startOffset) == {"itch.raw": {"0": 16, "1": 20}}
    assert json.loads(source.endOffset) == {"itch.raw": {"0": 18, "1": 23}}
    # The last known end of partition 0 is older than the batch.
    assert json.loads(source.latestOffset) == {"itch.raw": {"0": 18, "1": 90}}
    assert source.numInputRows == 5
    assert source.metrics["maxOffsetsBehindLatest"] == "67"
    assert source.metrics["avgOffsetsBehindLatest"] == "33.5"
    assert progress.sink.numOutputRows == 8
    assert progress.sink.metrics == {
        "messages": "15",
        "matchedMessages": "4",
        "frameBytes": "800",
        "deadLetters": "5",
    }


def test_a_partition_without_records_keeps_its_offset(reports: ProgressReports):
    reports.recorded(batch(0, 0.5, (0, 10, 16)))
    (source,) = reports.recent[-1]["sources"]
    assert source["startOffset"] == {"itch.raw": {"0": 10, "1": 20}}
    assert source["endOffset"] == {"itch.raw": {"0": 16, "1": 20}}


def test_listeners_receive_events_that_pyspark_can_parse(
    time: VirtualTime, listener: RecordingListener, reports: ProgressReports
):
    reports.started()
    reports.recorded(batch(0, 0.5, (0, 0, 6)))
    reports.idle()
    time.sleep(IDLE_SECONDS)
    reports.idle()
    reports.idle()
    reports.terminated(StreamError("LOG_TRUNCATED", "the log ends"))
    names, events = zip(*listener.events, strict=True)
    assert names == ("onQueryStarted", "onQueryProgress", "onQueryIdle", "onQueryTerminated")
    started = QueryStartedEvent.fromJson(events[0])
    progress = QueryProgressEvent.fromJson(events[1]).progress
    idle = QueryIdleEvent.fromJson(events[2])
    terminated = QueryTerminatedEvent.fromJson(events[3])
    assert started.runId == progress.runId == idle.runId == terminated.runId
    assert started.name == "itch.raw" and str(terminated.id) == QUERY
    assert terminated.errorClassOnException == "STREAM.LOG_TRUNCATED"
    assert "the log ends" in str(terminated.exception)


def test_a_normal_end_has_no_exception(listener: RecordingListener, reports: ProgressReports):
    reports.terminated(None)
    terminated = QueryTerminatedEvent.fromJson(listener.events[0][1])
    assert terminated.exception is None and terminated.errorClassOnException is None


def test_each_run_has_an_id_of_its_own():
    first, second = (ProgressReports(QUERY, "itch.raw", "udp") for _ in range(2))
    for reports in (first, second):
        reports.recorded(batch(0, 0.5, (0, 0, 6)))
    assert first.last and second.last and first.last["id"] == second.last["id"]
    assert first.last["runId"] != second.last["runId"]


def test_only_recent_reports_are_kept(reports: ProgressReports):
    assert reports.last is None and reports.recent == []
    for number in range(150):
        reports.recorded(batch(number, 0.5, (0, number, number + 1)))
    assert [report["batchId"] for report in reports.recent] == list(range(50, 150))


def test_an_error_of_a_listener_is_logged_and_the_others_are_called(
    listener: RecordingListener, caplog: pytest.LogCaptureFixture
):
    class FailingListener(RecordingListener):
        def onQueryProgress(self, event: object) -> None:  # noqa: N802
            raise ValueError("no space")

    listeners: Any = [FailingListener(), listener]
    reports = ProgressReports(QUERY, "itch.raw", "udp", listeners)
    with caplog.at_level(logging.WARNING):
        reports.recorded(batch(0, 0.5, (0, 0, 6)))
    assert [name for name, _ in listener.events] == ["onQueryProgress"]
    assert "FailingListener failed" in caplog.text and "no space" in caplog.text
