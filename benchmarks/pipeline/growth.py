"""Seconds of a plan, of the first batch and of a batch, as work grows; and what publishers and
executors cost."""

from __future__ import annotations

import dataclasses
import pickle
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from benchmarks.pipeline import processor, stream
from benchmarks.pipeline.memory import reached
from benchmarks.pipeline.throughput import MAIN
from benchmarks.pipeline.workload import Packets, Rules
from benchmarks.pipeline.world import (
    FABRICS,
    HOSTS,
    PARTITIONS,
    POOL,
    RULES,
    Job,
    World,
    network_of,
)
from benchmarks.support.results import Lines
from stackcast import schemas
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning.formats import sources
from stackcast.jobs.adapters.planning.plans import Plans
from stackcast.jobs.adapters.planning.versions import BatchVersions
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.udfs.delivery.plan import Addressing, Planner
from stackcast.udfs.delivery.task import Task
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages import readers
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.record_batches import Records
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.broadcast import broadcast_trees

SUBSCRIPTIONS = (1_000, 10_000, 100_000, 1_000_000)
NETWORKS = (16, 100, 1_000, 10_000)
WIDTHS = (1, 2, 4, 8)
#: Records of a batch, and batches.
BATCH, BATCHES = 20_000, 6
#: What the poll of the tables' versions may take of each batch, milliseconds, and polls timed.
POLL, POLLS = 1.0, 200
STEPS = ("plan", "first_batch", "batch")
PUBLISHERS, ROUNDS = (1, 10, 100, 1_000), 5
#: Of one core each; partitions, and records that are measured after so many others.
EXECUTORS, SPREAD, MEASURED, WARM = (1, 2, 4), 4, 1_600_000, 400_000


def run(world: World, lines: Lines) -> None:
    """All axes; the others are as in the other parts."""
    few = 3 if world.quick else 4
    publishers(lines, world.rules)
    executors(world, lines)
    # The first plan of a process compiles kernels, or loads them.
    seconds_of_plan(world, world.settings("none"))
    poll = milliseconds_of_poll(world, world.settings("none"))
    lines.floor("polling the versions of all tables", poll, POLL, "ms")
    axes: dict[str, tuple[Sequence[int], Sequence[tuple[int, int, int]]]] = {
        "subscriptions": (SUBSCRIPTIONS, [(n, HOSTS, PARTITIONS) for n in SUBSCRIPTIONS]),
        "hosts": (NETWORKS, [(RULES, n, PARTITIONS) for n in NETWORKS]),
        "partitions": (WIDTHS, [(RULES, HOSTS, n) for n in WIDTHS]),
    }
    for axis, (sizes, points) in axes.items():
        found = []
        for size, (rules, hosts, partitions) in zip(sizes[:few], points, strict=False):
            seconds = point(world, rules, hosts, partitions)
            lines.say("growth", axis=axis, size=size, **seconds)
            found.append(seconds)
        for step in STEPS:
            steps = worse_than_linear(sizes[:few], [each[step] for each in found])
            lines.say("linear", axis=axis, step=step, held=not steps, worse=steps)


def publishers(lines: Lines, rules: Rules, counts: Sequence[int] = PUBLISHERS) -> None:
    """Says of so many publishers what a plan takes (seconds of a core, bytes as it ships), what the
    first records take, from which each pair of publisher and receivers gets its stacks, and what a
    packet takes once all are there, microseconds of a core.

    A header names the publisher of each record, in turn; a task alone, without Spark and wire.
    """
    specification = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    packets = Packets.make(rules, POOL, MAIN.messages, MAIN.share)
    subscriptions = [
        Subscription(f"s{n}", f"h{host}", text)
        for n, (host, text) in enumerate(zip(rules.host.tolist(), rules.texts(), strict=True))
    ]
    for count in counts:
        pods, racks, each = FABRICS[HOSTS]
        network = fabric(pods, racks, each, planes=2, spines=2, publishers=count)
        names = network.publishers()
        addressing = Addressing(
            ",".join(names), 0xE9360C01, 26400, 1500, 64, 26401,
            "header:publisher" if count > 1 else "partition",
        )  # fmt: skip
        planner = Planner(readers.Packets(specification), addressing)
        clock = time.process_time()
        compilation = planner.plan(subscriptions, network, broadcast_trees(network), {})
        plan = time.process_time() - clock
        told = pa.array([names[n % count].encode() for n in range(packets.count)], pa.binary())
        batches = [
            dataclasses.replace(part, publisher=told[at : at + len(part)])
            for at, part in _batches(packets)
        ]
        task = Task(
            compilation.plan,
            SimpleNamespace(value=compilation.header_stacks),
            Topic("bench"),
            0,
            {},
        )
        seconds = []
        for _ in range(ROUNDS):
            clock = time.process_time()
            for batch in batches:
                task.add(batch)
            seconds.append(time.process_time() - clock)
        templates = compilation.plan.headers.templates
        lines.say(
            "publishers",
            publishers=count,
            plan_seconds=plan,
            plan_bytes=len(pickle.dumps(compilation.plan)),
            pairs=templates.templates,
            pair_bytes=templates.data.size,
            first_packet_us=seconds[0] / packets.count * 1e6,
            packet_us=min(seconds) / packets.count * 1e6,
        )


