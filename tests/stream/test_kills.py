"""kill -9 of anything at any moment costs no notification.

Real streams in processes of their own, a real broker, hosts that keep receipts; meanwhile the topic
is being filled and a table edited. `jobs/check_delivery.py` proves what came of it.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_world import NETWORK, ROOT, RULES, SEVERAL, Program, World
from pyspark.sql import SparkSession

from jobs.adapters.tables.tables import Tables
from jobs.check_delivery import Evidence
from lab.proof.receipts import Receipt, receipt_bytes, receipts
from lab.up.broker import Broker, default_class_path
from udfs.errors import LabError

pytestmark = pytest.mark.integration

DRAWN = 2

#: Between any two of these a batch writes something, or sends. Each costs a start of the stream, a
#: quarter of a minute and more: a run draws some of them, one with --kills takes all.
MOMENTS = (
    ("before pin", 3),
    ("after pin", 2),
    ("first frame", 2),
    ("last frame", 3),
    ("after state", 2),
    ("after dead letters", 2),
    ("after report", 2),
    ("after statistics", 1),
    ("after ledger", 1),
    ("after commits", 2),
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(default_class_path(), tmp_path_factory.mktemp("broker")) as started:
        yield started


STATELESS = {name: rule for name, rule in RULES.items() if name != "state"}
#: By latency: batches of one publisher and of several; slices that keep state, and those whose
#: tasks are there before the slice before has ended. A run draws one of each, one with --kills
#: takes all.
WORLDS = {
    "microbatch": ((NETWORK, RULES), (SEVERAL, RULES)),
    "realtime": ((SEVERAL, RULES), (SEVERAL, STATELESS)),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames:
        chosen: list[int | None] = [0, 1] if metafunc.config.getoption("--kills") else [None]
        ways = list(itertools.product(WORLDS, chosen))
        names = [latency if way is None else f"{latency}-{way}" for latency, way in ways]
        metafunc.parametrize("world", ways, ids=names, indirect=True)


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> random.Random:
    """By the seed that is asked for, or by one that it prints."""
    seed = request.config.getoption("--kills-seed") or int.from_bytes(os.urandom(3))
    print(f"--kills-seed {seed}")
    return random.Random(seed)


@pytest.fixture
def world(
    spark: SparkSession,
    broker: Broker,
    tables: Tables,
    tmp_path: Path,
    draw: random.Random,
    request: pytest.FixtureRequest,
) -> Iterator[World]:
    latency, chosen = request.param
    worlds = WORLDS[latency]
    network, rules = draw.choice(worlds) if chosen is None else worlds[chosen]
    made = World(spark, broker, tables, tmp_path, latency, network=network, rules=rules)
    yield made
    made.close()


def test_driver_broker_jvm_and_worker_die_at_steps_of_a_batch(
    world: World, draw: random.Random, request: pytest.FixtureRequest
) -> None:
    keeps = "state" in world.rules
    moments = tuple(m for m in MOMENTS if keeps or m[0] != "after state")
    if not request.config.getoption("--kills"):
        # After the last frame a batch has to run again.
        again = ("last frame", 3)
        others = draw.sample([m for m in moments if m != again], DRAWN - 1)
        moments = tuple(m for m in moments if m == again or m in others)
    print(f"at {moments}")
    world.fill_and_edit(100)
    for crash, passing in moments:
        stream = world.start(crash, passing)
        assert stream.end() == -signal.SIGKILL, (crash, world.hosts.errors, stream.output[-4000:])
    # The broker dies under a stream that runs and comes back, then the stream's JVM dies.
    stream = world.start(master=master())
    stream.until("the stream runs")
    world.broker.kill()
    world.broker.revive()
    stream.signal(stream.jvm())
    assert stream.end() != 0
    # A worker that dies while it sends costs one more try: the same stream goes on, to the end.
    stream = world.start("worker", 2, master=master())
    stream.until("the stream runs")
    killed = world.folder / "worker-killed"
    while not killed.exists():
        assert stream.process.poll() is None, stream.output[-4000:]
        time.sleep(0.05)
    world.quiet()
    assert stream.end() == 0, stream.output[-4000:]
    evidence = world.evidence()
    received = receipts(world.folder)
    verdict = evidence.verdict(received)
    assert verdict.proved, list(verdict.lines())
    assert verdict.waiting == 0
    assert verdict.repeats > 10
    assert verdict.batches > len(moments)
    assert len({v["subscriptions"] for v in verdict.versions.values()}) > len(moments) // 2
    assert len(world.hosts.taken) == len(world.ingresses)
    damage(world, evidence, received)


def damage(world: World, evidence: Evidence, received: dict[str, list[Receipt]]) -> None:
    """The same proof fails when one of these receipts is removed, added or changed."""
    draw = random.Random(3)

    def refused(host: str, rows: list[Receipt], *kinds: str) -> None:
        found = evidence.verdict(received | {host: rows})
        assert {kind for kind, faults in found.faults.items() if faults} >= set(kinds)
        assert not found.proved

    for _ in range(3):
        host = draw.choice(["h1", "h2", "h3", "h4"])
        rows = [row for row in received[host] if row.messages]
        single = [row for row, count in Counter(rows).items() if count == 1]
        gone = draw.choice(single)
        refused(host, [row for row in rows if row != gone], "missing")
        place = draw.randrange(len(rows) // 2)
        refused(host, [*rows, rows[place]], "order")
        own = set(rows)
        others = [r for each in received.values() for r in each if r.messages and r not in own]
        refused(host, [*rows, draw.choice(others)], "foreign")
        content = bytearray(b"".join(map(receipt_bytes, rows)))
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        changed = world.folder / "changed"
        (changed / "receipts").mkdir(parents=True, exist_ok=True)
        (changed / "receipts" / f"{host}.mold").write_bytes(content)
        try:
            refused(host, receipts(changed)[host])
        except LabError as error:
            assert error.what == "TRUNCATED_RECEIPTS"


def master() -> str:
    """As the shipped properties have it."""
    lines = (ROOT / "conf" / "spark-defaults.conf").read_text().splitlines()
    (found,) = [line.split()[1] for line in lines if line.startswith("spark.master")]
    return found


@pytest.mark.kills
def test_anything_dies_at_any_moment(
    world: World, draw: random.Random, request: pytest.FixtureRequest
) -> None:
    """As often as --kills says."""
    wanted = request.config.getoption("--kills")
    world.fill_and_edit(100)
    stream: Program | None = None
    killed: Counter[str] = Counter()
    while killed.total() < wanted:
        if stream is None or stream.process.poll() is not None:
            stream = world.start(master=master())
            # Most kills are of a stream that runs, some of one that starts.
            if draw.random() < 0.8:
                stream.until_or_end("the stream runs")
        time.sleep(draw.uniform(0, 5))
        victim = draw.choice(["driver", "jvm", "worker", "broker"])
        if victim == "driver":
            stream.kill()
        elif victim == "jvm":
            stream.signal(stream.jvm())
        elif victim == "worker":
            workers = stream.workers()
            if not workers:
                continue
            stream.signal(draw.choice(workers))
        else:
            world.broker.kill()
            time.sleep(draw.uniform(0, 3))
            world.broker.revive()
        killed[victim] += 1
    print(f"killed: {dict(killed)}")
    world.quiet()
    if stream is not None and stream.process.poll() is None:
        stream.end()
    world.drain(master=master())
    verdict = world.prove()
    assert verdict.proved, list(verdict.lines())
    assert verdict.waiting == 0 and verdict.owed > 100
