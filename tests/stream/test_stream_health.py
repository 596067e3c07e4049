"""Health of a stream, computed from recorded observations."""

from __future__ import annotations

import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import VirtualTime

from stackcast.jobs.adapters.app.settings import Settings, seconds_of
from stackcast.jobs.adapters.stream.health import (
    BATCH_SECONDS,
    BROKER_SECONDS,
    JOURNAL_BATCHES,
    PENDING_SECONDS,
    SPARK_SECONDS,
    BatchTime,
    Observation,
    StreamStatus,
    health_of,
)
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.watch import POLL_SECONDS, StreamWatch, local_folder

pytestmark = pytest.mark.unit

NOW = 1000.0
HEALTHY = Observation(time=NOW - 1, active=True, broker_time=NOW - 1, lag={0: 3, 1: 4})


def test_a_running_stream_is_healthy_and_reports_its_position():
    status = StreamStatus(
        last=BatchTime(12, NOW - 2),
        running=BatchTime(13, NOW - 1),
        versions={"subscriptions": 3},
    )
    health = health_of(HEALTHY, status, NOW)
    assert health.status == "ok"
    assert health.facts["last_batch"] == 12 and health.facts["last_batch_age_seconds"] == 2
    assert health.facts["running_batch"] == 13
    assert health.facts["versions"] == {"subscriptions": 3}
    assert health.facts["lag"] == 7
    json.loads(health.as_json())


@pytest.mark.parametrize(
    ("observation", "status", "text"),
    [
        (None, StreamStatus(), "starting"),
        (Observation(NOW, False, NOW), StreamStatus(), "query"),
        (Observation(NOW - SPARK_SECONDS - 1, True, NOW), StreamStatus(), "Spark"),
        (
            Observation(NOW, True, NOW - BROKER_SECONDS - 1, "timed out"),
            StreamStatus(),
            "timed out",
        ),
        (HEALTHY, StreamStatus(running=BatchTime(5, NOW - BATCH_SECONDS - 1)), "batch 5"),
        (
            Observation(NOW, True, NOW, slow=("partition 0 is held back",)),
            StreamStatus(),
            "held back",
        ),
        (HEALTHY, StreamStatus(failure="SINK.SEND_FAILED"), "SINK.SEND_FAILED"),
        (HEALTHY, StreamStatus(dead="all 2 records are dead letters"), "dead letters"),
    ],
)
def test_each_single_problem_is_reported(
    observation: Observation | None, status: StreamStatus, text: str
):
    health = health_of(observation, status, NOW)
    (problem,) = health.problems
    assert text in problem and health.status == "unhealthy"


def test_conditions_that_affect_no_frame_are_remarks():
    status = StreamStatus(
        refused_versions={"links": 3},
        pending_since=NOW - PENDING_SECONDS - 1,
        journal_batches=JOURNAL_BATCHES + 1,
    )
    almost_full = Observation(NOW, True, NOW, full=("tables",))
    health = health_of(almost_full, status, NOW)
    assert health.status == "degraded" and len(health.remarks) == 4
    assert health.facts["refused_versions"] == {"links": 3}
    assert health.facts["sink_ok"]
    status.journal_batches = 0
    assert len(health_of(almost_full, status, NOW).remarks) == 3
    status.failure = "SINK.NO_INTERFACE"
    assert not health_of(almost_full, status, NOW).facts["sink_ok"]


def test_a_batch_that_the_ledger_does_not_contain_for_a_long_time_is_a_remark():
    clock = VirtualTime()
    metrics = StreamMetrics(clock=clock)

    def remarks() -> tuple[str, ...]:
        now = clock.monotonic()
        return health_of(Observation(now, True, now), metrics.status, now).remarks

    metrics.journal(1, 50.0)
    assert not remarks()
    # The age grows although nothing reports it, because the writer may hang.
    clock.sleep(30)
    (remark,) = remarks()
    assert "1 batches are not in the ledger yet, the oldest of them for 80 s" in remark
    metrics.journal(0, 0.0)
    assert not remarks()


