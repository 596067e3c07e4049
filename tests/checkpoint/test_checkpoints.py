"""A stream continues from its checkpoint, and refuses that of another deployment."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, TopicPartition
from pcap_deployment import Deployment, records
from pyspark.sql import SparkSession
from waiting import until

from stackcast import schemas
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.checkpoint.hadoop_files import open_folder
from stackcast.jobs.adapters.checkpoint.identity import NAME
from stackcast.jobs.adapters.checkpoint.progress import position
from stackcast.jobs.adapters.stream.checks import before_start
from stackcast.jobs.adapters.stream.failures import after_failure, checkpoint_not_written
from stackcast.jobs.adapters.stream.input import Records
from stackcast.jobs.adapters.stream.micro_batches import MicroBatches
from stackcast.jobs.adapters.stream.spark_stream import start
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.up.broker import Broker
from stackcast.udfs.errors import StackcastError, StreamError

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def ran(
    spark: SparkSession, broker: Broker, filled: Path, tmp_path_factory: pytest.TempPathFactory
) -> Deployment:
    """Returns a deployment whose stream ran and was stopped; tests must not change it."""
    folder = tmp_path_factory.mktemp("ran")
    shutil.copytree(filled, folder / "tables")
    deployment = Deployment(spark, broker.bootstrap_servers, folder)
    deployment.publish(records()[:20])
    deployment.run()
    return deployment


@pytest.fixture
def same(ran: Deployment, tmp_path: Path) -> Deployment:
    """Returns a copy of the same deployment, whose checkpoint and tables tests may change."""
    for name in ("tables", "checkpoint"):
        shutil.copytree(ran.folder / name, tmp_path / name)
    values = {"topic": ran.settings.topic, "dead_letter_topic": ran.settings.dead_letter_topic}
    return Deployment(ran.spark, ran.servers, tmp_path, **values)


class Running:
    """A stream that runs, and ends with an error."""

    def __init__(self, deployment: Deployment, patch: pytest.MonkeyPatch) -> None:
        self._deployment = deployment
        #: The second batch waits here when it has its offsets, before it reads.
        self.gate = threading.Event()
        process = MicroBatches.process

        def waiting(batches: MicroBatches, read: Callable[[], Records], batch_id: int) -> None:
            if batch_id:
                self.gate.wait(600)
            process(batches, read, batch_id)

        patch.setattr(MicroBatches, "process", waiting)
        self._lifecycle = Lifecycle()
        self._query, self.delivery = start(deployment.spark, deployment.settings, self._lifecycle)

    def first_batch(self) -> None:
        while not self.delivery.recorder.processed:
            self._query.awaitTermination(0.05)

    def end(self) -> StackcastError:
        """Let the stream continue, and return the error of the job."""
        self.gate.set()
        with pytest.raises(StreamError) as ended:
            self._lifecycle.run(self._query, lambda: False)
        return after_failure(self._deployment.spark, self._deployment.settings, ended.value)


@contextmanager
def running(deployment: Deployment) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        stream = Running(deployment, patch)
        try:
            yield stream
        finally:
            stream.gate.set()
            stream.delivery.close()


def look(deployment: Deployment) -> None:
    """Run the checks of a start, before it reads a record."""
    spark, settings = deployment.spark, deployment.settings
    checkpoint = open_folder(spark, settings.checkpoint)
    explain = partial(checkpoint_not_written, spark, settings)
    before_start(settings, checkpoint, deployment.tables, deployment.topics, explain)


def forget(deployment: Deployment, before: dict[int, int]) -> None:
    """Remove the records before these offsets, as Kafka's retention does."""
    admin = KafkaAdminClient(bootstrap_servers=deployment.servers)
    topic = deployment.settings.topic
    admin.delete_records({TopicPartition(topic, p): offset for p, offset in before.items()})
    admin.close()
    assert {p: first for p, (first, _) in deployment.topics.spans().items()} == before


