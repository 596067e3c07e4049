"""The benchmark of the whole path: its workload is what it says, and its figures are read right."""

from __future__ import annotations

import json
import socket
from bisect import bisect_left

import numpy as np
import pytest

from benchmarks.pipeline import document, memory, pictures, stream
from benchmarks.pipeline.document import MARK
from benchmarks.pipeline.growth import worse_than_linear
from benchmarks.pipeline.latency import quantiles
from benchmarks.pipeline.receiver import LOOKED_AT, read_frames
from benchmarks.pipeline.wire import Wire
from benchmarks.pipeline.workload import DEAR, FOLLOWERS, Packets, Rules, names
from benchmarks.pipeline.world import FABRICS, network_of, properties
from benchmarks.support.results import Lines, load
from benchmarks.support.tables import pages
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.wire.options import SinkOptions
from stackcast.jobs.adapters.wire.udp import UdpSink
from stackcast.udfs.filters.compiler.compile import compile_texts
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.messages.moldudp64 import decode
from stackcast.udfs.messages.reference import build_packet, read_message, read_packet
from stackcast.udfs.stacks.frame import header_template

pytestmark = pytest.mark.unit

RULES = Rules.make(400, hosts=16)
RANKS = {name: rank for rank, name in enumerate(names(0, RULES.stocks).tolist())}


def asked_for(stock: bytes, price: int) -> bool:
    """Brute force: every one of RULES against one order."""
    return bool(((RULES.stock == RANKS.get(stock, -1)) & (RULES.price < price)).any())


@pytest.mark.parametrize("share", [0.0, 0.05, 1.0])
def test_as_many_messages_match_as_were_asked_for(itch, share: float):
    packets = Packets.make(RULES, 60, (1, 35), share)
    orders = []
    for value in packets.values(0, packets.count):
        for message in read_packet(value)[2]:
            event = read_message(itch, message)
            orders.append((event["add_order.stock"], event["add_order.price"]))
    assert len(orders) == packets.messages
    matching = [asked_for(int(s).to_bytes(8), p) for s, p in orders]
    assert sum(matching) == round(share * len(orders))


def test_the_ladders_of_other_ways_reach_whom_our_filter_reaches(itch):
    rules = Rules.make(2_000, hosts=16)
    texts = [
        f"{text} : fwd(h{host})"
        for text, host in zip(rules.texts(), rules.host.tolist(), strict=True)
    ]
    matcher = Matcher(compile_texts(texts, itch))
    packets = Packets.make(rules, 200, (1, 5), 0.5)
    fields = [itch.field(name) for name in matcher.fields]
    read = decode(itch, packets.offsets.astype(np.int32), packets.data, fields)
    leaf = matcher.match(read.message_type, read.values)
    ladders = rules.ladders()
    for number, (stock, price) in zip(leaf.tolist(), read.values.T.tolist(), strict=True):
        prices, sets = ladders.get(int(stock).to_bytes(8), ([], [()]))
        assert matcher.receivers[number] == sets[bisect_left(prices, price)]


def test_a_stock_has_few_followers_and_more_rules_keep_the_first_ones():
    more = Rules.make(4_000, hosts=128)
    for stock in range(more.stocks):
        assert len(set(more.host[more.stock == stock].tolist())) <= FOLLOWERS
    assert more.price.max() < DEAR
    fewer = Rules.make(2_000, hosts=128)
    assert fewer.texts() == more.texts()[:2_000]
    assert fewer.host.tolist() == more.host[:2_000].tolist()


def test_a_stamp_is_in_every_message_of_its_packets_and_in_no_other(itch):
    packets = Packets.make(RULES, 9, (1, 4), 0.5)
    packets.stamp(3, 5, 1 << 60)
    for number, value in enumerate(packets.values(0, 9)):
        stamps = {
            read_message(itch, message)["add_order.order_reference_number"]
            for message in read_packet(value)[2]
        }
        assert (stamps == {1 << 60}) == (3 <= number < 5)


