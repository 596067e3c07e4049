"""Real time on real Spark, Kafka and Delta: all that micro-batches promise, as records come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewPartitions
from pcap_deployment import PARTITIONS, Deployment, records
from pyspark.sql import SparkSession

from jobs.adapters.stream import slices
from jobs.adapters.stream.delivery import Delivered
from jobs.adapters.stream.micro_batches import in_real_time
from jobs.adapters.stream.slices import Slices
from udfs.errors import SettingsError, StreamError
from udfs.messages.specification import Specification
from udfs.stacks.dissect import dissect

pytestmark = pytest.mark.integration

STATE = {"state": ("h4", "count(10000000) > 50 and price > 0")}


@pytest.fixture
def live(deployment: Deployment) -> Deployment:
    deployment.set(latency="realtime", realtime_slice="300 milliseconds")
    return deployment


def edit(deployment: Deployment, text: str) -> None:
    deployment.sql(f"UPDATE {{}} SET filter = '{text}' WHERE id = 'high'", "subscriptions")


def exact(deployment: Deployment, itch: Specification) -> int:
    """What hosts got of which nothing lacks or is too much; copies are the same bytes."""
    sent: dict[tuple[bytes, int, tuple[int, ...]], set[bytes]] = {}
    for frame in deployment.frames():
        parts = dissect(frame)
        sent.setdefault((parts.session, parts.sequence, parts.labels), set()).add(frame)
    assert all(len(copies) == 1 for copies in sent.values())
    once = [frame for copies in sent.values() for frame in copies]
    outcome = deployment.outcome(itch, once)
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (0, 0, 0)
    return outcome.received


def whole(deployment: Deployment) -> None:
    """The ledger has each record once, in the order of the batches' numbers."""
    ledger = deployment.ledger
    assert [row["batch_id"] for row in ledger] == list(range(len(ledger)))
    spans: dict[int, list[tuple[int, int]]] = {}
    for row in ledger:
        for p in row["partitions"]:
            spans.setdefault(p["partition"], []).append((p["from_offset"], p["until_offset"]))
    for each in spans.values():
        assert each[0][0] == 0
        assert all(before[1] == after[0] for before, after in pairwise(each))
    assert {p: each[-1][1] for p, each in spans.items()} == {
        p: end for p, end in deployment.topics.end_offsets().items() if end
    }


def test_deliveries_are_exact_from_slice_to_slice_while_rules_change(
    live: Deployment, itch: Specification
) -> None:
    packets = records()
    live.publish(packets[:60])
    steps: list[Callable[[], None]] = []
    for number, begin in enumerate(range(60, 240, 30)):
        steps.append(lambda text=f"price > {100 + number}": edit(live, text))  # type: ignore[misc]
        steps.append(lambda some=packets[begin : begin + 30]: live.publish(some))  # type: ignore[misc]
    live.run(*steps)
    assert exact(live, itch) > 0
    whole(live)
    assert sum(row["frames"] for row in live.ledger) == len(live.frames())
    assert live.tables.rows("delivery_statistics") and live.tables.rows("publication_statistics")
    # Of slices in which nothing was read nothing was written, but where the next one had begun.
    assert all(one["packets"] or other["packets"] for one, other in pairwise(live.ledger))


@contextmanager
def cut_off_at(monkeypatch: pytest.MonkeyPatch, batch: int) -> Iterator[None]:
    """The stream fails where it would record a batch: frames of it, and of the next, have left."""
    plain = Slices._record

    def failing(self: Slices, done: Delivered, ends: Mapping[int, int]) -> None:
        if done.batch_id == batch:
            time.sleep(1)
            raise StreamError("FAILED", "cut off")
        plain(self, done, ends)

    with monkeypatch.context() as patch:
        patch.setattr(Slices, "_record", failing)
        yield


def ahead(deployment: Deployment) -> list[int]:
    """Slices whose tasks waited for those before them, of which pins are left."""
    pins = Path(deployment.settings.checkpoint, "stackcast-pins").glob("*.json")
    return [int(pin.stem) for pin in pins if json.loads(pin.read_text())["ahead"]]


