"""SIGKILL of any process at any moment loses no notification.

The streams run in their own processes, with a real broker and hosts that keep receipts, while a
publisher fills the topic and an editor changes a rule. `jobs/check_delivery.py` verifies the
receipts.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from crash_world import NETWORK, ROOT, RULES, SEVERAL, Program, World
from pyspark.sql import SparkSession
from waiting import until

from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.check_delivery import Evidence
from stackcast.lab.proof.receipts import Receipt, receipt_bytes, receipts
from stackcast.lab.proof.verdict import DeliveryVerdict
from stackcast.lab.up.broker import Broker
from stackcast.udfs.errors import LabError
from stackcast.udfs.network.network import Network

pytestmark = pytest.mark.integration

#: Steps of a batch that write or send something, with the number of times that the stream reaches
#: the step before it is killed there.
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
#: Number of kills of `test_any_process_dies_at_a_random_moment`.
KILLS = 12
STATELESS = {name: rule for name, rule in RULES.items() if name != "state"}
Rules = Mapping[str, tuple[str, str]]
#: Networks and rules by latency. Micro-batches have one publisher or several. Slices wait for the
#: slice before where rules keep state; otherwise their tasks start earlier.
WORLDS: dict[str, tuple[tuple[Network, Rules], ...]] = {
    "microbatch": ((NETWORK, RULES), (SEVERAL, RULES)),
    "realtime": ((SEVERAL, RULES), (SEVERAL, STATELESS)),
}
ALL_WORLDS = [
    (latency, index) for latency, worlds in WORLDS.items() for index in range(len(worlds))
]
RECORDS_PER_SECOND = 100


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers by the seed of ``--seed``, or by a new one, which the test prints."""
    seed = request.config.getoption("--seed")
    if seed is None:
        seed = int.from_bytes(os.urandom(3))
    print(f"--seed {seed}")
    return random.Random(seed)


@pytest.fixture
def make_world(
    spark: SparkSession, broker: Broker, tables: Tables, tmp_path: Path
) -> Iterator[Callable[[str, int], World]]:
    """Return a world of `WORLDS`, by latency and index."""
    worlds = []

    def make(latency: str, index: int) -> World:
        network, rules = WORLDS[latency][index]
        worlds.append(World(spark, broker, tables, tmp_path, latency, network, rules))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


def moments_of(world: World) -> list[tuple[str, int]]:
    """Return the moments of `MOMENTS` that a stream with these rules reaches."""
    return [moment for moment in MOMENTS if "state" in world.rules or moment[0] != "after state"]


def crash_at(world: World, crash: str, passing: int) -> None:
    """Start a stream that kills itself, and wait for its end."""
    stream = world.start(crash, passing)
    assert stream.end() == -signal.SIGKILL, (crash, world.hosts.errors, stream.output[-4000:])


def lose_worker_broker_and_jvm(world: World) -> None:
    """Kill a worker while it sends, then the broker, then the driver's JVM, under one stream."""
    stream = world.start("worker", 2, master=master())
    until((world.folder / "worker-killed").exists, stream)
    # The task runs again, and the stream continues.
    world.advance(stream)
    world.broker.kill()
    world.broker.revive()
    world.advance(stream)
    world.allow(2)
    stream.signal(stream.jvm())
    assert stream.end() != 0


def prove(world: World, min_batches: int, min_edits: int, all_damage: bool = False) -> None:
    """Verify that the hosts received everything, and that the verification notices damage.

    Args:
        world: deployment whose stream has ended.
        min_batches: the ledger must have more batches.
        min_edits: batches must have used more versions of the subscriptions.
        all_damage: damage the receipts in all ways; otherwise only one receipt is removed.
    """
    evidence = world.evidence()
    received = receipts(world.folder)
    verdict = evidence.verdict(received)
    check(verdict)
    assert verdict.repeats > 0
    assert verdict.batches > min_batches
    versions = {versions["subscriptions"] for versions in verdict.versions.values()}
    assert len(versions) > min_edits
    assert len(world.hosts.frames_by_ingress) == len(world.ingresses)
    damage(evidence, received, world.folder, all_damage)


