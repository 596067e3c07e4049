"""A stream goes on after a restart: ranges without a hole, and no files of plans before."""

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

from jobs.adapters.stream.admission import GROWTH
from jobs.adapters.stream.kafka import PACKET
from jobs.adapters.wire.pcap import read_pcap
from udfs.messages.summaries import Summary
from udfs.stacks.dissect import dissect

pytestmark = pytest.mark.integration


def publish_in_transactions(deployment: Deployment, packets: list[bytes]) -> None:
    """Each packet in a transaction of its own: behind it is an offset that no record has."""
    name = f"tx-{deployment.settings.topic}"
    producer = KafkaProducer(bootstrap_servers=deployment.servers, transactional_id=name)
    producer.init_transactions()
    for packet in packets:
        producer.begin_transaction()
        producer.send(deployment.settings.topic, packet, partition=0)
        producer.commit_transaction()
    producer.close()


def summaries(deployment: Deployment) -> dict[str, list[Summary]]:
    """By host, in the order in which it is told."""
    folder = Path(deployment.settings.pcap_path)
    files = sorted(folder.glob("*.pcap"), key=lambda path: path.stat().st_mtime)
    found: dict[str, list[Summary]] = {}
    for parts in (dissect(r.frame) for path in files for r in read_pcap(path.open("rb"))):
        if parts.summary is not None:
            (host,) = MODEL.deliver(PUBLISHER, parts.labels).hosts
            found.setdefault(host, []).append(parts.summary)
    return found


def test_ranges_go_on_without_a_hole_over_restarts_where_offsets_have_gaps(
    deployment: Deployment,
) -> None:
    packets = records()[:12]
    publish_in_transactions(deployment, packets[:4])
    deployment.run()
    publish_in_transactions(deployment, packets[4:8])
    deployment.run(lambda: publish_in_transactions(deployment, packets[8:]))
    found = summaries(deployment)
    assert found.keys() == {"h1", "h2", "h4"}
    for told in found.values():
        spans = sorted({(s.from_, s.until) for s in told})
        assert len(spans) >= 2
        assert all(until == from_ for (_, until), (from_, _) in itertools.pairwise(spans)), spans
    # All know in the end how far it went, and whom nothing was for was not told of each batch.
    assert len({max(s.until for s in told) for told in found.values()}) == 1


def test_a_batch_that_runs_again_says_the_same_ranges(deployment: Deployment) -> None:
    publish_in_transactions(deployment, records()[:4])
    deployment.run()
    publish_in_transactions(deployment, records()[4:8])
    deployment.run()
    before = summaries(deployment)
    # As a crash before Spark's commit leaves it.
    last = deployment.committed()
    for name in (str(last), f".{last}.crc"):
        (Path(deployment.settings.checkpoint) / "commits" / name).unlink(missing_ok=True)
    shutil.rmtree(deployment.settings.pcap_path)
    deployment.run()
    again = summaries(deployment)
    assert again
    for host, told in again.items():
        assert set(told) <= set(before[host])


def test_plans_that_are_replaced_leave_no_file_behind(
    deployment: Deployment, spark: SparkSession
) -> None:
    folder = Path(str(spark.sparkContext._temp_dir))
    packets = iter(records())

    def edit_and_publish() -> None:
        deployment.sql(
            "UPDATE {} SET updated_at = now(), filter = concat(filter, ' ')", "subscriptions"
        )
        deployment.publish([next(packets), next(packets)])

    deployment.publish([next(packets), next(packets)])
    deployment.run(edit_and_publish)
    before = len(list(folder.iterdir()))
    deployment.run(*[edit_and_publish] * 4)
    # What the last plan of each run needs stays as long as the session does.
    assert len(list(folder.iterdir())) <= before + 2


def sizes(deployment: Deployment, batches: list[dict[str, Any]]) -> list[int]:
    """Bytes of each batch's records."""
    found = []
    for row in batches:
        spans = {p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]}
        values = deployment.topics.read_spans(spans).toArrow().column("value").to_pylist()
        found.append(sum(map(len, values)))
    return found


def test_batches_of_large_records_are_small_and_a_batch_that_was_cut_off_stays_as_it_was(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    most, large = 400_000, 100_000
    deployment.set(max_bytes_per_trigger=most)
    # Nothing that could be read: each is a dead letter, and is counted all the same.
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
    # The first that meets them could not know; then they are kept within the bound.
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


def test_the_first_batch_reckons_with_what_the_topic_was_made_for(deployment: Deployment) -> None:
    assert deployment.topics.usual_record() == PACKET
    name = f"large-{deployment.settings.topic}"
    admin = KafkaAdminClient(bootstrap_servers=deployment.servers)
    admin.create_topics([NewTopic(name, 1, 1, topic_configs={"max.message.bytes": "9000000"})])
    admin.close()
    deployment.set(topic=name)
    assert deployment.topics.usual_record() == 9_000_000
    # As without the right to describe it.
    deployment.set(topic="nowhere")
    assert deployment.topics.usual_record() == PACKET
