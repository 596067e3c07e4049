"""Two streams of different topics on a standalone cluster: a machine, an executor, a driver and the
master are lost, a new release comes, and no notification is lost.

The cluster is processes of its own, secured as docs/operations.md says; the streams run by
conf/cluster-example.conf, Kafka has TLS, executors have the code from an archive, and what a place
sends enters the network by a link of its own. `jobs/check_delivery.py` proves what came of it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_world import BATCH, SEVERAL, WAIT_S, Program, World
from crashing_stream import committed
from pyspark.sql import SparkSession
from secured_broker import SecuredBroker
from standalone_cluster import Cluster, example, release
from waiting import until

from jobs.adapters.app.settings import Settings
from jobs.adapters.tables.tables import Tables
from lab.proof.receipts import datagrams_of
from lab.up.broker import default_class_path
from udfs.messages.summaries import Summary, is_summary, unpack

pytestmark = pytest.mark.integration

PLACES = ("rack1", "rack2")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    (tmp_path / "broker").mkdir()
    with SecuredBroker(default_class_path(), tmp_path / "broker").start(WAIT_S) as started:
        yield started


@pytest.fixture
def worlds(
    spark: SparkSession, broker: SecuredBroker, tables: Tables, tmp_path: Path
) -> Iterator[list[World]]:
    """One in micro-batches, one as it comes, which is in real time; their tables are the same.
    All that a place sends enters by a link of its own, at another switch."""
    assert len({SEVERAL.hosts[name].switch for name in SEVERAL.publishers()}) == len(PLACES)
    made = []
    for latency in ("microbatch", "auto"):
        folder = tmp_path / f"{tmp_path.name}-{latency}"
        folder.mkdir()
        made.append(World(spark, broker, tables, folder, latency, SEVERAL, alone=True))
    yield made
    for world in made:
        world.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, *PLACES) as started:
        yield started


def reached(world: World) -> int:
    return sum(committed(Settings(**world.settings)).values())


def go_on(worlds: list[World], *alive: Program) -> None:
    """Returns when each stream has delivered more records, which are published from now on."""
    wanted = [reached(world) + BATCH for world in worlds]
    for world in worlds:
        world.allow(2)
    for world, least in zip(worlds, wanted, strict=True):
        until(lambda world=world, least=least: reached(world) >= least, *alive)
        world.check()


def drained(world: World) -> None:
    """Returns when the stream has all that was published."""
    world.quiet()
    until(lambda: reached(world) == world.published)


def told_alike(world: World) -> int:
    """How many ranges hosts got summaries of; each says the same of a range, from wherever."""
    told: dict[tuple[str, bytes, int, int], Summary] = {}
    for path in (world.folder / "receipts").glob("*.mold"):
        for datagram in filter(is_summary, datagrams_of(path)):
            summary = unpack(datagram)
            span = path.stem, summary.session, summary.from_, summary.until
            assert told.setdefault(span, summary) == summary
    return len(told)


@pytest.mark.parametrize("change", [False, pytest.param(True, marks=pytest.mark.kills)])
def test_no_notification_is_lost_with_any_part_of_a_cluster(
    worlds: list[World], cluster: Cluster, broker: SecuredBroker, tmp_path: Path, change: bool
) -> None:
    """change: to a new release, one stream after the other."""
    begun = time.monotonic()
    old = release(tmp_path, "old")
    batches, real_time = worlds
    kafka = broker.tls(broker.mutual, "client")
    for world in worlds:
        world.fill_and_edit(100, edit=world is batches)
    client = cluster.submit(cluster.properties(batches, kafka, old), old.job)
    # The node that the driver comes to is its address.
    here = {"driver.host": None}
    supervised = cluster.supervise(cluster.properties(real_time, kafka, old, **here), old.job)
    assert supervised.process.wait(WAIT_S) == 0, supervised.output
    go_on(worlds, client)
    # Executors come one after the other.
    while not all(world.hosts.taken.keys() == {"0", "1"} for world in worlds):
        assert time.monotonic() < begun + WAIT_S, [world.hosts.taken for world in worlds]
        go_on(worlds, client)
    (driver,) = tmp_path.glob("rack*/driver-*")

    # A machine that has no driver: its worker, and the executors there.
    (lost,) = set(PLACES) - {driver.parent.name}
    cluster.workers[lost].kill()
    go_on(worlds, client)
    cluster.revive_worker(lost)
    until(cluster.is_whole, client)

    # The master, and while there is none, an executor of each stream.
    cluster.master.kill()
    go_on(worlds, client)
    for executors in cluster.executors().values():
        Program.signal(executors[0])
    go_on(worlds, client)
    cluster.revive_master()
    until(lambda: cluster.is_whole() or cluster.has_killed_a_driver(), client)
    if cluster.has_killed_a_driver():
        # It recovered as the driver's worker registered by itself (docs/operations.md).
        until(lambda: not supervised.others(), client)
        supervised = cluster.supervise(cluster.properties(real_time, kafka, old, **here), old.job)
        assert supervised.process.wait(WAIT_S) == 0, supervised.output
        until(cluster.is_whole, client)
    go_on(worlds, client)

    # The supervised driver: the cluster starts it again.
    first = supervised.jvm()
    Program.signal(first)
    until(lambda: supervised.jvm() not in (None, first), client)
    go_on(worlds, client)

    # A master that comes back and does not hear of a driver in time launches it anew elsewhere.
    driver = max(tmp_path.glob("rack*/driver-*"), key=lambda path: path.name)
    assert (driver / "stdout").read_text().count(" in real time") == 2

    if change:
        new = release(tmp_path, "new")
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(WAIT_S) in (0, 143), client.output[-4000:]
        client = cluster.submit(cluster.properties(batches, kafka, new), new.job)
        go_on(worlds, client)
        assert sorted(map(sorted, cluster.releases().values())) == [["new"], ["old"]]
        cluster.stop_driver(driver.name)
        until(lambda: not supervised.others(), client)
        supervised = cluster.supervise(cluster.properties(real_time, kafka, new, **here), new.job)
        assert supervised.process.wait(WAIT_S) == 0, supervised.output
        go_on(worlds, client)
        assert list(cluster.releases().values()) == [{"new"}] * 2
        assert "release new" in client.output
        driver = max(tmp_path.glob("rack*/driver-*"), key=lambda path: path.name)

    for world in worlds:
        drained(world)
    client.process.send_signal(signal.SIGTERM)
    cluster.stop_driver(driver.name)
    assert client.process.wait(WAIT_S) in (0, 143), client.output[-4000:]
    until(lambda: not supervised.others())
    for world in worlds:
        verdict = world.prove()
        assert verdict.proved, list(verdict.lines())
        assert verdict.waiting == 0 and verdict.owed > 100
        assert told_alike(world) > 30
    assert batches.edits > 3


def test_a_stream_that_gets_no_executor_says_so_and_ends(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        properties = tmp_path / "stream.conf"
        names = example(cluster.names | {"archives": None})
        properties.write_text(f"{names}\nspark.stackcast.waitSeconds 3\n")
        stream = cluster.submit(properties)
        assert stream.end() == 2
    assert "STREAM.NO_EXECUTORS: spark://127.0.0.1:" in stream.output
    assert "spark.cores.max" in stream.output
