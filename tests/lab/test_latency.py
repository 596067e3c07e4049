"""From event to wire: a record's own time, and the kernel's when its first frame came."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.lab.fabric.hosts import LabHost
from stackcast.lab.fabric.network import Ingress
from stackcast.lab.proof.latency import (
    arrivals,
    latencies,
    percentiles,
    published_after,
    summary,
)
from stackcast.lab.proof.receipts import Receipt, receipts
from stackcast.udfs.errors import LabError
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import sequence_number

pytestmark = pytest.mark.unit

SESSION = b"SESSION001"
DELIVERIES = st.lists(
    st.tuples(
        st.sampled_from(("h1", "h2")),
        st.integers(0, 4),
        st.integers(0, 2),
        st.integers(0, 9_999_999),
        st.booleans(),
    ),
    max_size=30,
)


@examples(60)
@given(DELIVERIES)
def test_a_record_is_on_the_wire_with_the_first_of_its_frames(deliveries):
    """Whichever host got it, however often; heartbeats and strangers count for nothing."""
    received = {"h1": [], "h2": []}
    arrived = {"h1": [], "h2": []}
    published = {(SESSION, offset): 1_000 * offset for offset in range(4)}
    for host, offset, index, when, notification in deliveries:
        messages = (b"m",) if notification else ()
        received[host].append(Receipt(SESSION, sequence_number(offset, index), messages))
        arrived[host].append(when)
    found = latencies(
        received, {host: np.array(each, np.int64) for host, each in arrived.items()}, published
    )
    wanted = [
        min(w for _, o, _, w, n in deliveries if n and o == offset) / 1e6 - offset
        for offset in range(4)
        if any(n and o == offset for _, o, _, _, n in deliveries)
    ]
    assert sorted(found.tolist()) == pytest.approx(sorted(wanted))


@examples(60)
@given(st.lists(st.floats(-5, 5e6), min_size=1, max_size=200))
def test_the_histogram_has_every_record_and_its_bars_lie_side_by_side(values):
    told = summary(np.array(values))
    rows = told["histogram"]
    assert sum(row["count"] for row in rows) == told["count"] == len(values)
    assert [row["to_ms"] for row in rows[:-1]] == [row["from_ms"] for row in rows[1:]]
    assert rows[0]["count"] and rows[-1]["count"]
    inside = [value for value in values if 1 <= value < 1e6]
    for row in rows[1:-1]:
        assert row["count"] == sum(row["from_ms"] <= v < row["to_ms"] for v in inside)
    assert min(values) - 0.1 <= told["p50_ms"] <= told["p99_ms"] <= told["max_ms"]


def test_records_of_the_first_second_can_be_left_out():
    published = {(SESSION, n): 5_000_000 + 400_000 * n for n in range(5)}
    later = {(SESSION, 3): 6_200_000, (SESSION, 4): 6_600_000}
    assert published_after(published, 1.0) == later
    assert published_after(published, 0.0) == published
    assert published_after({}, 1.0) == {}
    assert percentiles(np.array([3.0, 1.0])) == {"p50_ms": 2.0, "p99_ms": 3.0, "max_ms": 3.0}


def test_without_a_record_only_the_count_is_told():
    assert summary(np.array([])) == {"count": 0}


@pytest.mark.integration
def test_hosts_write_down_when_each_frame_came(tmp_path):
    (tmp_path / "receipts").mkdir()
    host = LabHost("h1", tmp_path / "receipts" / "h1.mold")
    for number in range(300):
        host.take(build_packet(SESSION, number, [bytes(1_000)]), 10**18 + number)
    host.close()
    assert [receipt.sequence for receipt in receipts(tmp_path)["h1"]] == list(range(300))
    (times,) = arrivals(tmp_path, ["h1"]).values()
    assert times.tolist() == [10**18 + number for number in range(300)]


def test_times_that_are_cut_off_are_reported_with_the_place(tmp_path):
    (tmp_path / "receipts").mkdir()
    (tmp_path / "receipts" / "h1.times").write_bytes(bytes(8 * 3 + 5))
    with pytest.raises(LabError, match=r"TRUNCATED_RECEIPTS.*h1\.times: the time at byte 24 "):
        arrivals(tmp_path, ["h1"])


@pytest.mark.integration
def test_a_frame_has_the_kernels_time_however_late_it_is_read():
    came = []
    ingress = Ingress("feed1", lambda publisher, frame, arrived: came.append((frame, arrived)))
    host, port = ingress.address.split(":")
    ends = time.monotonic() + 600
    stamped = False
    # The first such socket of a machine has the kernel begin to stamp, which it does a moment
    # later: frames that were there before have the time when they are read.
    while not stamped and time.monotonic() < ends:
        came.clear()
        before = time.time_ns()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(3):
                sender.sendto(bytes([number]), (host, int(port)))
        after = time.time_ns()
        time.sleep(0.02)
        ingress.receive()
        assert [frame for frame, _ in came] == [b"\0", b"\1", b"\2"]
        stamped = all(before <= arrived <= after for _, arrived in came)
    ingress.close()
    assert stamped
