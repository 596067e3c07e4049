"""A stream on a standalone cluster with its tables and checkpoint on a store that speaks S3.

The store is moto's server; see docs/how-to/use-s3-storage.md.
"""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_world import BATCH, SEVERAL, WAIT_S, Program, World
from ports import free_port
from pyspark.sql import SparkSession
from standalone_cluster import Cluster, release
from waiting import until

from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.lab.up.broker import Broker

pytestmark = [pytest.mark.long, pytest.mark.s3]

PLACES = ("rack1", "rack2")


@pytest.fixture
def jars(pytestconfig: pytest.Config) -> Path:
    return Path(pytestconfig.getoption("--s3")).resolve()


@pytest.fixture
def bucket(latency: str) -> str:
    """One each: Hadoop's client keeps to the server that it first found a bucket at."""
    return f"stackcast-{latency}"


@pytest.fixture
def store(spark: SparkSession, jars: Path, bucket: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """An empty bucket; yields how Hadoop's client comes to it, and has this Spark know it, too."""
    port = free_port()
    with (tmp_path / "store.log").open("wb") as log:
        server = subprocess.Popen(
            [jars / "bin" / "moto_server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=log,
            stderr=log,
        )
    options = {
        "fs.s3a.endpoint": f"http://127.0.0.1:{port}",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": "test",
        "fs.s3a.secret.key": "test",
    }
    try:
        made = urllib.request.Request(f"{options['fs.s3a.endpoint']}/{bucket}", method="PUT")
        until(lambda: _answers(made))
        for key, value in options.items():
            spark.sparkContext._jsc.hadoopConfiguration().set(key, value)
        yield options
    finally:
        server.kill()
        server.wait()


def _answers(request: urllib.request.Request) -> bool:
    try:
        with urllib.request.urlopen(request, timeout=5):
            return True
    except OSError:
        return False


def reached(world: World) -> int:
    """Records of batches in the ledger."""
    ends: dict[int, int] = {}
    for row in world.tables.rows("egress_ledger"):
        for each in row["partitions"]:
            partition, end = each["partition"], each["until_offset"]
            ends[partition] = max(end, ends.get(partition, 0))
    return sum(ends.values())


def go_on(world: World, stream: Program) -> None:
    """Returns when the stream has more on record, which is published from now on."""
    wanted = reached(world) + BATCH
    world.allow(2)
    until(lambda: reached(world) >= wanted, stream)
    world.check()


@pytest.mark.parametrize("latency", ["microbatch", "realtime"])
def test_a_stream_with_all_that_it_keeps_on_an_object_store_loses_nothing_when_it_is_killed(
    latency: str,
    spark: SparkSession,
    broker: Broker,
    store: dict[str, str],
    bucket: str,
    jars: Path,
    tmp_path: Path,
) -> None:
    tables = open_tables(spark, f"s3a://{bucket}/tables")
    tables.create()
    world = World(spark, broker, tables, tmp_path, latency, SEVERAL, alone=True)
    world.settings["checkpoint"] = f"s3a://{bucket}/checkpoint"
    shipped = release(tmp_path, "s3")
    kafka = {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "PLAINTEXT",
        **dict.fromkeys(
            (
                *(f"ssl.truststore.{part}" for part in ("type", "location")),
                *(f"ssl.keystore.{part}" for part in ("type", "location")),
            )
        ),
    }
    with Cluster(tmp_path, *PLACES) as cluster:
        properties = cluster.properties(
            world,
            kafka,
            shipped,
            **{f"hadoop.{key}": value for key, value in store.items()},
            **{f"{each}.extraClassPath": f"{jars}/*" for each in ("driver", "executor")},
        )
        world.fill_and_edit(100)
        stream = cluster.submit(properties, shipped.job)
        go_on(world, stream)
        go_on(world, stream)
        stream.kill()
        stream = cluster.submit(properties, shipped.job)
        go_on(world, stream)
        for pids in cluster.executors().values():
            Program.signal(pids[0])
        go_on(world, stream)
        world.quiet()
        until(lambda: reached(world) == world.published, stream)
        stream.process.terminate()
        assert stream.process.wait(WAIT_S) in (0, 143), stream.output[-4000:]
    assert not any(tmp_path.glob("checkpoint*")) and not any(tmp_path.glob("tables*"))
    verdict = world.prove()
    world.close()
    assert verdict.proved, list(verdict.lines())
    assert verdict.waiting == 0 and verdict.owed > 100
    assert world.edits > 0
