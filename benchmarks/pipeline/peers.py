"""Other ways from the same topic and subscriptions to the same wire.

Ways without Spark run in as many processes as the topic has partitions, one for each.
"""

from __future__ import annotations

import multiprocessing
import pickle
import struct
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.pipeline import join, stream
from benchmarks.pipeline import producer as pipeline_producer
from benchmarks.pipeline.throughput import MAIN, WARM, records_a_batch
from benchmarks.pipeline.workload import Rules
from benchmarks.pipeline.world import PARTITIONS, World
from benchmarks.support.results import Lines
from jobs.adapters.app.settings import Settings
from jobs.adapters.planning.formats import sources
from jobs.adapters.planning.plans import Plans
from jobs.adapters.planning.versions import BatchVersions
from jobs.adapters.tables.tables import Tables
from jobs.adapters.wire import SinkOptions, open_sink, sink_options
from udfs.columns import deliver
from udfs.delivery.plan import Plan
from udfs.delivery.realtime import LocalValue
from udfs.messages.sequence import session_id
from udfs.trees.header_stacks import HeaderStacks, Receivers

#: Records of the topic; a part for the slow ways.
RECORDS = 2_400_000
PARTS = {"plain Python": 8, "Spark join": 24, "a topic a subscriber": 24, "kernels, no Spark": 1}
AT_ONCE = 4_096


@dataclass(frozen=True)
class PeerTask:
    """The work of one process: ``records`` of a partition, the first ``warm`` not measured."""

    servers: str
    topic: str
    partition: int
    records: int
    warm: int
    sink: SinkOptions
    #: A pickled (plan, header stacks), all stacks known.
    plan: Path
    rules: Rules


Messages = list[Any]
Way = Callable[[PeerTask, Iterator[Messages]], int]
"""Takes all messages of a task; returns how many copies it made of them, once these are out."""


def run(world: World, lines: Lines) -> None:
    """Ours, then each other way; ratios compare records a second."""
    records = RECORDS // 8 if world.quick else RECORDS
    packets = MAIN.packets(world)
    topic = world.topic(packets, records)
    settings = world.settings(topic, max_offsets_per_trigger=records_a_batch(records))
    drained = stream.ours(world, settings, records)
    ours = drained.rate(round(WARM * records))
    lines.say(
        "peer",
        way="stackcast",
        records_per_second=ours,
        frames_a_record=drained.frames / records,
    )
    plan = pickled_plan(world, settings)
    ways: dict[str, Way] = {
        "kernels, no Spark": kernels,
        "plain Python": plain,
        "a topic a subscriber": topic_a_subscriber,
    }
    make_topics(world, topic)
    for name, way in ways.items():
        some = records // PARTS[name]
        before = world.wire.sent()
        rate, copies = in_processes(
            way,
            [
                PeerTask(
                    world.servers,
                    topic,
                    partition,
                    some // PARTITIONS,
                    round(WARM * some / PARTITIONS),
                    sink_options(settings),
                    plan,
                    world.rules,
                )
                for partition in range(PARTITIONS)
            ],
        )
        frames = world.wire.sent() - before
        say(lines, name, rate, ours, frames_a_record=frames / some, copies_a_record=copies / some)
    some = records // PARTS["Spark join"]
    topic = world.topic(packets, some)
    settings = world.settings(topic, max_offsets_per_trigger=records_a_batch(some))
    before = world.wire.sent()
    rate = join.drain(world, settings, load_plan(plan)[0], some).rate(round(WARM * some))
    frames = world.wire.sent() - before
    say(lines, "Spark join", rate, ours, frames_a_record=frames / some)


def say(lines: Lines, way: str, rate: float, ours: float, **more: Any) -> None:
    lines.say("peer", way=way, records_per_second=rate, ours_is_times=ours / rate, **more)


def pickled_plan(world: World, settings: Settings) -> Path:
    """Returns a file of (plan, header stacks) of the current tables, with all stacks worked out."""
    tables = Tables(world.spark, settings.tables)
    versions = BatchVersions(tables, settings.topic, sources(settings)).current()
    compilation = Plans(settings, tables).at(versions).compilation
    for receivers in compilation.receiver_sets:
        compilation.header_stacks.of(receivers)
    path = world.fresh("plan")
    # The stacks themselves would stay behind: the plan has them.
    with path.open("wb") as file:
        pickle.dump((compilation.with_known().plan, compilation.header_stacks), file)
    return path


def load_plan(path: Path) -> tuple[Plan, HeaderStacks]:
    with path.open("rb") as file:
        plan, stacks = pickle.load(file)
    return plan, stacks