def test_a_slice_that_ends_with_its_most_has_the_next_one_wait_for_it(
    live: Deployment, itch: Specification
) -> None:
    live.set(realtime_slice="5 seconds", max_offsets_per_trigger=20 * PARTITIONS)
    packets = records()
    live.publish(packets[:20])
    waited: set[int] = set()

    def feed() -> None:
        producer = KafkaProducer(bootstrap_servers=live.servers, acks="all")
        # Half a second a slice.
        for number, packet in enumerate(packets[20:240]):
            producer.send(live.settings.topic, packet, partition=number % PARTITIONS)
            time.sleep(0.5 / 20 / PARTITIONS)
            waited.update(ahead(live))
        producer.close()

    live.run(feed)
    assert waited
    exact(live, itch)
    whole(live)
    assert max(row["packets"] for row in live.ledger) <= 20 * PARTITIONS


@pytest.mark.parametrize("then", ["realtime", "microbatch"])
@pytest.mark.parametrize("state", [True, False], ids=["state", "no-state"])
def test_what_a_slice_that_was_cut_off_sent_is_sent_again_as_it_was(
    live: Deployment, itch: Specification, monkeypatch: pytest.MonkeyPatch, state: bool, then: str
) -> None:
    if state:
        fill_state(live)
    packets = records()
    live.publish(packets[:40])
    live.run()
    done = live.committed()

    def feed() -> None:
        producer = KafkaProducer(bootstrap_servers=live.servers, acks="all")
        for number, packet in enumerate(packets[40:200]):
            producer.send(live.settings.topic, packet, partition=number % PARTITIONS)
            time.sleep(0.015)
        producer.close()

    with cut_off_at(monkeypatch, done + 2), pytest.raises(StreamError, match="cut off"):
        live.run(feed)
    assert live.committed() == done + 1
    pins = sorted(int(p.stem) for p in Path(live.settings.checkpoint, "stackcast-pins").glob("*"))
    assert pins[-1] in (done + 2, done + 3)
    # What rules keep is known when a slice has ended.
    assert not (state and ahead(live))
    # By the rules of then, whatever they are now.
    edit(live, "price > 1")
    live.publish(packets[200:])
    live.set(latency=then)
    live.run()
    exact(live, itch)
    whole(live)
    versions = {row["batch_id"]: dict(row["versions"])["subscriptions"] for row in live.ledger}
    assert versions[done + 2] == versions[done + 1]
    # And on in the other mode.
    live.set(latency="microbatch" if then == "realtime" else "realtime")
    live.publish(packets[:20])
    live.run()
    exact(live, itch)
    whole(live)


def fill_state(deployment: Deployment) -> None:
    now = deployment.tables.rows("subscriptions")[0]
    deployment.tables.append(
        "subscriptions",
        [
            now | {"id": name, "subscriber": host, "filter": text}
            for name, (host, text) in STATE.items()
        ],
    )


def test_new_partitions_are_read_while_the_stream_runs(
    live: Deployment, itch: Specification, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "PARTITION_SECONDS", 0.5)

    def grow() -> None:
        admin = KafkaAdminClient(bootstrap_servers=live.servers)
        admin.create_partitions({live.settings.topic: NewPartitions(PARTITIONS + 1)})
        admin.close()
        live.publish(records()[40:100], PARTITIONS + 1)

    live.publish(records()[:40])
    live.run(grow)
    assert exact(live, itch) > 0
    whole(live)


def test_what_cannot_be_real_time_says_why(live: Deployment, spark: SparkSession) -> None:
    live.set(fetch="connector")
    with pytest.raises(SettingsError, match=r"NOT_REALTIME: .*fetch says so.*microbatch"):
        live.run()
    live.set(fetch="tasks")
    with pytest.raises(SettingsError, match=r"NOT_REALTIME: .* of the 99 partitions .* set local"):
        in_real_time(spark, live.settings, 99)
    live.set(latency="auto")
    assert in_real_time(spark, live.settings, PARTITIONS)
    assert not in_real_time(spark, live.settings, 99)
    live.set(given=frozenset({"trigger"}))
    assert not in_real_time(spark, live.settings, PARTITIONS)
