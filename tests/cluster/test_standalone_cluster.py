"""Two streams on a standalone cluster lose no notification when parts of it fail or change.

A machine, the master, an executor of each stream and a driver are killed, and a new release is
installed. The cluster has processes of its own, secured as described in
docs/how-to/run-a-standalone-cluster.md. The streams run by conf/cluster-example.conf: Kafka
requires TLS, executors load the code from an archive, and each place sends its frames through its
own link. `jobs/check_delivery.py` verifies the receipts.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_world import SEVERAL, WAIT_S, Program, World
from pyspark.sql import SparkSession
from secured_broker import SecuredBroker
from standalone_cluster import Cluster, example, release
from waiting import until

from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.lab.proof.receipts import datagrams_of
from stackcast.lab.up.broker import default_class_path
from stackcast.udfs.messages.summaries import Summary, is_summary, unpack

# tests/app/test_session.py and tests/stream/test_stream_checks.py protect how a stream waits for
# executors, tests/stream/test_several_publishers.py what enters the network by links of places, and
# tests/stream/test_kills.py what a stream delivers after each kind of process was killed.
pytestmark = pytest.mark.long

PLACES = ("rack1", "rack2")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    (tmp_path / "broker").mkdir()
    with SecuredBroker(default_class_path(), tmp_path / "broker").start(WAIT_S) as started:
        yield started


@pytest.fixture
def worlds(
    spark: SparkSession, broker: SecuredBroker, empty_tables: Path, tmp_path: Path
) -> Iterator[list[World]]:
    """Returns one world in micro-batches and one in the default latency, which is real time.

    Each has its own tables, which contain its tunnels. The links of the places are at different
    switches.
    """
    assert len({SEVERAL.hosts[name].switch for name in SEVERAL.publishers()}) == len(PLACES)
    worlds = []
    for latency in ("microbatch", "auto"):
        folder = tmp_path / f"{tmp_path.name}-{latency}"
        folder.mkdir()
        shutil.copytree(empty_tables, folder / "tables")
        tables = Tables(spark, str(folder / "tables"))
        worlds.append(World(spark, broker, tables, folder, latency, SEVERAL, alone=True))
    yield worlds
    for world in worlds:
        world.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, *PLACES) as started:
        yield started


def advance(worlds: list[World], *programs: Program) -> None:
    """Return when each stream has delivered another batch."""
    for world in worlds:
        world.advance(*programs)


def count_summaries(world: World) -> int:
    """Returns the number of ranges that the hosts' summaries describe.

    Fails if two summaries describe the same range differently.
    """
    summaries: dict[tuple[str, bytes, int, int], Summary] = {}
    for path in (world.folder / "receipts").glob("*.mold"):
        for datagram in filter(is_summary, datagrams_of(path)):
            summary = unpack(datagram)
            span = path.stem, summary.session, summary.from_, summary.until
            assert summaries.setdefault(span, summary) == summary
    return len(summaries)


def sends_from_both_places(worlds: list[World], *programs: Program) -> bool:
    """Let the streams advance, and return whether each has sent frames from both places."""
    advance(worlds, *programs)
    return all(len(world.hosts.frames_by_ingress) == len(PLACES) for world in worlds)


@pytest.mark.parametrize("change", [False, True])
def test_no_notification_is_lost_with_any_part_of_a_cluster(
    worlds: list[World], cluster: Cluster, broker: SecuredBroker, tmp_path: Path, change: bool
) -> None:
    """change: install a new release, one stream after the other."""
    old = release(tmp_path, "old")
    batches, real_time = worlds
    kafka = broker.tls(broker.mutual, "client")
    for world in worlds:
        world.fill_and_edit(100, edit=world is batches)
    client = cluster.submit(cluster.properties(batches, kafka, old), old.job)
    # The driver's address is that of the node that starts it.
    any_node: dict[str, None] = {"driver.host": None}
    properties = cluster.properties(real_time, kafka, old, **any_node)
    supervised = cluster.supervise(properties, old.job)
    assert supervised.process.wait(WAIT_S) == 0, supervised.output
    advance(worlds, client)
    # Executors register one after the other: continue until both places have sent frames.
    until(lambda: sends_from_both_places(worlds, client), seconds=WAIT_S)
    (driver,) = tmp_path.glob("rack*/driver-*")

    # A machine without a driver fails: its worker and its executors.
    (failed_place,) = set(PLACES) - {driver.parent.name}
    cluster.workers[failed_place].kill()
    advance(worlds, client)
    cluster.revive_worker(failed_place)
    until(cluster.is_whole, client)

    # The master fails, and while it is down, an executor of each stream.
    cluster.master.kill()
    advance(worlds, client)
    for executors in cluster.executors().values():
        Program.signal(executors[0])
    advance(worlds, client)
    cluster.revive_master()
    until(lambda: cluster.is_whole() or cluster.has_killed_a_driver(), client)
    if cluster.has_killed_a_driver():
        # The master recovered before it knew the driver's worker.
        until(lambda: not supervised.others(), client)
        supervised = cluster.supervise(
            cluster.properties(real_time, kafka, old, **any_node), old.job
        )
        assert supervised.process.wait(WAIT_S) == 0, supervised.output
        until(cluster.is_whole, client)
    advance(worlds, client)

    # The supervised driver fails, and the cluster starts it again.
    first = supervised.jvm()
    Program.signal(first)
    until(lambda: supervised.jvm() not in (None, first), client)
    advance(worlds, client)

    # The newest folder, as a restarted master can have launched the driver on another node.
    driver = max(tmp_path.glob("rack*/driver-*"), key=lambda path: path.name)
    assert (driver / "stdout").read_text().count(" in real time") == 2

    if change:
        new = release(tmp_path, "new")
        client.process.send_signal(signal.SIGTERM)
        assert client.process.wait(WAIT_S) in (0, 143), client.output[-4000:]
        client = cluster.submit(cluster.properties(batches, kafka, new), new.job)
        advance(worlds, client)
        assert sorted(map(sorted, cluster.releases().values())) == [["new"], ["old"]]
        cluster.stop_driver(driver.name)
        until(lambda: not supervised.others(), client)
        supervised = cluster.supervise(
            cluster.properties(real_time, kafka, new, **any_node), new.job
        )
        assert supervised.process.wait(WAIT_S) == 0, supervised.output
        advance(worlds, client)
        assert list(cluster.releases().values()) == [{"new"}] * 2
        assert "release new" in client.output
        driver = max(tmp_path.glob("rack*/driver-*"), key=lambda path: path.name)

    for world in worlds:
        world.quiet()
        until(lambda world=world: world.delivered() == world.published, client)
    client.process.send_signal(signal.SIGTERM)
    cluster.stop_driver(driver.name)
    assert client.process.wait(WAIT_S) in (0, 143), client.output[-4000:]
    until(lambda: not supervised.others())
    for world in worlds:
        verdict = world.prove()
        assert verdict.proved, list(verdict.lines())
        assert verdict.waiting == 0 and verdict.owed > 100
        assert count_summaries(world) > 30
    assert batches.edits > 1


def test_a_stream_without_executors_reports_it_and_ends(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        properties = tmp_path / "stream.conf"
        names = example(cluster.names | {"archives": None})
        properties.write_text(f"{names}\nspark.stackcast.waitSeconds 3\n")
        stream = cluster.submit(properties)
        assert stream.end() == 2
    assert "STREAM.NO_EXECUTORS: spark://127.0.0.1:" in stream.output
    assert "spark.cores.max" in stream.output
