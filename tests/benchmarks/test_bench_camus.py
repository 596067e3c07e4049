"""The benchmark of CAMUS: its queue is one, workloads are as told, all filters find the same."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.camus import document, host, queue, queueing, switch, workloads
from benchmarks.camus.compiling import Diagrams
from benchmarks.camus.queueing import Load
from benchmarks.camus.sockets import GROUP, PORT, outcome, predicted_queue, wanted_packet
from benchmarks.camus.told import TOLD, Told, curve
from benchmarks.camus.workloads import WORKLOADS, Drawn
from benchmarks.compile import independent
from benchmarks.p4.workloads import PUBLISHER
from benchmarks.support.results import Lines, load
from benchmarks.support.tables import pages
from stackcast.lab.traffic.packets import write_records
from stackcast.lab.traffic.trading_session import TradingSession

pytestmark = pytest.mark.unit

TIMES = st.integers(0, 50)


@examples(200)
@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=40))
def test_waits_are_those_of_a_server_that_takes_one_after_the_other(steps):
    gaps, services = zip(*steps, strict=True)
    arrivals = np.cumsum(gaps)
    free, expected = 0, []
    for arrived, service in zip(arrivals.tolist(), services, strict=True):
        begins = max(free, arrived)
        expected.append(begins - arrived)
        free = begins + service
    found = queueing.waits(arrivals.astype(float), np.array(services, float))
    assert found.tolist() == expected


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.8])
def test_waits_have_the_mean_of_the_closed_forms(busy):
    """M/D/1 and M/M/1: Pollaczek and Khinchine."""
    random, count = np.random.default_rng(1), 400_000
    arrivals = np.cumsum(random.exponential(1 / busy, count))
    constant = queueing.waits(arrivals, np.ones(count)).mean()
    assert constant == pytest.approx(busy / (2 * (1 - busy)), rel=0.05)
    drawn = queueing.waits(arrivals, random.exponential(1.0, count)).mean()
    assert drawn == pytest.approx(busy / (1 - busy), rel=0.05)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
def test_a_workload_has_its_share_and_its_packets(workload):
    drawn = workload.draw(60_000)
    share = drawn.wanted.mean()
    spread = np.sqrt(workload.share * (1 - workload.share) / len(drawn.wanted))
    assert abs(share - workload.share) <= 4 * spread
    assert drawn.kept.sum() == drawn.wanted.sum() and (drawn.kept <= drawn.sizes).all()
    if workload.messages == "zipf":
        # One in 1 + 1/2 + ... + 1/12 has a single message, and a twelfth of these have twelve.
        of = [float((drawn.sizes == size).mean()) for size in (1, 12)]
        harmonic = sum(1 / size for size in range(1, 13))
        assert of == pytest.approx([1 / harmonic, 1 / harmonic / 12], rel=0.1)
    else:
        assert set(drawn.sizes.tolist()) == {1 if workload.messages == "one" else 12}


def test_bursts_have_their_mean_and_leave_no_packet_out():
    first = workloads.bursts(200_000, 32.0, np.random.default_rng(1).random)
    assert first[0] == 0 and first[-1] == 200_000 and (np.diff(first) > 0).all()
    assert np.diff(first).mean() == pytest.approx(32, rel=0.05)
    assert len(workloads.bursts(10, 1.0, np.random.default_rng(1).random)) == 11


def test_a_filter_that_lets_all_pass_changes_no_time():
    drawn = WORKLOADS[-1].draw(2_000)
    at = Load(20.0, 100.0, 0.1)
    both = [queueing.latencies(drawn, at, way) for way in (True, False)]
    assert (both[0] == both[1]).all() and len(both[0]) == 24_000


def test_without_a_queue_at_the_host_its_filter_is_as_quick_as_the_switchs():
    drawn = WORKLOADS[0].draw(5_000)
    free = Load(20.0, 0.0, 0.1)
    assert np.allclose(*(queueing.latencies(drawn, free, way) for way in (True, False)))
    busy = Load(20.0, 400.0, 0.1)
    filtered, plain = (queueing.latencies(drawn, busy, way) for way in (True, False))
    assert (filtered <= plain).all() and filtered.mean() < plain.mean() / 2


def test_the_fit_goes_through_the_texts_points():
    drawn, told = WORKLOADS[0].draw(20_000), TOLD["synthetic, 5 %"]
    at = queue.fitted(drawn, told, Load(1.0, 1.0, 0.1))
    for way, (share, us) in ((True, told.switch), (False, told.host)):
        took = queueing.latencies(drawn, at, way)
        assert queueing.within(took, us * 1000) == pytest.approx(share, abs=0.005)
    assert 0 < at.host(drawn) < 1


def test_a_measure_of_the_text_is_that_of_curves_which_it_describes():
    ones = np.arange(1, 1001) / 1000
    assert Told("", (0.99, 20.0), (0.99, 500.0)).seen(20 * ones, 500 * ones) == pytest.approx(25)
    late = Told("", (1.0, 100.0), (0.84, 100.0))
    assert late.seen(100 * ones, 100 * ones / 0.84) == pytest.approx(0.84)
    assert late.value == 0.84 and late.same_time
    assert curve(ones[:20])[-2:] == [(0.019, 0.95), (0.02, 1.0)]


def test_host_and_switch_find_the_orders_that_are_wanted():
    made = switch.network()
    drawn = WORKLOADS[0].draw(120)
    frames = workloads.frames_of(
        drawn, workloads.orders_of(drawn), made.hosts[PUBLISHER], GROUP, PORT
    )
    wanted = np.flatnonzero(drawn.wanted)
    find = host.Filter()
    plain = workloads.joined(frame[workloads.HEADERS - 20 :] for frame in frames)
    counts, reference, packet = find(*plain)
    assert (counts == drawn.sizes).all() and (reference == wanted).all()
    assert (packet == drawn.packet[wanted]).all()
    # The switch lets these packets through, each with these orders alone, as before the wire.
    running = switch.loaded(made)
    out = [running.process(made.hosts[PUBLISHER].port, frame) for frame in frames]
    assert [len(copies) for copies in out] == (drawn.kept > 0).astype(int).tolist()
    payloads = [copies[0][1][workloads.HEADERS - 20 :] for copies in out if copies]
    assert payloads == [
        wanted_packet(frame[workloads.HEADERS - 20 :])
        for frame, kept in zip(frames, drawn.kept, strict=True)
        if kept
    ]
    assert (find(*workloads.joined(payloads))[1] == wanted).all()


def test_frames_of_any_length_are_cut_to_their_packets():
    frames = np.zeros((2, 60), np.uint8)
    frames[0, 42:50], frames[1, 42:45] = 7, 9
    data, borders = host.packets_in(frames, np.array([50, 45]))
    assert data.tolist() == [7] * 8 + [9] * 3 and borders.tolist() == [0, 8, 11]


def test_times_are_those_between_stamps():
    """Two packets of one and of two orders, the second of each burst of its own."""
    drawn = Drawn(np.array([1, 2]), np.array([True, False, True]))
    seen = host.Seen(
        *(np.array(each) for each in ([130, 250], [150, 260], [155, 290], [1, 2], [0, 2], [0, 1]))
    )
    found = outcome(drawn, np.array([0, 1, 2]), np.array([100, 200]), seen)
    assert found.took.tolist() == [55, 90] and found.way_there.tolist() == [30, 50]
    assert found.queued.tolist() == [20, 10] and found.looked.tolist() == [5, 30]


def test_the_queue_of_a_steady_host_is_predicted_as_it_was():
    arrived = np.sort(np.random.default_rng(1).integers(0, 200_000, 300))
    sizes = np.random.default_rng(2).integers(1, 4, 300)
    waited = queueing.waits(arrived.astype(float), 200.0 * sizes).astype(np.int64)
    read = arrived + waited
    assert waited.max() > 1000
    none = np.zeros(0, np.int64)
    seen = host.Seen(arrived, read, read + 200 * sizes, sizes, none, none)
    assert (predicted_queue(seen) == waited).all()


def test_orders_of_a_binary_file_keep_their_times(tmp_path: Path):
    path = tmp_path / "day.itch.gz"
    session = list(TradingSession(4_000, 1, 50))
    write_records(path, session)
    drawn, orders = workloads.read_orders(path, 10_000)
    own = [message for message in session if message[:1] == b"A"]
    assert len(orders) == len(own) and (np.diff(drawn.times) >= 0).all()
    assert drawn.wanted.tolist() == [b"GOOGL   " in message for message in own]
    assert [int.from_bytes(each[workloads.REFERENCE]) for each in orders] == list(range(len(own)))
    took = queueing.latencies(drawn, Load(1.0, 100.0, 0.1), False)
    assert len(took) == drawn.wanted.sum() and (took > 0).all()


@pytest.mark.parametrize("module", ["dd.autoref", "dd.cudd"])
def test_the_other_package_says_who_gets_what(module):
    pytest.importorskip(module)
    drawn = independent(1, 60)
    diagrams = Diagrams(module, drawn)
    diagrams.check(drawn)
    assert diagrams.nodes() > 60


def test_the_pages_contain_every_table():
    text = "".join(page.read_text("utf-8") for page in pages("camus"))
    marked = {match[2] for match in document.MARK.finditer(text)}
    assert marked == set(document.TABLES)
    # Without measured lines, nothing changes.
    assert document.filled(text, []) == text


def test_the_document_says_what_was_measured(tmp_path: Path):
    lines = Lines("camus", "compile", tmp_path)
    lines.say("compiled", way="ours", rules=1000, seconds=0.25, read=0.125, entries=2133)
    lines.say("compiled", way="dd.cudd", rules=1000, seconds=2.5)
    text = document.filled(
        "<!-- table camus compile -->\nNot measured yet.\n<!-- end -->\n",
        load("camus", "compile", tmp_path),
    )
    assert "| 1,000 | 0.250 | 0.125 | 2,133 | 2.50 |  |" in text


def test_every_claim_has_a_reason():
    assert set(document.WHY) == {each.name for each in WORKLOADS}
    assert all(re.search(r"\w{4}", why) for why in document.WHY.values())
