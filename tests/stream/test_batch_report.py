"""Sums over the rows that the tasks of a batch reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.stream.report import BatchReport, Reach
from stackcast.udfs.delivery.publishers import Publishers

pytestmark = pytest.mark.unit

#: By delivery, the receivers of each stack: no host; a pair; a set that needs two stacks; the same
#: pair, from a receiver set whose third host is unreachable.
STACKS = [[], [("h1", "h2")], [("h3", "h4"), ("h1",)], [("h1", "h2")]]
#: The part that the driver knew when it made the plan.
SHIPPED = [STACKS[0], STACKS[1], None, None]


def sent(
    delivery: int, part: int, frames: int, messages: int, datagram_bytes: int
) -> dict[str, Any]:
    return {
        "kind": "template",
        "delivery": delivery,
        "part": part,
        "receivers": STACKS[delivery][part] if SHIPPED[delivery] is None else None,
        "frames": frames,
        "messages": messages,
        "bytes": datagram_bytes + frames * (16 + 2 * part),
        "datagram_bytes": datagram_bytes,
    }


def by_subscriber(report: BatchReport) -> dict[str, dict[str, int]]:
    """Notifications, messages and bytes for each subscriber, from all publishers."""
    columns = report.subscriber_columns
    totals: dict[str, dict[str, int]] = {}
    for index, host in enumerate(columns["subscriber"]):
        sums = totals.setdefault(host, dict.fromkeys(("notifications", "messages", "bytes"), 0))
        for name in sums:
            sums[name] += columns[name][index]
    return totals


def test_a_notification_in_several_frames_is_one_publication():
    rows = [sent(2, 0, 3, 7, 900), sent(2, 1, 3, 7, 900)]
    assert BatchReport(rows, SHIPPED).publications() == [
        {
            "receivers": ["h1", "h3", "h4"],
            "notifications": 3,
            "messages": 7,
            "datagram_bytes": 900,
        }
    ]


def test_receiver_sets_that_are_not_in_the_plan_are_merged_across_workers():
    def unplanned(
        delivery: int, part: int, receivers: list[str], receiver_set: list[str], frames: int
    ) -> dict[str, Any]:
        row = {"kind": "template", "delivery": delivery, "part": part, "receivers": receivers}
        sizes = {"messages": frames, "bytes": 100 * frames, "datagram_bytes": 90 * frames}
        return row | sizes | {"frames": frames, "receiver_set": receiver_set}

    rows = [
        # Two workers use the numbers 4 and 5 in opposite ways; one set needs two frames.
        unplanned(4, 0, ["h1", "h2"], ["h1", "h2"], 3),
        unplanned(5, 0, ["h3"], ["h3", "h4"], 2),
        unplanned(5, 1, ["h4"], ["h3", "h4"], 2),
        unplanned(5, 0, ["h1", "h2"], ["h1", "h2"], 10),
        unplanned(4, 0, ["h3"], ["h3", "h4"], 20),
        unplanned(4, 1, ["h4"], ["h3", "h4"], 20),
        sent(1, 0, 100, 100, 9_000),
    ]
    report = BatchReport(rows, SHIPPED)
    counts = {tuple(r["receivers"]): r["notifications"] for r in report.publications()}
    assert counts == {("h1", "h2"): 113, ("h3", "h4"): 22}
    hosts = {host: row["notifications"] for host, row in by_subscriber(report).items()}
    assert hosts == {"h1": 113, "h2": 113, "h3": 22, "h4": 22}


def test_tasks_and_deliveries_of_equal_receivers_are_one_row():
    rows = [sent(1, 0, 2, 5, 400), sent(3, 0, 1, 1, 100), sent(1, 0, 4, 4, 500)]
    (row,) = BatchReport(rows, SHIPPED).publications()
    assert row == {
        "receivers": ["h1", "h2"],
        "notifications": 7,
        "messages": 10,
        "datagram_bytes": 1000,
    }


@given(
    st.lists(st.tuples(st.integers(1, 3), *[st.integers(1, 99)] * 3), max_size=12),
)
def test_publications_agree_with_the_counts_of_subscribers(work: list[tuple[int, int, int, int]]):
    rows = [
        sent(delivery, part, frames, frames * messages, size * frames)
        for delivery, frames, messages, size in work
        for part in range(len(STACKS[delivery]))
    ]
    report = BatchReport(rows, SHIPPED)
    publications, subscribers = report.publications(), by_subscriber(report)
    sets = [tuple(row["receivers"]) for row in publications]
    assert sets == sorted(set(sets))
    for host in ("h1", "h2", "h3", "h4"):
        host_rows = [row for row in publications if host in row["receivers"]]
        counts = subscribers.get(host, {"notifications": 0, "messages": 0})
        for column in ("notifications", "messages"):
            assert sum(row[column] for row in host_rows) == counts[column]


def test_rows_of_several_publishers_are_separate():
    sets = [(), ("h1", "h2"), ("h3",)]
    unplanned = ["h1", "h3"]
    sizes = {"kind": "template", "messages": 2, "bytes": 90, "datagram_bytes": 80}

    def row(publisher: int, delivery: int, frames: int, part: int = 0, **receivers: list[str]):
        return {"publisher": publisher, "delivery": delivery, "part": part} | {
            "frames": frames, **sizes, **receivers
        }  # fmt: skip

    rows = [
        row(0, 1, 3),
        row(1, 1, 5),
        # Two workers number a set differently that is not in the plan.
        row(1, 3, 7, receiver_set=unplanned),
        row(1, 4, 11, receiver_set=unplanned),
        row(0, 2, 13),
        row(0, 1, 17),
    ]
    names = "feed1", "feed2"
    publishers = Publishers(names, names, np.arange(2, dtype=np.int32), "partition")
    report = BatchReport(rows, Reach([[]], publishers, sets))
    columns = report.publication_columns
    assert list(
        zip(columns["publisher"], columns["receivers"], columns["notifications"], strict=True)
    ) == [
        ("feed1", ["h1", "h2"], 20),
        ("feed1", ["h3"], 13),
        ("feed2", ["h1", "h2"], 5),
        ("feed2", ["h1", "h3"], 18),
    ]
    subscribers = report.subscriber_columns
    assert list(
        zip(*(subscribers[n] for n in ("publisher", "subscriber", "notifications")), strict=True)
    ) == [
        ("feed1", "h1", 20),
        ("feed1", "h2", 20),
        ("feed1", "h3", 13),
        ("feed2", "h1", 23),
        ("feed2", "h2", 5),
        ("feed2", "h3", 18),
    ]
    assert by_subscriber(report)["h1"]["notifications"] == 43
