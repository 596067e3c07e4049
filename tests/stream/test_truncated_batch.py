"""A log that Kafka truncates below what a batch has read, before the batch is on record, or before
anything else knows how far it was read."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_topics import kafka_topic
from pcap_deployment import records
from truncated_topics import (
    ACCEPTED,
    KEPT,
    LOST,
    check_end,
    check_generation,
    cut_off,
    deliver,
    deployed,
    lose,
    lose_within_batch,
    regrow,
)
from waiting import until

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.checkpoint.progress import Progress
from stackcast.jobs.adapters.kafka.client import Fetcher
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH, FetchProgress, Range
from stackcast.jobs.adapters.stream.batch_recorder import BatchRecorder
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.udfs.errors import StreamError
from stackcast.udfs.messages.sequence import OFFSET_SHIFT
from stackcast.udfs.stacks.dissect import dissect

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("mode", ["tasks", pytest.param("connector", marks=pytest.mark.long)])
def test_an_interrupted_batch_is_not_sent_again_with_other_records(
    mode, spark, broker, filled, itch, tmp_path, monkeypatch
):
    deployment = deployed(spark, broker, filled, tmp_path, mode)
    topic = kafka_topic(deployment.settings)
    lose_within_batch(deployment, broker, monkeypatch)
    regrow(deployment)
    frames = len(deployment.frames())
    with pytest.raises(StreamError, match="LOG_TRUNCATED") as refused:
        deployment.run()
    for partition in range(2):
        assert f"partition {partition}: offsets 25 to 34" in str(refused.value)
    assert len(deployment.frames()) == frames
    deployment.run(consent=ACCEPTED)
    check_generation(deployment, itch, topic._replace(generation=1), frames)
    assert resumed_at(deployment) == {0: 20, 1: 20}


@pytest.mark.parametrize("loses", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_slice_that_was_interrupted_before_a_new_leader_gets_new_sessions(
    loses, spark, broker, filled, itch, tmp_path, monkeypatch
):
    """It is unknown how far it had read, so new records could get the numbers of lost ones."""
    deployment = deployed(spark, broker, filled, tmp_path, "real time")
    topic = kafka_topic(deployment.settings)
    if loses:
        lose_within_batch(deployment, broker, monkeypatch)
    else:
        deployment.publish(records()[:KEPT])
        deployment.run()
        deployment.publish(records()[KEPT : KEPT + LOST])
        cut_off(deployment, monkeypatch)
        broker.kill()
        broker.revive(300)
    regrow(deployment)
    frames = len(deployment.frames())
    deployment.run()
    check_generation(deployment, itch, topic._replace(generation=1), frames)
    assert resumed_at(deployment) == {0: 20, 1: 20}
    # The next start finds nothing to correct.
    deployment.publish(records()[150:170])
    deployment.run()
    check_generation(deployment, itch, topic._replace(generation=1), frames)


def resumed_at(deployment: Any) -> dict[int, int]:
    """Return, by partition the offset at which generation 1 begins."""
    (row, *_) = [row for row in deployment.ledger if row["generation"] == 1]
    return {p["partition"]: p["until_offset"] for p in row["partitions"] if not p["records"]}


@pytest.mark.long
def test_an_interrupted_batch_keeps_its_numbers_if_a_new_leader_has_all_records(
    spark, broker, filled, itch, tmp_path, monkeypatch
):
    deployment = deployed(spark, broker, filled, tmp_path, "tasks")
    deployment.publish(records()[:KEPT])
    deployment.run()
    deployment.publish(records()[KEPT : KEPT + LOST])
    cut_off(deployment, monkeypatch)
    frames = len(deployment.frames())
    broker.kill()
    broker.revive(300)
    regrow(deployment)
    deployment.run()
    assert {row["generation"] for row in deployment.ledger} == {0}
    sent = deployment.frames()
    again = sent[frames:]
    assert len(set(sent)) == len(set(again)) + len(set(sent[:frames]) - set(again))
    outcome = deployment.outcome(itch, list(dict.fromkeys(sent)))
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)


@pytest.mark.long
def test_a_slice_does_not_start_again_at_its_first_offset_after_the_log_was_truncated(
    spark, broker, filled, tmp_path
):
    """Spark runs a failed task again, and the log is intact at the first offset of the slice."""
    deployment = deployed(spark, broker, filled, tmp_path, "real time")
    deployment.set(realtime_slice="60 seconds")
    topic = deployment.settings.topic
    deployment.publish(records()[:KEPT])
    lifecycle = Lifecycle()
    query, delivery = start(spark, deployment.settings, lifecycle)

    def offsets() -> list[int]:
        """Return for both sessions the highest offset that was sent."""
        highest: dict[bytes, int] = {}
        for frame in deployment.frames():
            parts = dissect(frame)
            offset = parts.sequence >> OFFSET_SHIFT
            highest[parts.session] = max(offset, highest.get(parts.session, 0))
        return list(highest.values())

    try:
        until(lambda: len(offsets()) == 2)
        deployment.publish(records()[KEPT : KEPT + 10])
        broker.save(topic)
        deployment.publish(records()[KEPT + 10 : KEPT + LOST])
        until(lambda: min(offsets()) > 26)
        frames = check_end(deployment, broker, lifecycle, query, "partition 0: offsets 25 to 34")
    finally:
        delivery.close()
    assert len(deployment.frames()) == frames
    # The slice is on record, so the next start says the same.
    with pytest.raises(StreamError, match=r"LOG_TRUNCATED: .*partition 0: offsets 25 to 34"):
        deployment.run()


@pytest.mark.parametrize(
    ("again", "leader", "is_lost"),
    [(False, 8, False), (True, 7, False), (True, 8, True), (True, NO_EPOCH, False)],
)
def test_a_task_that_runs_again_reads_nothing_from_another_leader(
    again, leader, is_lost, monkeypatch
):
    """The earlier attempt may have sent other records with the same offsets."""

    requested = Range("t", 0, 10, 20, 7)
    fetcher = Fetcher(fetch_options({"bootstrap.servers": "none:1"}))

    def fetch(_: Range, reached: FetchProgress, *__: Any) -> tuple[SimpleNamespace, int]:
        reached.epoch = leader
        batches = ["a batch"]
        return SimpleNamespace(offset=[10], next=20, batches=lambda _: batches), 20

    monkeypatch.setattr(fetcher, "_fetch", fetch)
    for read in (
        partial(fetcher.batches, requested, again=again),
        partial(fetcher.follow, requested, 60.0, again),
    ):
        reached = FetchProgress(10)
        assert list(read(reached=reached)) == ([] if is_lost else ["a batch"])
        assert reached.lost == is_lost
        assert reached.offset == (10 if is_lost else 20)


@pytest.mark.long
def test_the_first_batch_of_a_run_with_the_connector_is_checked(spark, broker, filled, tmp_path):
    deployment = deployed(spark, broker, filled, tmp_path, "connector")
    deployment.set(trigger="30 seconds")
    deliver(deployment, broker)
    frames = len(deployment.frames())

    def replace_records() -> None:
        broker.truncate(deployment.settings.topic)
        regrow(deployment)

    with pytest.raises(StreamError, match=r"LOG_TRUNCATED: .*partition 0: offsets 20 to 34"):
        deployment.run(replace_records)
    assert len(deployment.frames()) == frames


@pytest.mark.long
def test_a_stream_that_dies_while_it_begins_a_generation_begins_it_again(
    spark, broker, filled, itch, tmp_path, monkeypatch
):
    deployment = deployed(spark, broker, filled, tmp_path, "tasks")
    topic = kafka_topic(deployment.settings)
    lose(deployment, broker)
    regrow(deployment)
    frames = len(deployment.frames())

    def failing(*_: Any) -> None:
        raise StreamError("FAILED", "cut off")

    for step in (
        (Progress, "plan"),
        (BatchRecorder, "record_resumption"),
        (Progress, "done"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(*step, failing)
            with pytest.raises(StreamError, match="cut off"):
                deployment.run(consent=ACCEPTED)
        if step[1] == "done":
            # The new generation is on record.
            break
        with pytest.raises(StreamError, match=r"LOG_TRUNCATED: .*partition 0: offsets 20 to 34"):
            deployment.run()
    assert len(deployment.frames()) == frames
    deployment.run()
    check_generation(deployment, itch, topic._replace(generation=3), frames)


@pytest.mark.long
def test_a_new_checkpoint_does_not_hide_that_the_log_was_truncated(
    spark, broker, filled, itch, tmp_path
):
    deployment = deployed(spark, broker, filled, tmp_path, "tasks")
    topic = kafka_topic(deployment.settings)
    lose(deployment, broker)
    regrow(deployment)
    frames = len(deployment.frames())
    begin = json.dumps({topic.name: {"0": 35, "1": 35}})
    deployment.set(checkpoint=str(Path(tmp_path, "second")), starting_offsets=begin)
    with pytest.raises(StreamError, match=r"LOG_TRUNCATED: .*partition 0: offsets 20 to 34"):
        deployment.run()
    deployment.run(consent=ACCEPTED)
    check_generation(deployment, itch, topic._replace(generation=1), frames)
    assert resumed_at(deployment) == {0: 20, 1: 20}
    deployment.set(checkpoint=str(Path(tmp_path, "third")), starting_offsets=begin)
    deployment.run()
    assert {row["generation"] for row in deployment.ledger} == {0, 1}
