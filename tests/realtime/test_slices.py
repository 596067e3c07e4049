"""Real time on real Spark, Kafka and Delta keeps the promises of micro-batches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewPartitions
from pcap_deployment import PARTITIONS, SLICES, Deployment, exact_deliveries, feed, records
from pyspark.sql import SparkSession
from waiting import until

from stackcast.jobs.adapters.stream import slices
from stackcast.jobs.adapters.stream.batch_recorder import BatchResult
from stackcast.jobs.adapters.stream.slice_recorder import SliceRecorder
from stackcast.jobs.adapters.stream.spark_stream import in_real_time
from stackcast.udfs.errors import SettingsError, StreamError
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration

STATE = {"state": ("h4", "count(10000000) > 50 and price > 0")}


@pytest.fixture
def live(deployment: Deployment) -> Deployment:
    deployment.set(**SLICES)
    return deployment


#: Ends a test that hangs, seconds.
HANG_S = 600


def edit(deployment: Deployment, text: str) -> None:
    deployment.change("subscriptions", {"id": "high"}, filter=text)


def check_ledger(deployment: Deployment) -> None:
    """Fail unless the ledger has each record once, in the order of the batches."""
    ledger = deployment.ledger
    assert [row["batch_id"] for row in ledger] == list(range(len(ledger)))
    spans: dict[int, list[tuple[int, int]]] = {}
    for row in ledger:
        for p in row["partitions"]:
            spans.setdefault(p["partition"], []).append((p["from_offset"], p["until_offset"]))
    for ranges in spans.values():
        assert ranges[0][0] == 0
        assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert {p: ranges[-1][1] for p, ranges in spans.items()} == {
        p: end for p, end in deployment.topics.end_offsets().items() if end
    }


def test_deliveries_are_exact_from_slice_to_slice_while_rules_change(
    live: Deployment, itch: Specification
) -> None:
    packets = records()
    live.publish(packets[:60])
    steps: list[Callable[[], None]] = []
    for number, begin in enumerate(range(60, 150, 30)):
        steps.append(lambda text=f"price > {100 + number}": edit(live, text))  # type: ignore[misc]
        steps.append(lambda part=packets[begin : begin + 30]: live.publish(part))  # type: ignore[misc]
    live.run(*steps)
    assert exact_deliveries(live, itch) > 0
    check_ledger(live)
    assert sum(row["frames"] for row in live.ledger) == len(live.frames())
    assert live.tables.rows("delivery_statistics") and live.tables.rows("publication_statistics")
    # A slice without records has a row only if the next slice had started.
    rows = pairwise(live.ledger)
    assert all(first["packets"] or second["packets"] for first, second in rows)


@contextmanager
def cut_off_at(
    monkeypatch: pytest.MonkeyPatch, batch: int, condition: Callable[[], object]
) -> Iterator[None]:
    """Make the stream fail before it records a batch, whose frames it has sent.

    Args:
        monkeypatch: fixture.
        batch: number of the batch.
        condition: the stream fails once it is true.
    """
    record = SliceRecorder._record

    def failing(self: SliceRecorder, result: BatchResult, ends: Mapping[int, int]) -> None:
        if result.batch_id == batch:
            until(condition)
            raise StreamError("FAILED", "cut off")
        record(self, result, ends)

    with monkeypatch.context() as patch:
        patch.setattr(SliceRecorder, "_record", failing)
        yield


def slices_ahead(deployment: Deployment) -> list[int]:
    """Returns the pinned slices whose tasks started before the slice before had ended."""
    pins = Path(deployment.settings.checkpoint, "stackcast-pins").glob("*.json")
    return [int(pin.stem) for pin in pins if json.loads(pin.read_text())["ahead"]]


def test_a_slice_with_the_maximum_of_records_hands_over_to_a_slice_that_waits(
    live: Deployment, itch: Specification
) -> None:
    live.set(realtime_slice="5 seconds", max_offsets_per_trigger=20 * PARTITIONS)
    packets = records()
    live.publish(packets[:20])
    ahead: set[int] = set()

    def look() -> None:
        ahead.update(slices_ahead(live))

    def feed_until_one_waits() -> None:
        deadline = time.monotonic() + HANG_S
        while not ahead:
            assert time.monotonic() < deadline, "no slice waited for the one before it"
            # A slice has its maximum after half a second.
            feed(live, packets[20:100], 0.5 / 20 / PARTITIONS, look)

    live.run(feed_until_one_waits)
    exact_deliveries(live, itch)
    check_ledger(live)
    assert max(row["packets"] for row in live.ledger) <= 20 * PARTITIONS


@pytest.mark.parametrize(
    ("state", "latency"),
    [
        (True, "realtime"),
        pytest.param(False, "microbatch", marks=pytest.mark.long),
        pytest.param(True, "microbatch", marks=pytest.mark.long),
        pytest.param(False, "realtime", marks=pytest.mark.long),
    ],
)
def test_a_slice_that_was_cut_off_is_sent_again_unchanged(
    live: Deployment,
    itch: Specification,
    monkeypatch: pytest.MonkeyPatch,
    state: bool,
    latency: str,
) -> None:
    """Cut off a slice, edit a rule, and start the stream again.

    Args:
        live: deployment in real time.
        itch: message format.
        monkeypatch: fixture.
        state: whether a rule keeps state.
        latency: latency of the next start; a third start uses the other one.
    """
    if state:
        fill_state(live)
    packets = records()
    live.publish(packets[:40])
    live.run()
    first = live.committed()
    fed = Event()

    def feed_and_signal() -> None:
        feed(live, packets[40:200], 0.015)
        fed.set()

    pins = Path(live.settings.checkpoint, "stackcast-pins")
    next_pin = pins / f"{first + 3}.json"
    with (
        # Frames of the next slice can have left, too.
        cut_off_at(monkeypatch, first + 2, lambda: next_pin.exists() or fed.is_set()),
        pytest.raises(StreamError, match="cut off"),
    ):
        live.run(feed_and_signal)
    assert live.committed() == first + 1
    assert max(int(pin.stem) for pin in pins.glob("*")) in (first + 2, first + 3)
    # The state of the rules is known only when a slice has ended.
    assert not (state and slices_ahead(live))
    # The slice is sent again by the rules that it used, not by the current ones.
    edit(live, "price > 1")
    live.publish(packets[200:])
    live.set(latency=latency)
    live.run()
    exact_deliveries(live, itch)
    check_ledger(live)
    versions = {row["batch_id"]: dict(row["versions"])["subscriptions"] for row in live.ledger}
    assert versions[first + 2] == versions[first + 1]
    # The stream continues in the other latency.
    live.set(latency="microbatch" if latency == "realtime" else "realtime")
    live.publish(packets[:20])
    live.run()
    exact_deliveries(live, itch)
    check_ledger(live)


def fill_state(deployment: Deployment) -> None:
    row = deployment.tables.rows("subscriptions")[0]
    deployment.tables.append(
        "subscriptions",
        [
            row | {"id": name, "subscriber": host, "filter": text}
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
    assert exact_deliveries(live, itch) > 0
    check_ledger(live)


def test_an_error_says_why_a_stream_cannot_run_in_real_time(
    live: Deployment, spark: SparkSession
) -> None:
    live.set(fetch="connector")
    with pytest.raises(SettingsError, match=r"NOT_REALTIME: .*fetch is connector.*microbatch"):
        live.run()
    live.set(fetch="tasks")
    with pytest.raises(SettingsError, match=r"NOT_REALTIME: .* of the 99 partitions .*set local"):
        in_real_time(spark, live.settings, 99)
    live.set(latency="auto")
    assert in_real_time(spark, live.settings, PARTITIONS)
    assert not in_real_time(spark, live.settings, 99)
    live.set(given=frozenset({"trigger"}))
    assert not in_real_time(spark, live.settings, PARTITIONS)
