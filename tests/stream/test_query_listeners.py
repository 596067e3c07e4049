"""Listeners of the Spark session receive the events of a stream in both modes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pcap_deployment import Deployment, records
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from waiting import until

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.stream.spark_listeners import LOGGER
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.lab.up.broker import Broker

pytestmark = pytest.mark.integration


class Listener(StreamingQueryListener):
    """A listener that a user would write."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.reports: list[Any] = []
        self.terminated: list[Any] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        self.started.append(event)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.reports.append(event.progress)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.terminated.append(event)


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[Listener]:
    listener = Listener()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


@pytest.fixture
def log_lines(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Yield a file to which Log4j writes the progress reports."""
    path = tmp_path / "progress.log"
    log4j: Any = spark._jvm.org.apache.logging.log4j
    appender = (
        log4j.core.appender.FileAppender.newBuilder()
        .withFileName(str(path))
        .setName("progress")
        .setLayout(log4j.core.layout.PatternLayout.newBuilder().withPattern("%m%n").build())
        .build()
    )
    appender.start()
    log4j.core.config.Configurator.setLevel(LOGGER, log4j.Level.INFO)
    logger = log4j.LogManager.getLogger(LOGGER)
    logger.addAppender(appender)
    yield path
    logger.removeAppender(appender)
    appender.stop()
    log4j.core.config.Configurator.setLevel(LOGGER, log4j.Level.WARN)


def test_a_listener_of_spark_receives_one_report_per_slice(
    spark: SparkSession,
    broker: Broker,
    filled: Path,
    tmp_path: Path,
    listener: Listener,
    log_lines: Path,
):
    shutil.copytree(filled, tmp_path / "tables")
    deployment = Deployment(spark, broker.bootstrap_servers, tmp_path, latency="realtime")
    packets = records()[:20]
    deployment.publish(packets)
    query, delivery = start(spark, deployment.settings, Lifecycle())
    try:
        until(lambda: sum(report.numInputRows for report in listener.reports) == len(packets))
        until(lambda: len(query.recentProgress) > 0)
        assert sum(report.numInputRows for report in query.recentProgress) == len(packets)
        assert query.lastProgress.batchId == query.recentProgress[-1].batchId
    finally:
        query.stop()
        delivery.close()
    until(lambda: len(listener.terminated) == 1)
    (started,), (terminated,) = listener.started, listener.terminated
    assert started.name == deployment.settings.topic
    assert terminated.id == started.id and terminated.exception is None
    ledger = {row["batch_id"]: row for row in deployment.ledger}
    assert listener.reports
    for report in listener.reports:
        row = ledger[report.batchId]
        assert (report.id, report.runId) == (started.id, started.runId)
        assert report.numInputRows == row["packets"]
        assert report.sink.numOutputRows == row["frames"]
        assert {"plan", "deliver", "report", "record"} <= report.durationMs.keys()
        (ends,) = json.loads(report.sources[0].endOffset).values()
        for partition in row["partitions"]:
            assert ends[str(partition["partition"])] == partition["until_offset"]
    lines = [json.loads(line) for line in log_lines.read_text().splitlines()]
    assert [line["batchId"] for line in lines] == [report.batchId for report in listener.reports]


def test_a_report_in_real_time_has_the_fields_of_a_report_of_spark(
    spark: SparkSession, broker: Broker, filled: Path, tmp_path: Path
):
    reports = {}
    for latency in ("microbatch", "realtime"):
        folder = tmp_path / latency
        shutil.copytree(filled, folder / "tables")
        deployment = Deployment(spark, broker.bootstrap_servers, folder, latency=latency)
        deployment.publish(records()[:20])
        query, delivery = start(spark, deployment.settings, Lifecycle())
        try:
            until(lambda query=query: query.lastProgress and query.lastProgress.numInputRows)
            (reports[latency], *_) = query.recentProgress
        finally:
            query.stop()
            delivery.close()
    spark_report, report = reports["microbatch"], reports["realtime"]
    (source,), (spark_source,) = report.sources, spark_report.sources
    for part, spark_part in (
        (report, spark_report),
        (source, spark_source),
        (report.sink, spark_report.sink),
    ):
        assert part.keys() == spark_part.keys()
        # Spark omits empty fields from the JSON object.
        assert json_fields(spark_part) <= json_fields(part) <= part.keys()
    assert source.metrics.keys() == spark_source.metrics.keys()
    assert report.durationMs.keys() & spark_report.durationMs.keys() == {"triggerExecution"}
    # The first batch of Spark has no start.
    for name in ("endOffset", "latestOffset"):
        (offsets,) = json.loads(source[name]).values()
        (spark_offsets,) = json.loads(spark_source[name]).values()
        assert offsets == spark_offsets == {"0": 10, "1": 10}


def json_fields(report: Any) -> set[str]:
    """Return the names of the fields in the JSON object of a report, or of a part of it."""
    return set(json.loads(report.json))