def remake(deployment: Deployment) -> None:
    """Delete the topic, and create another of the same name."""
    admin = KafkaAdminClient(bootstrap_servers=deployment.servers)
    admin.delete_topics([deployment.settings.topic])
    until(lambda: deployment.settings.topic not in admin.list_topics())
    admin.close()
    ensure_topic(deployment.servers, deployment.settings.topic, 2)


def apply_settings(deployment: Deployment, error: object) -> None:
    """Apply the settings of an error: a new checkpoint, and the offsets where it starts."""
    (offsets,) = re.findall(r"spark\.stackcast\.startingOffsets to (\{.*\}\})", str(error))
    deployment.set(
        starting_offsets=offsets, checkpoint=f"{deployment.settings.checkpoint}-{len(offsets)}-next"
    )


# --- a checkpoint for something else ------------------------------------------------------------


def test_a_deployment_accepts_its_own_checkpoint(same):
    look(same)


def test_a_deployment_may_change_other_settings(same):
    same.set(port=26555, mtu=1400, max_offsets_per_trigger=7, trigger="1 second", group="239.1.1.1")
    look(same)


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("topic", "itch.other", "OTHER_TOPIC"),
        ("publisher", "h1", "OTHER_PUBLISHER"),
        ("format", "attributes", "OTHER_FORMAT"),
    ],
)
def test_another_topic_publisher_or_format_is_refused(same, setting, value, code):
    ensure_topic(same.servers, "itch.other", 2)
    before = getattr(same.settings, setting)
    same.set(**{setting: value})
    with pytest.raises(StreamError, match=rf"STREAM\.{code}: .*{before}.*{value}"):
        look(same)
    same.set(**{setting: before})
    look(same)


def test_a_checkpoint_without_identity_is_refused_for_another_topic(same):
    (same.folder / "checkpoint" / NAME).unlink()
    ensure_topic(same.servers, "itch.other", 2)
    same.set(topic="itch.other")
    with pytest.raises(StreamError, match="OTHER_TOPIC"):
        look(same)
    assert not (same.folder / "checkpoint" / NAME).exists()


def test_another_specification_is_refused_but_not_other_comments(same, monkeypatch):
    shipped = schemas.read_text

    def edited(change: Callable[[str], str]) -> None:
        monkeypatch.setattr(schemas, "read_text", lambda name: change(shipped(name)))

    edited(lambda text: "// Our own copy.\n" + text.replace("\n}", "  // end\n}"))
    look(same)
    edited(lambda text: text.replace("shares: 32", "volume: 32"))
    with pytest.raises(StreamError, match=r"OTHER_SPECIFICATION: messages/itch\.spec") as refused:
        look(same)
    # The error has the offsets at which a new checkpoint must start.
    progress = position(open_folder(same.spark, same.settings.checkpoint))
    apply_settings(same, refused.value)
    assert json.loads(same.settings.starting_offsets) == {
        same.settings.topic: {str(p): offset for p, offset in progress.offsets.items()}
    }
    look(same)


def test_another_cluster_is_refused(same):
    path = same.folder / "checkpoint" / NAME
    identity = json.loads(path.read_text())
    path.unlink()
    (path.parent / f".{NAME}.crc").unlink(missing_ok=True)
    path.write_text(json.dumps(identity | {"cluster": "another"}))
    with pytest.raises(StreamError, match=r"OTHER_CLUSTER: .*cluster another.*bootstrap\.servers"):
        look(same)


def test_new_tables_and_older_copies_are_refused(same, ran):
    shutil.rmtree(same.folder / "tables" / "links")
    open_tables(same.spark, same.settings.tables).create("links")
    with pytest.raises(StreamError, match=r"OTHER_TABLES: .*created again: links"):
        look(same)
    # A copy of the same table, from before it was filled.
    shutil.rmtree(same.folder / "tables" / "links")
    shutil.copytree(ran.folder / "tables" / "links", same.folder / "tables" / "links")
    for path in (same.folder / "tables" / "links" / "_delta_log").glob("*1.*"):
        path.unlink()
    with pytest.raises(
        StreamError, match=r"OTHER_TABLES: .*links is at version 0, .* used version 1"
    ):
        look(same)


