"""A task of real-time mode: the frames of micro-batches, by plans that change between records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from delivery_cases import (
    ADDRESSING,
    HOSTS,
    ITCH,
    NETWORK,
    TOPIC,
    TREES,
    VERSIONS,
    ListSink,
    Row,
    batches_of,
    complete,
    handle,
    message,
    received,
)
from hypothesis import given
from hypothesis import strategies as st

from udfs.columns import deliver
from udfs.delivery.plan import Compilation, Planner
from udfs.delivery.realtime import (
    LivePlan,
    LiveTask,
    LocalValue,
    TaskReport,
    deliver_at_once,
    gathered,
)
from udfs.filters.subscriptions import Subscription
from udfs.messages.readers import Packets
from udfs.messages.reference import build_packet
from udfs.messages.sequence import session_id, split_sequence
from udfs.stacks.dissect import dissect

pytestmark = pytest.mark.unit

STOCKS = [int.from_bytes(name.ljust(8).encode(), "big") for name in ("GOOGL", "AAPL")]
TO_H1 = [Subscription("one", "h1", "stock == GOOGL")]
TO_H2 = [Subscription("two", "h2", "price > 5"), Subscription("both", "h3", "stock == AAPL")]


def compilation_of(rules: Sequence[Subscription]) -> Compilation:
    plan = Planner(Packets(ITCH), ADDRESSING).plan(rules, NETWORK, TREES, VERSIONS)
    return complete(plan)


PLANS = [compilation_of(rules) for rules in (TO_H1, TO_H2)]


def live(number: int) -> LivePlan:
    made = PLANS[number % 2]
    stacks = LocalValue(handle(made.header_stacks).value)
    return LivePlan(number, handle(made.plan).value, stacks)


class Driver:
    """The other end of a channel, in memory."""

    def __init__(self, sent: Mapping[int, int] | None = None) -> None:
        self.plan = live(0)
        self.stopping = False
        self.sent = dict(sent or {})
        self.reports: list[TaskReport] = []
        self.used: list[int] = []
        self.lease: Callable[[], None] = lambda: None
        self.begun = self.ended = 0

    def begin(self) -> Mapping[int, int]:
        self.begun += 1
        return self.sent

    def use(self, number: int) -> None:
        self.used.append(number)

    def await_lease(self) -> None:
        self.lease()

    def report(self, report: TaskReport) -> None:
        self.reports.append(report)

    def end(self) -> None:
        self.ended += 1

    def spans(self) -> list[tuple[int, int, int]]:
        """Plan and offsets of each report."""
        return [
            (report.number, row["from_offset"], row["until_offset"])
            for report in self.reports
            for row in report.rows
            if row["kind"] == "partition"
        ]


def packets(count: int, partition: int = 0) -> list[Row]:
    messages = [message("A", stock=STOCKS[o % 2], price=o * 10_000) for o in range(count)]
    return [
        (partition, offset, build_packet(b"SOURCE0001", 1, [each, each]))
        for offset, each in enumerate(messages)
    ]


def singles(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    return batches_of(rows, range(1, len(rows)), large=False)


def offsets_of(frames: Sequence[bytes]) -> list[int]:
    return [split_sequence(dissect(frame).sequence)[0] for frame in frames]


@st.composite
def records(draw: st.DrawFn) -> list[Row]:
    """Sound and damaged records of a partition, offsets rising with gaps."""
    sound = st.lists(
        st.sampled_from([message("A", stock=s, price=p) for s in STOCKS for p in (10_000, 90_000)]),
        max_size=4,
    ).map(lambda messages: build_packet(b"SOURCE0001", 1, messages))
    payloads = draw(st.lists(st.one_of(sound, st.binary(max_size=30), st.none()), max_size=12))
    offset, rows = draw(st.integers(0, 1000)), []
    for payload in payloads:
        rows.append((2, offset, payload))
        offset += draw(st.integers(1, 3))
    return rows


@given(records())
def test_frames_and_counts_are_those_of_a_micro_batch(rows):
    # The plan with the most of both: rules of several hosts.
    made = PLANS[1]
    one, other = ListSink(), ListSink()
    driver = Driver()
    driver.plan = live(1)
    work = deliver_at_once(lambda: driver, TOPIC, lambda: one, 100)
    assert list(work(singles(rows))) == []
    run = deliver(handle(made.plan), handle(made.header_stacks), TOPIC, lambda: other, 100)
    counted = [row for batch in run(batches_of(rows, [], False)) for row in batch.to_pylist()]
    ours = [frame for frame in one.frames if not is_summary(frame)]
    assert ours == [frame for frame in other.frames if not is_summary(frame)]
    assert (driver.begun, driver.ended) == (1, 1)
    told = [row for report in driver.reports for row in report.rows]
    for kind, columns in (
        ("partition", ("from_offset", "until_offset", "packets", "messages", "matched", "frames")),
        ("reason", ("reason", "count")),
        ("sample", ("from_offset", "message_index", "reason", "sample")),
    ):
        assert sorted(repr([row[c] for c in columns]) for row in told if row["kind"] == kind) == (
            sorted(repr([row[c] for c in columns]) for row in counted if row["kind"] == kind)
        )


def is_summary(frame: bytes) -> bool:
    return not dissect(frame).messages


def test_a_new_plan_holds_from_the_next_record_on():
    driver, sink = Driver(), ListSink()
    task = LiveTask(driver, sink, TOPIC, 100, {})
    for number, batch in enumerate(singles(packets(20))):
        if number == 10:
            driver.plan = live(1)
        task.add(batch)
    task.finish()
    got = received(sink.frames)
    assert {o for _, o, _ in got["h1"]} == set(range(0, 10, 2))
    assert {o for _, o, _ in got["h2"]} == set(range(10, 20))
    assert driver.spans() == [(0, 0, 10), (1, 10, 20)]


def test_a_plan_is_in_use_until_its_last_frame_is_out():
    driver, sink = Driver(), ListSink()
    task = LiveTask(driver, sink, TOPIC, 100, {})
    assert driver.used == [0]
    first, second, third = singles(packets(3))
    task.add(first)
    driver.plan = live(1)
    frames_then: list[int] = []
    driver.use = lambda number: frames_then.append(len(sink.frames))
    task.add(second)
    # The report of what left by the old plan, with its summaries, comes before.
    assert [report.number for report in driver.reports] == [0]
    assert len(sink.frames) > frames_then[0]
    task.add(third)
    assert len(frames_then) == 1


def test_nothing_leaves_without_the_drivers_lease_and_what_comes_with_it_holds():
    driver, sink = Driver(), ListSink()
    task = LiveTask(driver, sink, TOPIC, 100, {})
    seen: list[int] = []

    def lease() -> None:
        seen.append(len(sink.frames))
        driver.plan = live(1)

    driver.lease = lease
    # An even offset, which only the plan of before would send to h1.
    task.add(next(iter(singles(packets(1)))))
    assert seen == [0] and driver.reports == []
    assert not received(sink.frames)["h1"]
    before = len(sink.frames)
    task.finish()
    assert seen == [0, before]


def test_frames_are_out_and_flushed_before_the_next_record_is_looked_at():
    driver, sink = Driver(), ListSink()
    task = LiveTask(driver, sink, TOPIC, 100, {})
    for offset, batch in enumerate(singles(packets(6))):
        task.add(batch)
        assert offsets_of(sink.frames) == list(range(0, offset + 1, 2))
        assert sink.calls[-1:] in ([], ["flush"])


def test_what_was_sent_before_is_passed_over():
    driver, sink = Driver({0: 7, 1: 100}), ListSink()
    run = deliver_at_once(lambda: driver, TOPIC, lambda: sink, 100)
    list(run(singles(packets(12))))
    assert offsets_of(sink.frames) == [8, 10]
    assert driver.spans() == [(0, 7, 12)]


def test_after_a_stop_nothing_leaves_and_all_that_left_is_reported():
    driver, sink = Driver(), ListSink()
    task = LiveTask(driver, sink, TOPIC, 100, {})
    batches = list(singles(packets(10)))
    for batch in batches[:5]:
        task.add(batch)
    driver.stopping = True
    # No record need come for it.
    task.add(None)
    assert task.over and driver.ended == 1
    for batch in batches[5:]:
        task.add(batch)
    task.finish()
    assert offsets_of(sink.frames) == [0, 2, 4]
    assert driver.spans() == [(0, 0, 5)] and driver.ended == 1


def test_reports_follow_each_other_without_a_hole(monkeypatch):
    monkeypatch.setattr("udfs.delivery.realtime.REPORT_SECONDS", 0.0)
    driver, sink = Driver(), ListSink()
    run = deliver_at_once(lambda: driver, TOPIC, lambda: sink, 100)
    list(run(singles(packets(9))))
    spans = driver.spans()
    assert spans[0][1] == 0 and spans[-1][2] == 9
    assert all(before[2] == after[1] for before, after in pairwise(spans))
    frames = sum(r["frames"] for t in driver.reports for r in t.rows if r["kind"] == "partition")
    assert frames == len(sink.frames) == 5


def test_a_clock_that_is_set_back_silences_no_report(monkeypatch):
    monkeypatch.setattr("udfs.delivery.realtime.REPORT_SECONDS", 0.0)
    times = iter(range(10**9, 0, -1000))
    monkeypatch.setattr("udfs.delivery.realtime.time.time", lambda: next(times))
    driver, sink = Driver(), ListSink()
    task = LiveTask(driver, sink, TOPIC, 100, {})
    for batch in singles(packets(4)):
        task.add(batch)
    task.add(None)
    assert [until for _, _, until in driver.spans()] == [1, 2, 3, 4]
    assert all(0 <= report.seconds < 60 for report in driver.reports)


def test_a_broken_sink_fails_the_task_which_is_off_the_line_then():
    driver, sink = Driver(), ListSink(broken=True)
    run = deliver_at_once(lambda: driver, TOPIC, lambda: sink, 100)
    with pytest.raises(OSError, match="unplugged"):
        list(run(singles(packets(3))))
    assert sink.calls[-1] == "close" and driver.ended == 1 and not driver.reports


def test_records_that_wait_are_taken_together_and_in_order():
    rows = packets(500)
    ready = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from singles(rows)
        ready.set()

    found = gathered(batches())
    first = next(found)
    assert ready.wait(60)
    rest = [batch for batch in found if batch is not None]
    assert first is not None and len(rest) < len(rows) / 2
    offsets = [o for batch in (first, *rest) for o in batch.column("offset").to_pylist()]
    assert offsets == list(range(500))


def test_where_nothing_comes_time_passes_and_errors_come_through():
    go = threading.Event()

    def batches() -> Iterator[pa.RecordBatch]:
        go.wait(60)
        yield from singles(packets(1))
        raise ValueError("the JVM is gone")

    found = gathered(batches(), tick=0.01)
    assert next(found) is None
    go.set()
    with pytest.raises(ValueError, match="the JVM is gone"):
        while True:
            next(found)


def test_every_session_is_the_partitions_own():
    driver, sink = Driver(), ListSink()
    run = deliver_at_once(lambda: driver, TOPIC, lambda: sink, 100)
    list(run(singles(packets(3, partition=3))))
    assert {dissect(frame).session for frame in sink.frames} == {session_id(TOPIC, 3)}
    assert set(received(sink.frames)) == set(HOSTS)
