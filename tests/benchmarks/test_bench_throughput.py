"""The benchmark of throughput: what it sends and compares is right, and it adds up what it saw."""

from __future__ import annotations

import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from delivery_cases import ADDRESSING, ITCH, NETWORK, TREES, VERSIONS, batches_of
from kafka.record.default_records import DefaultRecordBatch

from benchmarks.pipeline import document, processor, program
from benchmarks.pipeline.oracle import Oracle, digest
from benchmarks.pipeline.producer import AT_ONCE, RecordBatch, StampedBatch, orders
from benchmarks.pipeline.spark_program import records_a_batch
from benchmarks.pipeline.throughput import CORE, FLOORS, MAIN, OURS, say
from benchmarks.pipeline.ways import Seen, Turn
from benchmarks.pipeline.workload import MOST, Packets, Rules
from benchmarks.support.results import Lines, load
from stackcast.udfs.delivery.plan import Planner
from stackcast.udfs.delivery.task import Task
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.readers import Packets as Reader
from stackcast.udfs.messages.reference import read_message, read_packet
from stackcast.udfs.messages.sequence import Topic, session_id

pytestmark = pytest.mark.unit

RULES = Rules.make(300, hosts=4)


@functools.cache
def mixed() -> Packets:
    return Packets.mixed(400)


@pytest.mark.integration
@pytest.mark.parametrize("zstd", [False, True])
def test_kafka_python_reads_the_batches_that_the_producer_makes(zstd: bool):
    values = mixed().values(0, 300)
    batch = RecordBatch(values, zstd)
    read = DefaultRecordBatch(batch.data.tobytes())
    assert read.validate_crc()
    if zstd:
        # kafka-python has no zstd of its own here; ours is held against it elsewhere.
        assert read.compression_type == 4
        assert len(batch.data) < sum(map(len, values))
    else:
        assert [(record.offset, bytes(record.value)) for record in read] == list(enumerate(values))


def test_a_stamp_reaches_every_message_of_a_batch_and_the_batch_stays_sound():
    packets = Packets.make(RULES, 9, (1, 4), 0.5)
    batch = StampedBatch(packets, 3, 8)
    batch.stamp(1 << 60)
    read = DefaultRecordBatch(batch.data.tobytes())
    assert read.validate_crc()
    stamps = [
        read_message(ITCH, message)["add_order.order_reference_number"]
        for record in read
        for message in read_packet(bytes(record.value))[2]
    ]
    assert stamps == [1 << 60] * (packets.first[8] - packets.first[3])


@pytest.mark.parametrize(("pool", "count", "partitions"), [(1_300, 4_001, 2), (100, 7, 3)])
def test_what_is_written_is_known_by_partition(pool: int, count: int, partitions: int):
    written = orders(pool, count, partitions)
    assert sum(map(len, written)) == count
    assert max(map(len, written)) - min(map(len, written)) <= 1
    assert written[0][: min(AT_ONCE, pool)][:2] == [0, 1]
    assert all(0 <= number < pool for numbers in written for number in numbers)


def test_the_mix_has_all_types_of_messages_and_packets_of_all_sizes():
    packets = Packets.mixed(20_000)
    types = {int(kind) for kind in packets.data[packets.start + 2]}
    assert len(types) == 23
    sizes = np.bincount(np.diff(packets.first))
    assert (len(sizes) - 1, sizes[0]) == (MOST, 0)
    # Zipf's law: twice the size, half as many.
    assert sizes[1] / sizes[2] == pytest.approx(2, rel=0.1)
    for value in packets.values(0, 300):
        for message in read_packet(value)[2]:
            read_message(ITCH, message)


def test_packets_that_are_joined_are_those_of_all_parts_in_turn():
    parts = [Packets.make(RULES, 5, (1, 3), 1.0), mixed(), Packets.make(RULES, 4, (2, 2), 0.0)]
    joined = Packets.joined(parts)
    assert joined.values(0, joined.count) == [v for p in parts for v in p.values(0, p.count)]
    kinds = np.concatenate([part.data[part.start + 2] for part in parts])
    assert joined.data[joined.start + 2].tolist() == kinds.tolist()
    assert np.diff(joined.first).tolist() == [n for p in parts for n in np.diff(p.first)]


def test_the_oracle_and_our_task_make_the_same_frames():
    subscriptions = [
        Subscription(f"s{number}", f"h{host}", text)
        for number, (host, text) in enumerate(zip(RULES.host.tolist(), RULES.texts(), strict=True))
    ]
    compilation = Planner(Reader(ITCH), ADDRESSING).plan(subscriptions, NETWORK, TREES, VERSIONS)
    stacks = compilation.header_stacks
    oracle = Oracle(compilation.plan, stacks, RULES)
    packets = Packets.joined([Packets.make(RULES, 200, (1, 35), 0.5), Packets.mixed(200)])
    values = packets.values(0, packets.count)
    expected = {
        digest(frame)
        for offset, value in enumerate(values)
        for frame in oracle.frames(value, session_id(Topic("t"), 3), offset)
    }
    task = Task(compilation.plan, SimpleNamespace(value=stacks), Topic("t"), 0, {})
    found = set()
    rows = [(3, offset, value) for offset, value in enumerate(values)]
    for batch in batches_of(rows, [100], False):
        frames = task.add(batch)
        data, borders = frames.data.tobytes(), frames.offsets.tolist()
        found |= {digest(data[a:b]) for a, b in pairwise(borders)}
    assert len(found) > 500
    assert found == expected