def executors(world: World, lines: Lines, counts: Sequence[int] = EXECUTORS) -> None:
    """Says what a record takes with so many executors, microseconds of a core: of the job's
    processes in all and by what they are.

    Executors are processes of this machine, as Spark's ``local-cluster`` has them. There are more
    than cores, so nothing is said of time.
    """
    warm, measured = (n // (10 if world.quick else 1) for n in (WARM, MEASURED))
    topic = world.topic(MAIN.packets(world), warm + measured, SPREAD)
    for count in counts:
        settings = world.settings(topic, max_offsets_per_trigger=warm // 2)
        spark = {"spark.master": f"local-cluster[{count},1,1024]", "spark.executor.memory": "1g"}
        here = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
        with Job(settings, world.fresh("executors.log"), here, spark) as job:
            first, before = _used_at(job, settings, warm)
            last, after = _used_at(job, settings, warm + measured)
        cores = processor.between(before, after)
        told = {name: seconds / (last - first) * 1e6 for name, seconds in cores.items()}
        parts = {name: each for name, each in told.items() if not name.startswith("kernel: ")}
        total = processor.in_all(told)
        lines.say("executors", executors=count, partitions=SPREAD, packet_us=total, parts=parts)
    world.forget(topic)


def _used_at(job: Job, settings: Settings, records: int) -> tuple[int, processor.Used]:
    """Returns how many records are committed, once these are, and what the job's processes have
    used by then."""
    return reached(job, settings, records), processor.used({job.pid: processor.DRIVER})


def _batches(packets: Packets) -> Iterator[tuple[int, Batch]]:
    """Yields the packets as records of a partition, with the number of the first."""
    offsets = np.arange(packets.count)
    records = Records(offsets, offsets, packets.offsets, packets.data, packets.count)
    at = 0
    for batch in records.batches(0):
        yield at, batch
        at += len(batch)


def point(world: World, count: int, hosts: int, partitions: int) -> dict[str, float]:
    """Returns seconds of each of STEPS with so many subscriptions, hosts and partitions."""
    rules = Rules.make(count, hosts)
    usual = (count, hosts) == (RULES, HOSTS)
    filled = world.filled if usual else world.fill_tables(rules, network_of(hosts))
    packets = Packets.make(rules, POOL, MAIN.messages, MAIN.share)
    records = BATCH // (4 if world.quick else 1)
    topic = world.topic(packets, records * BATCHES, partitions)
    settings = world.settings(topic, filled, max_offsets_per_trigger=records)
    plan = seconds_of_plan(world, settings)
    drained = stream.ours(world, settings, records * BATCHES)
    for used in {Path(settings.tables), *([] if usual else [filled])}:
        shutil.rmtree(used, ignore_errors=True)
    return {
        "plan": plan,
        "first_batch": drained.batches[0].seconds,
        "batch": drained.batch_seconds(),
        "records_a_batch": records,
    }


def milliseconds_of_poll(world: World, settings: Settings) -> float:
    """Times the poll of the tables that each batch begins with: the median of many."""
    tables = open_tables(world.spark, settings.tables)
    versions = BatchVersions(tables, settings.topic, sources(settings))
    taken = []
    for _ in range(POLLS):
        began = time.perf_counter()
        versions.current()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


def seconds_of_plan(world: World, settings: Settings) -> float:
    """From the tables to a plan, nothing known before."""
    tables = open_tables(world.spark, settings.tables)
    versions = BatchVersions(tables, settings.topic, sources(settings)).current()
    began = time.monotonic()
    Plans(settings, tables).at(versions)
    return time.monotonic() - began


def worse_than_linear(sizes: Sequence[float], costs: Sequence[float]) -> list[str]:
    """Returns the steps ``from→to`` on which the cost grew by more than the size did.

    A tenth more is allowed, as no two measurements are alike.
    """
    steps = zip(sizes, sizes[1:], costs, costs[1:], strict=False)
    return [
        f"{small:g}→{large:g}"
        for small, large, before, after in steps
        if after / before > 1.1 * large / small
    ]
