"""Deployments whose topic Kafka truncates: records that were read are gone, and others follow."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from pcap_deployment import NETWORK, PUBLISHER, Deployment, receipts, records
from pyspark.sql import SparkSession
from quick_broker import QuickBroker

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.running_stream import RunningStream
from stackcast.jobs.adapters.stream.batch_recorder import BatchRecorder, BatchResult
from stackcast.jobs.adapters.stream.failures import after_failure
from stackcast.jobs.adapters.stream.spark_stream import Consent
from stackcast.jobs.adapters.tables.recorded_topics import topic_of_row
from stackcast.lab.proof import verification
from stackcast.udfs.errors import StreamError
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.messages.specification import Specification

#: Records: those before the copy, and those that are lost.
KEPT, LOST = 40, 30
ACCEPTED = Consent(accept_truncation=True)
MODES = {
    "tasks": {},
    "connector": {"fetch": "connector"},
    "real time": {"latency": "realtime"},
}


def deployed(
    spark: SparkSession, broker: QuickBroker, filled: Path, folder: Path, mode: str
) -> Deployment:
    shutil.copytree(filled, folder / "tables")
    settings = {"rerequest_identify": "name", **MODES[mode]}
    return Deployment(spark, broker.bootstrap_servers, folder, **settings)


def deliver(deployment: Deployment, broker: QuickBroker) -> None:
    """Deliver records up to offset 34; the broker keeps a copy of those up to offset 19."""
    deployment.publish(records()[:KEPT])
    deployment.run()
    broker.save(deployment.settings.topic)
    deployment.publish(records()[KEPT : KEPT + LOST])
    deployment.run()
    assert deployment.topics.end_offsets() == {0: 35, 1: 35}


def lose(deployment: Deployment, broker: QuickBroker) -> None:
    """Deliver records of which the log then loses the last ones, by offsets 20 to 34."""
    deliver(deployment, broker)
    broker.truncate(deployment.settings.topic)
    assert deployment.topics.end_offsets() == {0: 20, 1: 20}


def cut_off(deployment: Deployment, patch: pytest.MonkeyPatch) -> None:
    """Run a stream that sends a batch, and ends before the batch is on record."""

    def failing(_: BatchRecorder, result: BatchResult) -> None:
        raise StreamError("FAILED", f"batch {result.batch_id} is cut off")

    with patch.context() as patched:
        patched.setattr(BatchRecorder, "record", failing)
        with pytest.raises(StreamError, match="is cut off"):
            deployment.run()


def lose_within_batch(
    deployment: Deployment, broker: QuickBroker, patch: pytest.MonkeyPatch
) -> None:
    """Cut off a batch with offsets 20 to 34, of which the log then loses those from 25 on."""
    topic = deployment.settings.topic
    deployment.publish(records()[:KEPT])
    deployment.run()
    deployment.publish(records()[KEPT : KEPT + 10])
    assert deployment.topics.end_offsets() == {0: 25, 1: 25}
    broker.save(topic)
    deployment.publish(records()[KEPT + 10 : KEPT + LOST])
    cut_off(deployment, patch)
    broker.truncate(topic)
    assert deployment.topics.end_offsets() == {0: 25, 1: 25}


def regrow(deployment: Deployment) -> None:
    """Publish new records up to offset 60, so that the log is longer than before."""
    count = sum(60 - end for end in deployment.topics.end_offsets().values())
    deployment.publish(records()[KEPT + LOST : KEPT + LOST + count])
    assert deployment.topics.end_offsets() == {0: 60, 1: 60}


def check_end(
    deployment: Deployment,
    broker: QuickBroker,
    lifecycle: Lifecycle,
    query: RunningStream,
    lost: str,
) -> int:
    """Replace the last records of the log, and check that the running stream ends with the error
    and sends nothing of the new ones.

    Args:
        deployment: the deployment.
        broker: broker of the deployment.
        lifecycle: lifecycle of the stream.
        query: the stream.
        lost: text of the error that names the lost offsets.

    Returns:
        The number of frames that were sent.
    """
    broker.truncate(deployment.settings.topic)
    frames = len(deployment.frames())
    publishing = threading.Thread(target=lambda: regrow(deployment))
    publishing.start()
    with pytest.raises(StreamError) as ended:
        lifecycle.run(query, lambda: False)
    publishing.join()
    error = after_failure(deployment.spark, deployment.settings, ended.value)
    assert error.code == "STREAM.LOG_TRUNCATED"
    assert lost in str(error)
    assert len(deployment.frames()) == frames
    return frames


def check_generation(
    deployment: Deployment, specification: Specification, topic: Topic, frames: int
) -> None:
    """Check that hosts got exactly the events of a generation, by brute force over the records that
    the topic has now.

    Args:
        deployment: the deployment.
        specification: message format.
        topic: topic with the generation.
        frames: number of frames that were sent before the generation began.
    """
    rows = [row for row in deployment.ledger if topic_of_row(row) == topic]
    (resumed, *_) = rows
    begins = {p["partition"]: p["from_offset"] for p in resumed["partitions"]}
    batches = []
    for row in rows:
        live = deployment.tables.rows("subscriptions", dict(row["versions"])["subscriptions"])
        subscriptions = [Subscription(r["id"], r["subscriber"], r["filter"]) for r in live]
        rules, _ = check(subscriptions, specification, set(NETWORK.subscribers()), PUBLISHER)
        offsets = {p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]}
        batches.append(verification.Batch(row["batch_id"], offsets, rules))
    there = [row for row in deployment.topics.read_all() if row[1] >= begins[row[0]]]
    owed = verification.expected(there, batches, specification, topic)
    assert owed.unprocessed == 0
    outcome = verification.compare(owed, receipts(deployment.frames()[frames:]))
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    assert outcome.received > 10
