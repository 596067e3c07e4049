"""A log that Kafka truncates loses no event without notice, and no host takes a new record for an
old one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest
from kafka_topics import kafka_topic
from pcap_deployment import Deployment, receipts, records
from rerequesting import Client, Service, sent
from truncated_topics import (
    ACCEPTED,
    KEPT,
    LOST,
    MODES,
    check_end,
    check_generation,
    deployed,
    lose,
    regrow,
)
from two_brokers import TwoBrokers
from waiting import until

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.kafka.client import Fetcher
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.jobs.adapters.kafka.ranges import FetchProgress, Range
from stackcast.jobs.adapters.replay.explanation import SentExplanation
from stackcast.jobs.adapters.replay.history import History
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.jobs.adapters.tables.recorded_topics import topic_of_row
from stackcast.lab.proof import verification
from stackcast.udfs.errors import KafkaError, ReplayError, StreamError
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, session_id
from stackcast.udfs.stop_request import StopRequest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "mode", ["tasks", *(pytest.param(m, marks=pytest.mark.long) for m in MODES if m != "tasks")]
)
def test_a_truncated_log_that_has_grown_again_is_reported_and_continues_in_new_sessions(
    mode, spark, broker, filled, itch, tmp_path
):
    deployment = deployed(spark, broker, filled, tmp_path, mode)
    before = kafka_topic(deployment.settings)
    lose(deployment, broker)
    regrow(deployment)
    frames = len(deployment.frames())
    for _ in range(2):
        # The end of the log does not show the truncation, and a second start finds it as well.
        with pytest.raises(StreamError, match=r"LOG_TRUNCATED: .*--accept-truncation") as refused:
            deployment.run()
        for partition in range(2):
            assert f"partition {partition}: offsets 20 to 34" in str(refused.value)
    assert len(deployment.frames()) == frames
    deployment.run(consent=ACCEPTED)
    after = before._replace(generation=1)
    check_generation(deployment, itch, after, frames)
    # The next start continues as usual, and does not need the option.
    deployment.publish(records()[150:170])
    deployment.run()
    assert {topic_of_row(row) for row in deployment.ledger} == {before, after}
    check_generation(deployment, itch, after, frames)


@pytest.mark.long
def test_hosts_can_request_the_existing_part_of_the_old_session_and_all_of_the_new_one(
    spark, broker, filled, tmp_path
):
    deployment = deployed(spark, broker, filled, tmp_path, "tasks")
    topic = kafka_topic(deployment.settings)
    lose(deployment, broker)
    regrow(deployment)
    explanation = SentExplanation(spark, deployment.settings, deployment.tables)
    old, new = session_id(topic, 0), session_id(topic._replace(generation=1), 0)
    # The stream has not noticed yet. The old frames must not be computed from the new records.
    with pytest.raises(ReplayError, match=r"LOG_TRUNCATED: .* to offset 20, .* up to offset 34"):
        explanation.explain(old.decode(), sent_from(deployment, old, 25))
    everything = sent(deployment)
    host = max(("h1", "h2", "h4"), key=lambda name: len(everything[name, old]))
    existing = [d for d in everything[host, old] if int.from_bytes(d[10:18]) < 20 << OFFSET_SHIFT]

    def check_old_session() -> None:
        for offset in (25, 20):
            datagrams, summary = client.ask(host, old, offset << OFFSET_SHIFT)
            assert datagrams == [] and summary.gone
            assert summary.until == 35 << OFFSET_SHIFT
        datagrams, summary = client.ask(host, old, 0)
        assert datagrams == existing and summary.until == 20 << OFFSET_SHIFT

    service = Service(deployment)
    try:
        client = Client(service.rerequests)
        check_old_session()
        deployment.run(consent=ACCEPTED)
        everything = sent(deployment)
        assert client.all(host, new) == everything[host, new]
        check_old_session()
    finally:
        service.close()
    explanation = SentExplanation(spark, deployment.settings, deployment.tables)
    with pytest.raises(ReplayError, match="SESSION_ENDED"):
        explanation.explain(old.decode(), 25 << OFFSET_SHIFT)
    first = everything[host, new][0]
    explained = explanation.explain(new.decode(), int.from_bytes(first[10:18]))
    assert host in explained["receivers"]


@pytest.mark.long
def test_past_records_are_delivered_in_their_original_sessions(spark, broker, filled, tmp_path):
    deployment = deployed(spark, broker, filled, tmp_path, "tasks")
    topic = kafka_topic(deployment.settings)
    lose(deployment, broker)
    regrow(deployment)
    deployment.run(consent=ACCEPTED)
    live = receipts(deployment.frames())["h2"]
    deployment.change("subscriptions", {"id": "side"}, subscriber="h3")
    deployment.set(pcap_path=str(tmp_path / "history"))
    history = History(spark, deployment.settings, deployment.tables, "side")
    spans = history.spans(0, 60)
    assert spans == {0: (0, 60), 1: (0, 60)}
    history.deliver(spans, StopRequest())
    received = receipts(deployment.frames())["h3"]
    for partition in range(2):
        for generation, offsets in enumerate((range(20), range(20, 60))):
            session = session_id(topic._replace(generation=generation), partition)
            messages = messages_of(received, session, range(60))
            assert messages
            assert messages == messages_of(live, session, offsets)


def messages_of(
    hosts_receipts: Sequence[verification.Receipt], session: bytes, offsets: range
) -> list[bytes]:
    """Return the messages of a session from records with these offsets, in their order."""
    in_session = [each for each in hosts_receipts if each.session == session]
    return [
        message
        for each in sorted(in_session, key=lambda each: each.sequence)
        if each.sequence >> OFFSET_SHIFT in offsets
        for message in each.messages
    ]


def sent_from(deployment: Deployment, session: bytes, offset: int) -> int:
    """Return the number of the first notification of a record at or after an offset."""
    numbers = {
        int.from_bytes(datagram[10:18])
        for (_, each), datagrams in sent(deployment).items()
        for datagram in datagrams
        if each == session
    }
    return min(number for number in numbers if number >= offset << OFFSET_SHIFT)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_a_running_stream_ends_with_the_error_and_sends_nothing_of_the_new_records(
    mode, spark, broker, filled, tmp_path
):
    deployment = deployed(spark, broker, filled, tmp_path, mode)
    topic = deployment.settings.topic
    deployment.publish(records()[:KEPT])
    lifecycle = Lifecycle()
    query, delivery = start(spark, deployment.settings, lifecycle)
    try:
        until(lambda: delivery.recorder.processed == {0: 20, 1: 20})
        broker.save(topic)
        deployment.publish(records()[KEPT : KEPT + LOST])
        until(lambda: delivery.recorder.processed == {0: 35, 1: 35})
        frames = len(deployment.frames())
        check_end(deployment, broker, lifecycle, query, "offsets 20 to 34")
    finally:
        delivery.close()
    assert len(deployment.frames()) == frames


@pytest.mark.long
def test_a_restart_of_the_broker_that_loses_nothing_ends_nothing(
    spark, broker, filled, itch, tmp_path
):
    deployment = deployed(spark, broker, filled, tmp_path, "real time")
    deployment.publish(records()[:KEPT])

    def restart() -> None:
        broker.kill()
        broker.revive(300)
        deployment.publish(records()[KEPT : KEPT + LOST])

    deployment.run(restart)
    deployment.publish(records()[KEPT + LOST : 150])
    deployment.run()
    assert {row["generation"] for row in deployment.ledger} == {0}
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    epochs = [p["leader_epoch"] for row in deployment.ledger for p in row["partitions"]]
    assert None not in epochs and len(set(epochs)) > 1


def test_a_fetch_with_the_epoch_of_the_last_record_finds_a_truncated_log(
    spark, broker, filled, tmp_path
):
    deployment = deployed(spark, broker, filled, tmp_path, "tasks")
    topic = deployment.settings.topic
    fetcher = Fetcher(fetch_options({"bootstrap.servers": broker.bootstrap_servers}))
    reached = FetchProgress(0)
    deployment.publish(records()[:KEPT])
    broker.save(topic)
    deployment.publish(records()[KEPT : KEPT + LOST])
    list(fetcher.batches(Range(topic, 0, 0, 35), reached))
    assert (reached.offset, reached.epoch) == (35, reached.epoch) and reached.epoch >= 0
    broker.truncate(topic)
    regrow(deployment)
    with pytest.raises(KafkaError, match=r"LOG_TRUNCATED: .* to offset 20, .* up to offset 34"):
        list(fetcher.batches(Range(topic, 0, 35, 60, reached.epoch), FetchProgress(35)))
    read = {p: (35, reached.epoch) for p in range(2)}
    assert deployment.topics.truncated(read) == {0: 20, 1: 20}
    assert deployment.topics.truncated({p: (20, reached.epoch) for p in range(2)}) == {}
    # Without the epoch, a fetch does not notice the truncation.
    assert sum(len(batch) for batch in fetcher.batches(Range(topic, 0, 35, 60))) == 25
    fetcher.close()


@pytest.mark.long
def test_after_an_unclean_leader_election_the_stream_names_the_offsets_and_continues_there(
    spark, filled, itch, tmp_path
):
    shutil.copytree(filled, tmp_path / "tables")
    with TwoBrokers(tmp_path / "kafka") as cluster:
        first, second = cluster.brokers
        cluster.create_topic(f"itch.{tmp_path.name}")
        deployment = Deployment(spark, cluster.bootstrap_servers, tmp_path, latency="realtime")
        topic = deployment.settings.topic
        before = kafka_topic(deployment.settings)
        deployment.publish(records()[:40], partitions=1)
        until(lambda: deployment.topics.end_offsets() == {0: 40})
        # The second broker does not have the next records.
        second.kill()
        deployment.publish(records()[40:60], partitions=1)
        deployment.run()
        first.kill()
        second.revive(300)
        cluster.await_leader(topic, 2)
        assert deployment.topics.end_offsets() == {0: 40}
        deployment.publish(records()[60:110], partitions=1)
        frames = len(deployment.frames())
        with pytest.raises(StreamError, match=r"LOG_TRUNCATED: .*partition 0: offsets 40 to 59"):
            deployment.run()
        assert len(deployment.frames()) == frames
        deployment.run(consent=ACCEPTED)
        check_generation(deployment, itch, before._replace(generation=1), frames)
