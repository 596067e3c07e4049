"""After a crash while a slice is recorded, frames are sent again unchanged."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from kafka import KafkaProducer
from pcap_deployment import PARTITIONS, Deployment, records
from waiting import until

from stackcast.jobs.adapters.checkpoint.progress import Progress
from stackcast.jobs.adapters.stream.delivery import BatchDelivery, Delivered
from stackcast.udfs.errors import StreamError
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.stacks.dissect import dissect

pytestmark = pytest.mark.integration

#: Step of the record that fails, and how its first argument names the batch.
STEPS: dict[str, tuple[type, str, Callable[[Any], int]]] = {
    "planned, and not on record": (BatchDelivery, "record", lambda done: done.batch_id),
    "on record, and not committed": (Progress, "done", lambda number: number),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_record_that_was_cut_off(
    deployment: Deployment, itch: Specification, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    deployment.set(latency="realtime", realtime_slice="300 milliseconds")
    packets = records()
    deployment.publish(packets[:40])
    deployment.run()
    last = deployment.committed() + 2
    next_pin = Path(deployment.settings.checkpoint, "stackcast-pins", f"{last + 1}.json")
    fed = Event()
    owner, method, number_of = STEPS[step]
    plain = getattr(owner, method)

    def failing(self: object, argument: Delivered | int) -> None:
        if number_of(argument) == last:
            until(lambda: next_pin.exists() and fed.is_set())
            raise StreamError("FAILED", "cut off")
        plain(self, argument)

    def feed() -> None:
        producer = KafkaProducer(bootstrap_servers=deployment.servers, acks="all")
        for number, packet in enumerate(packets[40:200]):
            producer.send(deployment.settings.topic, packet, partition=number % PARTITIONS)
            time.sleep(0.015)
        producer.close()
        fed.set()

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, failing)
        with pytest.raises(StreamError, match="cut off"):
            deployment.run(feed)
    # Frames that were sent are sent again by the same rules.
    deployment.change("subscriptions", {"id": "high"}, filter="price > 1")
    deployment.publish(packets[200:])
    deployment.run()
    copies: dict[tuple[bytes, int, tuple[int, ...]], set[bytes]] = {}
    for frame in deployment.frames():
        parts = dissect(frame)
        copies.setdefault((parts.session, parts.sequence, parts.labels), set()).add(frame)
    assert all(len(frames) == 1 for frames in copies.values())
    outcome = deployment.outcome(itch, [f for frames in copies.values() for f in frames])
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    # The ledger has each record once.
    ends = deployment.topics.end_offsets()
    for partition in ends:
        spans = sorted(
            (p["from_offset"], p["until_offset"])
            for row in deployment.ledger
            for p in row["partitions"]
            if p["partition"] == partition
        )
        assert spans[0][0] == 0 and spans[-1][1] == ends[partition]
        assert all(before[1] == after[0] for before, after in pairwise(spans))