def test_tables_that_wait_to_become_live_are_a_remark():
    metrics = StreamMetrics()
    metrics.pending(NOW)
    metrics.pending(NOW + 10)
    (remark,) = health_of(HEALTHY, metrics.status, NOW + 40).remarks
    assert remark == "newer tables have been waiting to become live for 40 s"
    metrics.pending(None)
    assert not health_of(HEALTHY, metrics.status, NOW + 40).remarks


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1e4), st.booleans())
def test_health_never_improves_while_nothing_answers(
    age: float, broker_age: float, running: float, active: bool
):
    status = StreamStatus(running=BatchTime(1, NOW - running))
    observation = Observation(NOW - age, active, NOW - broker_age)
    problems = len(health_of(observation, status, NOW).problems)
    assert problems <= len(health_of(observation, status, NOW + 60).problems)


def test_health_can_be_computed_while_batches_start_and_end():
    metrics = StreamMetrics()
    stop = threading.Event()
    failures: list[BaseException] = []

    def compute() -> None:
        try:
            while not stop.is_set():
                health_of(HEALTHY, metrics.status, time.monotonic()).as_json()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=compute)
    thread.start()
    for number in range(2000):
        with metrics.batch(number):
            metrics.in_use({f"table{number % 7}": number})
    stop.set()
    thread.join()
    assert not failures


class FakeTopic:
    """A topic whose broker can fail, with a transaction that holds back a partition."""

    def __init__(self) -> None:
        self.end, self.transaction, self.fails = 10, False, False

    def spans(self) -> dict[int, tuple[int, int]]:
        if self.fails:
            raise OSError("connection refused")
        return {0: (2, self.end), 1: (0, 5)}

    def held_back(self) -> dict[int, tuple[int, int]]:
        return {0: (7, self.end)} if self.transaction else {}


class FakeQuery:
    """A query that runs and has reported one batch."""

    isActive = True  # noqa: N815
    status = {"isTriggerActive": True}  # noqa: RUF012
    lastProgress = {  # noqa: N815, RUF012
        "durationMs": {"deliver": 250},
        "inputRowsPerSecond": 4.0,
        "processedRowsPerSecond": 16.0,
    }

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        return False

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        raise NotImplementedError


@pytest.fixture
def threads() -> VirtualTime:
    return VirtualTime()


def test_the_monitor_measures_lag_and_reports_broker_and_transactions(
    threads: VirtualTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    topic = FakeTopic()
    watch = StreamWatch(Settings(metrics_port=1), topic, {}, lambda: {0: 4}, threads=threads)
    assert watch.health().problems == ("the stream is starting",)
    watch.attach(FakeQuery(), lambda: 1)
    threads.sleep(1)
    health = watch.health()
    # The checkpoint does not contain partition 1, which is read from its first record.
    assert health.facts["lag_by_partition"] == {0: 6, 1: 5}
    (problem,) = health.problems
    assert "has 2 partitions, but Spark has only 1 slots" in problem
    watch.metrics.processed({0: 9, 1: 5})
    topic.transaction = True
    threads.sleep(POLL_SECONDS)
    assert watch.health().facts["lag"] == 1
    threads.sleep(100)
    assert any("open transaction holds back partition 0" in p for p in watch.health().problems)
    warnings = [message for message in caplog.messages if "open transaction" in message]
    assert len(warnings) == 1, "a reason is logged once"
    topic.fails = True
    threads.sleep(BROKER_SECONDS + 2 * POLL_SECONDS)
    health = watch.health()
    assert not health.facts["broker_reachable"]
    assert any("connection refused" in problem for problem in health.problems)
    watch.close()


@pytest.mark.parametrize("place", ["hdfs://name/tables", "s3a://bucket/tables", "catalog.schema"])
def test_places_on_other_machines_have_no_local_folder(place: str):
    assert local_folder(place) is None


def test_a_place_on_this_machine_has_the_folder_that_will_contain_it(tmp_path):
    assert local_folder(str(tmp_path / "not" / "yet")) == tmp_path
    assert local_folder(f"file:{tmp_path}") == tmp_path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0 seconds", 0),
        ("5 minutes", 300),
        ("1 hour", 3600),
        ("200 milliseconds", 0.2),
        ("10 seconds", 10),
    ],
)
def test_an_interval_has_its_seconds(text: str, seconds: float):
    assert seconds_of(text) == pytest.approx(seconds)