def test_the_receiver_reads_the_first_order_behind_a_stack_of_any_length():
    order = b"A" + bytes(10) + (77 << 40).to_bytes(8) + bytes(17)
    packet = build_packet(b"SESSION001", 5, [order, order])
    frames = np.zeros((128, LOOKED_AT), np.uint8)
    for row in range(128):
        port = 26400 + row % 2
        frame = header_template([0x4001] * (1 + row // 2), 1, 2, 0xE9360C01, port) + packet
        frames[row, : len(frame)] = np.frombuffer(frame, np.uint8)
    mine, reference = read_frames(frames, 26400)
    assert mine.tolist() == [row % 2 == 0 for row in range(128)]
    assert set(reference.tolist()) == {77 << 40}


def report(batch: int, second: float, seconds: float, rows: int) -> str:
    stamp = f"2026-01-01T00:00:{second:06.3f}Z"
    duration = {"triggerExecution": round(seconds * 1000)}
    before = {"t": {"0": 400, "1": 50}} if batch else None
    after = {"t": {"0": 400 + rows, "1": 50}} if batch else {"t": {"0": rows}}
    source = {"startOffset": before, "endOffset": after}
    return json.dumps(
        {"batchId": batch, "timestamp": stamp, "durationMs": duration, "sources": [source]}
    )


@pytest.mark.integration
def test_frames_that_the_kernel_cuts_from_one_message_are_all_counted():
    wire = Wire.make_tunnel()
    frames, size = 640, 100
    data, offsets = np.zeros(frames * size, np.uint8), np.arange(frames + 1) * size
    with wire.hold() as far:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        before = wire.sent()
        sink = UdpSink(SinkOptions("udp", endpoint=wire.near))
        sent = 0
        while sent < frames:
            sent += sink.send(data, offsets[sent:])
        sink.close()
        # What waits to be read is not counted yet; what others send meanwhile is.
        assert wire.sent() - before >= 0.9 * frames


def test_the_rate_begins_after_the_warm_batches_and_counts_pauses():
    reports = [
        report(0, 1, 9, 100),
        report(1, 10, 2, 300),
        report(1, 10, 2, 300),
        report(2, 13, 1, 300),
        report(3, 14, 1, 0),
    ]
    drained = stream.Drained(stream.batches_of(reports))
    assert drained.records == 700
    assert drained.rate(100) == 600 / 4
    with pytest.raises(ValueError, match="700"):
        drained.rate(700)


def test_only_events_of_the_measured_time_count():
    seen = np.array([[10, 1_000_010], [20, 3_000_020], [30, 9_000_030]], np.int64)
    figures = quantiles(seen, 10, 30)
    assert (figures["events"], figures["p50_ms"], figures["most_ms"]) == (2, 2.0, 3.0)
    with pytest.raises(ValueError, match="3 others"):
        quantiles(seen, 100, 200)


def test_memory_that_grows_in_the_second_half_is_seen_and_that_of_the_first_is_not():
    early = [{"records": n * 1e6, "workers": min(n, 5) * 100.0} for n in range(1, 11)]
    assert memory.growth(early, "workers") == pytest.approx((0, 0))
    late = [{"records": n * 1e6, "workers": 100.0 + max(0, n - 5) * 10} for n in range(1, 11)]
    assert memory.growth(late, "workers") == pytest.approx((0.5, 10))


def test_committed_records_are_those_of_the_last_committed_batch(tmp_path):
    assert memory.committed(tmp_path, "t") == 0
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for batch in (8, 9, 10, 11):
        text = json.dumps({"t": {"0": batch * 10, "1": batch}})
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{text}")
        if batch < 11:
            (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    assert memory.committed(tmp_path, "t") == 110


def test_a_step_that_costs_more_than_it_adds_is_named():
    assert worse_than_linear([1, 10, 100], [1, 10.5, 90]) == []
    assert worse_than_linear([1, 10, 100], [1, 9, 120]) == ["10→100"]


def test_a_job_is_started_with_the_settings_of_the_stream():
    settings = Settings(topic="t", interface="i", kafka={"bootstrap.servers": "h:1"})
    assert Settings.read(properties(settings).items()).topic == "t"
    assert properties(settings) == {
        "spark.stackcast.topic": "t",
        "spark.stackcast.sink.af_packet.interface": "i",
        "spark.stackcast.kafka.bootstrap.servers": "h:1",
    }


@pytest.mark.parametrize("hosts", [16, 100, 128, 1_000])
def test_networks_have_the_hosts_that_they_are_named_for(hosts: int):
    assert len(network_of(hosts).subscribers()) == hosts
    assert hosts in FABRICS


def test_tables_come_from_the_lines_and_those_of_parts_that_never_ran_stay():
    lines = {part: [] for part in document.PARTS}
    floor = {"name": "floor", "what": "p50", "value": 12.5, "floor": 10, "unit": "ms"}
    lines["realtime"] = [floor | {"least": False, "held": False}]
    text = document.filled(
        "<!-- table pipeline floors realtime -->\nold\n<!-- end -->\n"
        "<!-- table pipeline floors memory -->\nold\n<!-- end -->\n"
        "<!-- table pipeline throughput -->\nold\n<!-- end -->\n",
        lines,
    )
    assert "| p50 | 12.5 ms | ≤ 10 ms | **missed** |\n<!-- end -->" in text
    assert text.count("old") == 2


def test_the_pages_contain_every_table():
    text = "".join(page.read_text("utf-8") for page in pages("pipeline"))
    marked = {match[2] for match in MARK.finditer(text)}
    assert marked == set(document.TABLES)
    growing = {"axis": "hosts", "size": 16, "plan": 1.0, "first_batch": 2.0, "batch": 0.5}
    lines = [
        {"name": "growth"} | growing,
        {"name": "linear", "axis": "hosts", "step": "plan", "worse": ["16→100"]},
    ]
    assert "| 16 hosts | plan | 1 | 16→100 |" in document.growth(lines)
    costs = {"plan_seconds": 0.5, "plan_bytes": 2e6, "pairs": 12_345, "pair_bytes": 3e6}
    each = {"first_packet_us": 70.4, "packet_us": 0.82}
    lines = [{"name": "publishers", "publishers": 1_000} | costs | each]
    assert "| 1,000 | 0.50 | 2.00 | 12,345 | 3.00 | 70 | 0.82 |" in document.publishers(lines)
    lines = [{"name": "executors", "executors": 2, "packet_us": 9.0, "parts": {"JVM": 5.0}}]
    assert document.executors(lines).endswith("| 2 | **9.00** | 5.00 |\n")


def test_pictures_show_what_the_lines_say(tmp_path, monkeypatch):
    for part in ("throughput", "peers", "growth"):
        monkeypatch.setattr(pictures, "load", lambda name, part: load(name, part, tmp_path))
        assert load("pipeline", part, tmp_path) == []
    assert pictures.draw(tmp_path) == []
    Lines("pipeline", "throughput", tmp_path).say(
        "way",
        case="5 % match",
        way="Java consumer",
        records_per_second=50.0,
        parts={"driver": 2.0, "broker": 0.5},
    )
    lines = Lines("pipeline", "growth", tmp_path)
    for size in (1, 2):
        lines.say("growth", axis="hosts", size=size, plan=1.0, first_batch=2.0, batch=0.0)
    drawn = [path.name for path in pictures.draw(tmp_path)]
    assert drawn == ["pipeline-rates.svg", "pipeline-growth.svg"]
    assert "Java consumer" in (tmp_path / drawn[0]).read_text("utf-8")
    assert "Cost by hosts" in (tmp_path / drawn[1]).read_text("utf-8")


def test_a_peer_that_spark_refuses_has_the_code_of_the_error_in_its_row():
    figures = {"records_per_second": 2_000, "p50_ms": 1.25, "p99_ms": 150.0, "highest_rate": 9e5}
    lines = [
        {"program": "stackcast", **figures},
        {"program": "foreachBatch", "why": "[STREAMING_REAL_TIME_MODE.SINK_NOT_SUPPORTED] The ..."},
        {"name": "seconds", "value": 7},
    ]
    assert document.spark_realtime(lines).splitlines()[2:] == [
        "| stackcast | 1.25 ms | 150 ms | 900 K |",
        "| foreachBatch | refused: `STREAMING_REAL_TIME_MODE.SINK_NOT_SUPPORTED` |  |  |",
    ]
    assert "p50 at 2,000 records/s" in document.spark_realtime(lines)
    assert document.spark_realtime(lines[2:]) == ""