def test_a_damaged_checkpoint_is_reported_by_one_error(same):
    (same.folder / "checkpoint" / NAME).write_text('{"layout": 1,')
    (same.folder / "checkpoint" / f".{NAME}.draft.crc").unlink(missing_ok=True)
    (same.folder / "checkpoint" / f".{NAME}.crc").unlink(missing_ok=True)
    with pytest.raises(StreamError, match=rf"CHECKPOINT_UNREADABLE: .*{NAME}"):
        look(same)


# --- records that Kafka has deleted -------------------------------------------------------------


@pytest.mark.long
def test_deleted_records_are_counted_and_skipped_only_on_demand(deployment, itch):
    deployment.publish(records()[:40])
    deployment.set(max_offsets_per_trigger=10)
    with running(deployment) as stream:
        stream.first_batch()
        deployment.publish(records()[40:120])
        # Retention overtakes the stream, and what its consumer has in memory: 20 of each.
        forget(deployment, {0: 30, 1: 30})
        ended = stream.end()
    assert re.search(r"RECORDS_GONE: .*partition \d: \d+ \(offsets", str(ended)), ended
    # Each further start reports the same, and reads nothing.
    progress = position(open_folder(deployment.spark, deployment.settings.checkpoint))
    deleted = {p: 30 - progress.offsets[p] for p in (0, 1)}
    total = sum(deleted.values())
    message = rf"RECORDS_GONE: .* {total} records .*partition 1: {deleted[1]} \(offsets "
    with pytest.raises(StreamError, match=message) as refused:
        deployment.run()
    apply_settings(deployment, refused.value)
    # Kafka deletes more: a start that would skip these records is refused as well.
    forget(deployment, {0: 33, 1: 30})
    with pytest.raises(
        StreamError, match=r"RECORDS_GONE: .* 3 records .*offsets 30 to 32"
    ) as refused:
        deployment.run()
    apply_settings(deployment, refused.value)
    deployment.set(max_offsets_per_trigger=1000)
    deployment.tables.overwrite("egress_ledger", [])
    before = len(deployment.frames())
    deployment.run()
    (row,) = deployment.ledger
    spans = {p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]}
    assert spans == {0: (33, 60), 1: (30, 60)}
    # The stream has delivered the remaining records of Kafka, once.
    outcome = deployment.outcome(itch, deployment.frames()[before:])
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    assert outcome.received > 20


def test_a_new_topic_of_the_same_name_ends_the_stream_and_is_refused_at_the_next_start(deployment):
    deployment.publish(records()[:40])
    with running(deployment) as stream:
        stream.first_batch()
        remake(deployment)
        deployment.publish(records()[40:50])
        assert stream.end().code == "STREAM.TOPIC_RECREATED"
    # The topic has more records than before, so its offsets alone do not show the change.
    deployment.publish(records()[50:110])
    with pytest.raises(StreamError, match=r"TOPIC_RECREATED: .*created again "):
        look(deployment)


@pytest.mark.long
def test_partitions_that_are_added_are_read_from_their_first_record(deployment, itch):
    deployment.publish(records()[:40])

    def grow() -> None:
        admin = KafkaAdminClient(bootstrap_servers=deployment.servers)
        admin.create_partitions({deployment.settings.topic: 3})
        admin.close()
        until(lambda: len(deployment.topics.end_offsets()) == 3)
        deployment.publish(records()[40:100], partitions=3)

    deployment.run(grow)
    deployment.publish(records()[100:130], partitions=3)
    deployment.run()
    assert {p["partition"] for row in deployment.ledger for p in row["partitions"]} == {0, 1, 2}
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    assert outcome.received > 50