def test_a_turn_counts_records_between_batches_and_cores_between_looks():
    turn = Turn()
    first = Seen(1, 100, 10.0, 10.2, 50, 500, {("driver", 7): 1.0, ("kernel: driver", 7): 0.5})
    last = Seen(1, 1_100, 14.0, 14.2, 850, 8_500, {("driver", 7): 5.0, ("kernel: driver", 7): 1.5})
    turn.add(first, last)
    turn.add(first, last)
    assert (turn.records, turn.seconds, turn.rate) == (2_000, 8.0, 250.0)
    assert (turn.frames, turn.frame_bytes) == (1_600, 16_000)
    assert turn.cores == {"driver": 8.0, "kernel: driver": 2.0}


def test_processor_time_is_that_of_the_process_and_its_share_in_the_kernel():
    me = {os.getpid(): "me"}
    before, clock = processor.used(me), time.process_time()
    while time.process_time() < clock + 0.3:
        pass
    spent = processor.between(before, processor.used(me))
    assert spent["me"] == pytest.approx(time.process_time() - clock, abs=0.1)
    assert processor.in_all(spent) == spent["me"]
    assert processor.in_kernel(spent) == spent["kernel: me"] <= spent["me"]


def test_what_a_process_had_used_is_not_given_back_as_it_ends():
    # As in Spark's daemon of workers: nobody has the time of a child that ends.
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    me = {os.getpid(): "me"}
    try:
        while processor.used(me).get(("me", child.pid), 0.0) < 0.3:
            time.sleep(0.01)
        before = processor.used(me)
    finally:
        child.kill()
        child.wait()
        signal.signal(signal.SIGCHLD, usual)
    assert processor.between(before, processor.used(me))["me"] >= 0


class Counting(program.Program):
    """A pass is three records."""

    def read(self, order: program.Order, number: int) -> None:
        self.seen = program.Look(number, self.seen.records + 3, 5.0)
        if order.topic == "bad":
            raise ValueError("no such\ntopic")


def told(monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    out = io.StringIO()
    Counting().serve(out)
    return out.getvalue().splitlines()


def test_a_program_answers_each_command_by_one_line(monkeypatch):
    answers = told(
        monkeypatch, "go t 2 3 1 all", "halt", "look", "go bad 2 3 1 all", "halt", "look"
    )
    assert answers[:3] == ["ready", "go", "halt"]
    assert answers[3] == "0 3 0.0"
    assert answers[6] == "failed ValueError('no such\\ntopic')"


def test_a_topic_is_a_dozen_batches_at_least_and_none_is_too_small():
    assert [records_a_batch(n) for n in (3, 120_000, 10**8)] == [1_000, 10_000, 400_000]


def test_the_tables_say_what_the_turns_took(tmp_path):
    turns = [
        Turn(1_000, 900, 9_000, 1.0, {"driver": 0.002, "kernel: driver": 0.001, "benchmark": 0.5}),
        Turn(3_000, 2_700, 9_000, 2.0, {"driver": 0.006, "kernel: driver": 0.001, "benchmark": 0}),
    ]
    lines = Lines("pipeline", "throughput", tmp_path)
    for way in CORE:
        say(lines, MAIN.name, way, turns)
    steps = ("fetch", 0.5), ("match", 0.75), ("frame", 1.0), ("udp", 2.5), ("af_xdp", 1.5)
    for work, spent in steps:
        lines.say("account", work=work, microseconds=spent, in_kernel=0.25)
    found = load("pipeline", "throughput", tmp_path)
    assert found[0]["microseconds"] == 2.0
    assert found[0]["in_kernel"] == 0.5
    table = document.throughput(found)
    assert f"| {OURS} | 1,250 | 1,000 / 1,500 |  | **2.00** | 0.50 |" in table
    assert "| 1.00 x |" in table
    account = document.account(found)
    assert "| decode and match | 0.75 | 0.25 | 0.00 |" in account
    # Each sink is compared with what is done without any.
    assert "| send, tunnel | 2.50 | 1.50 | 0.00 |" in account
    assert "| send, AF_XDP | 1.50 | 0.50 | 0.00 |" in account
    assert f"| {OURS} |  |  |  |  | 2.00 |  | 125.00 |" in document.components(found)
    assert document.workloads(found).count("\n") == 2 + len(CORE)
    assert set(FLOORS) < set(CORE)
    assert json.dumps(found)