def check(verdict: DeliveryVerdict) -> None:
    """Fail unless each notification has arrived, and hosts wait for none."""
    assert verdict.proved, list(verdict.lines())
    assert verdict.waiting == 0 and verdict.owed > 100


def damage(
    evidence: Evidence, received: dict[str, list[Receipt]], folder: Path, all_damage: bool
) -> None:
    """Verify that the check fails when a receipt is removed, added or changed."""
    draw = random.Random(3)

    def refuses(host: str, rows: list[Receipt], *kinds: str) -> None:
        verdict = evidence.verdict(received | {host: rows})
        assert {kind for kind, faults in verdict.faults.items() if faults} >= set(kinds)
        assert not verdict.proved

    for number in range(3 if all_damage else 1):
        host = draw.choice(["h1", "h2", "h3", "h4"])
        rows = [row for row in received[host] if row.messages]
        removed = draw.choice([row for row, count in Counter(rows).items() if count == 1])
        refuses(host, [row for row in rows if row != removed], "missing")
        if not all_damage:
            return
        refuses(host, [*rows, rows[draw.randrange(len(rows) // 2)]], "order")
        own = set(rows)
        foreign = [r for each in received.values() for r in each if r.messages and r not in own]
        refuses(host, [*rows, draw.choice(foreign)], "foreign")
        content = bytearray(b"".join(map(receipt_bytes, rows)))
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        changed = folder / f"changed-{number}"
        (changed / "receipts").mkdir(parents=True)
        (changed / "receipts" / f"{host}.mold").write_bytes(content)
        try:
            refuses(host, receipts(changed)[host])
        except LabError as error:
            assert error.what == "TRUNCATED_RECEIPTS"


def master() -> str:
    """Return ``spark.master`` of the shipped properties."""
    lines = (ROOT / "conf" / "spark-defaults.conf").read_text().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith("spark.master")]
    return value


@pytest.mark.parametrize("latency", WORLDS)
def test_driver_worker_broker_and_jvm_die(
    make_world: Callable[[str, int], World], draw: random.Random, latency: str
) -> None:
    world = make_world(latency, draw.randrange(len(WORLDS[latency])))
    moment = draw.choice(moments_of(world))
    print(f"at {moment}")
    world.fill_and_edit(RECORDS_PER_SECOND)
    crash_at(world, *moment)
    lose_worker_broker_and_jvm(world)
    world.drain()
    prove(world, min_batches=5, min_edits=1)


@pytest.mark.long
@pytest.mark.parametrize(("latency", "index"), ALL_WORLDS)
def test_driver_dies_at_each_step_of_a_batch(
    make_world: Callable[[str, int], World], latency: str, index: int
) -> None:
    world = make_world(latency, index)
    moments = moments_of(world)
    world.fill_and_edit(RECORDS_PER_SECOND)
    for moment in moments:
        crash_at(world, *moment)
    lose_worker_broker_and_jvm(world)
    world.drain()
    prove(world, len(moments), len(moments) // 2, all_damage=True)


@pytest.mark.long
@pytest.mark.parametrize(("latency", "index"), ALL_WORLDS)
def test_any_process_dies_at_a_random_moment(
    make_world: Callable[[str, int], World], draw: random.Random, latency: str, index: int
) -> None:
    world = make_world(latency, index)
    world.fill_and_edit(RECORDS_PER_SECOND)
    stream: Program | None = None
    kills: Counter[str] = Counter()
    while kills.total() < KILLS:
        if stream is None or stream.process.poll() is not None:
            stream = world.start(master=master())
            # Most kills hit a stream that runs, some a stream that starts.
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
        kills[victim] += 1
    print(f"killed: {dict(kills)}")
    world.quiet()
    if stream is not None and stream.process.poll() is None:
        stream.end()
    world.drain()
    check(world.prove())
