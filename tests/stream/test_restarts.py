"""A stream continues after a restart: summaries have no gap, and earlier plans leave no files."""

from __future__ import annotations

import itertools
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from pcap_deployment import MODEL, PARTITIONS, PUBLISHER, Deployment, records
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.kafka.topic_log import PACKET
from stackcast.jobs.adapters.stream.admission import GROWTH
from stackcast.jobs.adapters.wire.pcap import read_pcap
from stackcast.udfs.messages.summaries import Summary
from stackcast.udfs.stacks.dissect import dissect

pytestmark = pytest.mark.integration


def publish_in_transactions(deployment: Deployment, packets: list[bytes]) -> None:
    """Publish each packet in its own transaction, which uses a further offset for its marker."""
    name = f"tx-{deployment.settings.topic}"
    producer = KafkaProducer(bootstrap_servers=deployment.servers, transactional_id=name)
    producer.init_transactions()
    for packet in packets:
        producer.begin_transaction()
        producer.send(deployment.settings.topic, packet, partition=0)
        producer.commit_transaction()
    producer.close()


def summaries(deployment: Deployment) -> dict[str, list[Summary]]:
    """Return the summaries of each host, in the order of sending."""
    folder = Path(deployment.settings.pcap_path)
    files = sorted(folder.glob("*.pcap"), key=lambda path: path.stat().st_mtime)
    by_host: dict[str, list[Summary]] = {}
    for parts in (dissect(r.frame) for path in files for r in read_pcap(path.open("rb"))):
        if parts.summary is not None:
            (host,) = MODEL.deliver(PUBLISHER, parts.labels).hosts
            by_host.setdefault(host, []).append(parts.summary)
    return by_host


def test_ranges_of_summaries_have_no_gap_over_restarts_where_offsets_have_gaps(
    deployment: Deployment,
) -> None:
    packets = records()[:12]
    publish_in_transactions(deployment, packets[:4])
    deployment.run()
    publish_in_transactions(deployment, packets[4:8])
    deployment.run(lambda: publish_in_transactions(deployment, packets[8:]))
    by_host = summaries(deployment)
    assert by_host.keys() == {"h1", "h2", "h4"}
    for host_summaries in by_host.values():
        spans = sorted({(s.from_, s.until) for s in host_summaries})
        assert len(spans) >= 2
        assert all(until == from_ for (_, until), (from_, _) in itertools.pairwise(spans)), spans
    # The last summary of each host has the end of the topic.
    assert len({max(s.until for s in summaries) for summaries in by_host.values()}) == 1


@pytest.mark.long
def test_a_batch_that_runs_again_sends_the_same_ranges(deployment: Deployment) -> None:
    publish_in_transactions(deployment, records()[:4])
    deployment.run()
    publish_in_transactions(deployment, records()[4:8])
    deployment.run()
    before = summaries(deployment)
    # The stream crashed before Spark's commit.
    last = deployment.committed()
    for name in (str(last), f".{last}.crc"):
        (Path(deployment.settings.checkpoint) / "commits" / name).unlink(missing_ok=True)
    shutil.rmtree(deployment.settings.pcap_path)
    deployment.run()
    again = summaries(deployment)
    assert again
    for host, host_summaries in again.items():
        assert set(host_summaries) <= set(before[host])


@pytest.mark.long
def test_replaced_plans_leave_no_files(deployment: Deployment, spark: SparkSession) -> None:
    folder = Path(str(spark.sparkContext._temp_dir))
    packets = iter(records())

    def edit_and_publish() -> None:
        rows = deployment.tables.rows("subscriptions")
        edited = [row | {"filter": row["filter"] + " "} for row in rows]
        deployment.tables.merge("subscriptions", edited, [], ("id",))
        deployment.publish([next(packets), next(packets)])

    deployment.publish([next(packets), next(packets)])
    deployment.run(edit_and_publish)
    before = len(list(folder.iterdir()))
    deployment.run(*[edit_and_publish] * 4)
    # The session keeps the files of the last plan of each run.
    assert len(list(folder.iterdir())) <= before + 2


def sizes(deployment: Deployment, batches: list[dict[str, Any]]) -> list[int]:
    """Return the number of bytes of the records of each batch."""
    totals = []
    for row in batches:
        spans = {p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]}
        values = deployment.topics.read_spans(spans).toArrow().column("value").to_pylist()
        totals.append(sum(map(len, values)))
    return totals


@pytest.mark.long
def test_batches_of_large_records_are_small_and_a_batch_that_was_cut_off_stays_the_same(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    most, large = 400_000, 100_000
    deployment.set(max_bytes_per_trigger=most)
    # The records are dead letters, which count towards the size of a batch as well.
    deployment.publish([random.Random(1).randbytes(200)] * 600)

    def grow() -> None:
        deployment.publish([bytes(large)] * 12)

    deployment.run(grow, grow)
    ledger = deployment.ledger
    records = [row["packets"] for row in ledger]
    assert sum(records) == 624
    assert records[0] == most // PACKET
    assert all(after <= GROWTH * before for before, after in itertools.pairwise(records))
    big = [size for size in sizes(deployment, ledger) if size >= large]
    # The stream learns the size from the first batch of large records; later ones are within it.
    assert len(big) > 1
    assert all(size <= max(most, PARTITIONS * large) for size in big[1:])
    last = ledger[-1]["batch_id"]
    for name in (f"{last}", f".{last}.crc"):
        Path(deployment.settings.checkpoint, "commits", name).unlink()
    deployment.set(max_bytes_per_trigger=1)
    deployment.run()
    assert deployment.committed() == last
    first, again = re.findall(rf"batch {last}: .* in .*; offsets (.*)", caplog.text)
    assert again == first


@pytest.mark.long
def test_the_first_batch_assumes_the_record_size_of_the_topic(deployment: Deployment) -> None:
    assert deployment.topics.usual_record() == PACKET
    name = f"large-{deployment.settings.topic}"
    admin = KafkaAdminClient(bootstrap_servers=deployment.servers)
    admin.create_topics([NewTopic(name, 1, 1, topic_configs={"max.message.bytes": "9000000"})])
    admin.close()
    deployment.set(topic=name)
    assert deployment.topics.usual_record() == 9_000_000
    # The default applies if the stream may not describe the topic.
    deployment.set(topic="nowhere")
    assert deployment.topics.usual_record() == PACKET