def in_processes(way: Way, tasks: list[PeerTask]) -> tuple[float, int]:
    """Returns records a second of all together, and the copies that they made of messages."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(tasks)) as pool:
        answers = pool.map(partial(consume, way), tasks, chunksize=1)
    began, ended = min(a[0] for a in answers), max(a[1] for a in answers)
    measured = sum(task.records - task.warm for task in tasks)
    return measured / (ended - began), sum(a[2] for a in answers)


def consume(way: Way, task: PeerTask) -> tuple[float, float, int]:
    """Consumes a partition; returns begin and end of what is measured, and copies of messages."""
    consumer = Consumer(
        {
            "bootstrap.servers": task.servers,
            "group.id": "peer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": 128 << 10,
            "fetch.message.max.bytes": 4 << 20,
        }
    )
    consumer.assign([TopicPartition(task.topic, task.partition, 0)])
    began = [time.time()]

    def messages() -> Iterator[Messages]:
        seen = 0
        while seen < task.records:
            some = consumer.consume(min(AT_ONCE, task.records - seen), 30)
            if not some:
                raise TimeoutError(f"no record of {task.topic} within 30 s")
            if seen < task.warm:
                began[0] = time.time()
            seen += len(some)
            yield some

    made = way(task, messages())
    ended = time.time()
    consumer.close()
    return began[0], ended, made


def kernels(task: PeerTask, messages: Iterator[Messages]) -> int:
    """Our own pass over Arrow batches, without Spark."""
    plan, stacks = load_plan(task.plan)
    run = deliver(LocalValue(plan), LocalValue(stacks), task.topic, lambda: open_sink(task.sink), 0)
    for _ in run(batch_of(task.partition, some) for some in messages):
        pass
    return 0


def batch_of(partition: int, messages: list[Any]) -> pa.RecordBatch:
    values = [message.value() for message in messages]
    return pa.RecordBatch.from_pydict(
        {
            "partition": pa.array(np.full(len(values), partition, np.int32)),
            "offset": pa.array(np.array([m.offset() for m in messages], np.int64)),
            "value": pa.array(values, pa.binary()),
        }
    )


class Templates:
    """Frame headers by receivers, as our plan has them, and the IPv4 sum of each."""

    def __init__(self, plan: Plan, stacks: HeaderStacks) -> None:
        self._template = plan.headers._template
        self._stacks = stacks
        self._known: dict[Receivers, list[tuple[bytes, int, int]]] = {}

    def of(self, receivers: Receivers) -> list[tuple[bytes, int, int]]:
        found = self._known.get(receivers)
        if found is None:
            found = []
            for part in self._stacks.of(receivers).parts:
                template = self._template(part.labels)
                ipv4 = len(template) - 28
                total = sum(struct.unpack(">10H", template[ipv4 : ipv4 + 20]))
                found.append((template, ipv4, total))
            self._known[receivers] = found
        return found


def plain(task: PeerTask, messages: Iterator[Messages]) -> int:
    """struct, a dict of stocks with ascending thresholds, one ``send`` a frame."""
    templates = Templates(*load_plan(task.plan))
    ladders = task.rules.ladders()
    session = session_id(task.topic, task.partition)
    endpoint = open_sink(task.sink)._socket  # type: ignore[attr-defined]
    endpoint.setblocking(True)
    send, count_of, price_of = endpoint.send, struct.Struct(">H"), struct.Struct(">I")

    def frames_of(packet: bytes, offset: int) -> Iterator[bytes]:
        groups: dict[Receivers, list[tuple[int, bytes]]] = {}
        at = 20
        for index in range(count_of.unpack_from(packet, 18)[0]):
            end = at + 2 + count_of.unpack_from(packet, at)[0]
            if packet[at + 2] == 65:
                ladder = ladders.get(packet[at + 26 : at + 34])
                if ladder is not None:
                    reached = bisect_left(ladder[0], price_of.unpack_from(packet, at + 34)[0])
                    if reached:
                        receivers = ladder[1][reached]
                        groups.setdefault(receivers, []).append((index, packet[at:end]))
            at = end
        for receivers, found in groups.items():
            body = b"".join(block for _, block in found)
            head = session + struct.pack(">QH", (offset << 26) + found[0][0], len(found))
            for template, ipv4, total in templates.of(receivers):
                size = 48 + len(body)
                sum16 = total + size
                sum16 = (sum16 & 0xFFFF) + (sum16 >> 16)
                sum16 = (sum16 & 0xFFFF) + (sum16 >> 16)
                frame = bytearray(template)
                struct.pack_into(">H", frame, ipv4 + 2, size)
                struct.pack_into(">H", frame, ipv4 + 10, ~sum16 & 0xFFFF)
                struct.pack_into(">H", frame, ipv4 + 24, size - 20)
                yield bytes(frame) + head + body

    for some in messages:
        for message in some:
            for frame in frames_of(message.value(), message.offset()):
                send(frame)
    return 0


def topic_a_subscriber(task: PeerTask, messages: Iterator[Messages]) -> int:
    """Copies each matched message to the topic of each of its receivers.

    Messages are matched by our kernels, as what is compared is what comes after.
    """
    plan, _ = load_plan(task.plan)
    producer = pipeline_producer.connect(task.servers, linger=50)
    fields = len(plan.matcher.fields)
    copies = 0
    for some in messages:
        read = plan.reader.read(batch_of(task.partition, some))
        found = read.messages
        leaf = plan.matcher.match(found.message_type, found.values[:fields], None)
        matched = np.flatnonzero(leaf)
        places = (leaf[matched], found.start[matched], found.length[matched])
        for number, start, length in zip(*(each.tolist() for each in places), strict=True):
            value = read.content[start : start + length].tobytes()
            for host in plan.matcher.receivers[number]:
                pipeline_producer.send(producer, f"{task.topic}.{host}", value, 0)
                copies += 1
        producer.poll(0)
    pipeline_producer.flush(producer)
    return copies


def make_topics(world: World, topic: str) -> None:
    """One of one partition for each subscriber."""
    admin = AdminClient({"bootstrap.servers": world.servers})
    hosts = sorted(set(world.rules.host.tolist()))
    made = admin.create_topics([NewTopic(f"{topic}.h{host}", 1, 1) for host in hosts])
    for future in made.values():
        future.result(60)
