"""What a batch writes about itself, from the rows that its tasks reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.stream.report import BatchReport, Reach
from stackcast.udfs.delivery.publishers import Publishers

pytestmark = pytest.mark.unit

#: By delivery the receivers of each stack: nobody; a pair; a set too large for one stack; the pair
#: once more, of a receiver set whose third host cannot be reached.
STACKS = [[], [("h1", "h2")], [("h3", "h4"), ("h1",)], [("h1", "h2")]]
#: What of it the driver knew when it made the plan.
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


def test_a_notification_in_several_frames_is_one_publication_to_all_their_receivers():
    rows = [sent(2, 0, 3, 7, 900), sent(2, 1, 3, 7, 900)]
    assert BatchReport(rows, SHIPPED).publications() == [
        {
            "receivers": ["h1", "h3", "h4"],
            "notifications": 3,
            "messages": 7,
            "datagram_bytes": 900,
        }
    ]


def test_sets_that_workers_met_count_by_their_receivers_whatever_each_worker_calls_them():
    def met(delivery: int, part: int, told: list[str], whole: list[str], frames: int):
        made = {"kind": "template", "delivery": delivery, "part": part, "receivers": told}
        sizes = {"messages": frames, "bytes": 100 * frames, "datagram_bytes": 90 * frames}
        return made | sizes | {"frames": frames, "receiver_set": whole}

    rows = [
        # One worker's 4 and 5 are another's 5 and 4; one of them leaves in two frames.
        met(4, 0, ["h1", "h2"], ["h1", "h2"], 3),
        met(5, 0, ["h3"], ["h3", "h4"], 2),
        met(5, 1, ["h4"], ["h3", "h4"], 2),
        met(5, 0, ["h1", "h2"], ["h1", "h2"], 10),
        met(4, 0, ["h3"], ["h3", "h4"], 20),
        met(4, 1, ["h4"], ["h3", "h4"], 20),
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
        mine = [row for row in publications if host in row["receivers"]]
        counts = subscribers.get(host, {"notifications": 0, "messages": 0})
        for column in ("notifications", "messages"):
            assert sum(row[column] for row in mine) == counts[column]


def test_rows_of_several_publishers_are_told_apart():
    sets = [(), ("h1", "h2"), ("h3",)]
    met = ["h1", "h3"]
    sizes = {"kind": "template", "messages": 2, "bytes": 90, "datagram_bytes": 80}

    def row(publisher: int, delivery: int, frames: int, part: int = 0, **told: list[str]):
        return {"publisher": publisher, "delivery": delivery, "part": part} | {
            "frames": frames, **sizes, **told
        }  # fmt: skip

    rows = [
        row(0, 1, 3),
        row(1, 1, 5),
        # A set that the plan has not, by the numbers of two workers.
        row(1, 3, 7, receiver_set=met),
        row(1, 4, 11, receiver_set=met),
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
