"""SIGKILL of switches, hosts and the refresher costs no notification.

The lab's switches and hosts are one process; it comes back at the same addresses, with empty
switches. A stream that a dead switch ends is started again when the switches are filled.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import random
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path

import pytest
from crash_world import NETWORK, PUBLISHER, ROOT, RULES, TREES, Program, packets
from following import drain, following, polled
from kafka import KafkaProducer
from pyspark.sql import SparkSession
from waiting import until

from stackcast.jobs import check_delivery
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.lab.proof.receipts import receipts
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.up.lab import Lab
from stackcast.udfs.errors import StreamError
from stackcast.udfs.network.rows import network_to_rows, tree_to_row

pytestmark = pytest.mark.long

TOPIC = "itch.raw"


class CrashingLab(Lab):
    """A lab whose network dies and comes back."""

    def kill_network(self) -> None:
        """End switches and hosts at once, as a crash does (SIGKILL)."""
        assert self._switches is not None and self._switches.pid is not None
        os.kill(self._switches.pid, signal.SIGKILL)
        self._switches.stop()

    def revive_network(self) -> None:
        """Start switches and hosts at the same addresses. The switches are empty."""
        addresses = {
            "p4runtime": self.p4runtime,
            "ingress": self.ingress,
            "tunnels": self.tunnels,
        }
        self._start_network(["--again", json.dumps(addresses)])


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[CrashingLab]:
    with CrashingLab(tmp_path / "lab", NETWORK) as started:
        started.up()
        yield started


@pytest.fixture
def filled(tables: Tables, lab: CrashingLab) -> Tables:
    for name, rows in network_to_rows(
        NETWORK, dict.fromkeys(NETWORK.switches, lab.p4runtime)
    ).items():
        tables.append(name, rows)
    tables.append("virtual_trees", [tree_to_row(tree) for tree in TREES])
    author = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
    tables.append(
        "subscriptions",
        [
            {"id": n, "subscriber": h, "format": "itch", "filter": f, "enabled": True, **author}
            for n, (h, f) in RULES.items()
        ],
    )
    return tables


class Deployment:
    """A stream in this process, and a refresher."""

    def __init__(self, spark: SparkSession, lab: CrashingLab, tables: Tables, folder: Path) -> None:
        self.spark, self.lab, self.tables, self.folder = spark, lab, tables, folder
        self.settings = Settings(
            tables=tables.location,
            publisher=PUBLISHER,
            udp_endpoint=lab.ingress[PUBLISHER],
            topic=TOPIC,
            dead_letter_topic="itch.dead",
            checkpoint=str(folder / "checkpoint"),
            # Records that are published together are one batch, in the middle of which a part dies.
            latency="microbatch",
            max_offsets_per_trigger=4_000,
            kafka={"bootstrap.servers": lab.bootstrap_servers},
        )
        ensure_topic(lab.bootstrap_servers, TOPIC, 2)
        self._packets = packets(random.Random(5))

    @contextmanager
    def refresher(self) -> Iterator[None]:
        """A refresher on a thread, during a block; at first it brings all switches in step."""
        with following(self.tables, self.settings):
            self.wait_until_in_step()
            yield

    @contextmanager
    def refresher_process(self) -> Iterator[None]:
        """A refresher that is killed at the end of the block."""
        conf = {
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": self.folder / "warehouse",
            "spark.stackcast.tables": self.tables.location,
            "spark.stackcast.kafka.bootstrap.servers": self.lab.bootstrap_servers,
        }
        options = " ".join(f"--conf {shlex.quote(f'{k}={v}')}" for k, v in conf.items())
        program = Program(
            self.folder,
            str(ROOT / "jobs" / "refresh_switches.py"),
            PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell",
        )
        try:
            self.wait_until_in_step(program)
            yield
        finally:
            program.kill()

    def wait_until_in_step(self, *programs: Program) -> None:
        """Wait until each switch was found in step after now."""
        since = dt.datetime.now(dt.UTC)

        def in_sync() -> bool:
            rows = sorted(polled(self.tables, "switch_status"), key=lambda row: row["checked_at"])
            last = {row["switch"]: row["in_sync"] for row in rows if row["checked_at"] > since}
            return last.keys() == NETWORK.switches.keys() and all(last.values())

        until(in_sync, *programs)

    def publish(self, count: int) -> None:
        producer = KafkaProducer(bootstrap_servers=self.lab.bootstrap_servers, acks="all")
        for number, packet in enumerate(islice(self._packets, count)):
            producer.send(TOPIC, packet, partition=number % 2)
        producer.flush()
        producer.close()

    def run(self, window: int = 64) -> None:
        """Run the stream until the topic is drained, with so many unanswered frames at most.

        Raises StreamError.
        """
        drain(self.spark, dataclasses.replace(self.settings, udp_window=window))

    def received(self) -> int:
        return sum(path.stat().st_size for path in self.lab.folder.glob("receipts/*.mold"))


@pytest.fixture
def deployment(spark: SparkSession, lab: CrashingLab, filled: Tables, tmp_path: Path) -> Deployment:
    return Deployment(spark, lab, filled, tmp_path)


def test_no_notification_is_lost_when_switches_and_hosts_are_killed(deployment: Deployment) -> None:
    check(deployment, deployment.refresher)


def test_no_notification_is_lost_when_the_refresher_is_killed_too(deployment: Deployment) -> None:
    check(deployment, deployment.refresher_process)


def check(deployment: Deployment, refresher: Callable[[], AbstractContextManager[None]]) -> None:
    lab = deployment.lab
    with refresher():
        deployment.publish(500)
        deployment.run()
    # Switches forward frames without a refresher.
    deployment.publish(500)
    deployment.run()
    # The network dies in the middle of a batch.
    deployment.publish(4_000)
    before = deployment.received()

    def strike() -> None:
        until(lambda: deployment.received() > before)
        lab.kill_network()

    thread = threading.Thread(target=strike)
    thread.start()
    with pytest.raises(StreamError, match=r"SINK\.(UNREACHABLE|NO_CREDIT)"):
        # Each frame waits for an answer, so the batch lasts long enough.
        deployment.run(window=1)
    thread.join()
    lab.revive_network()
    with refresher():
        deployment.run()
        lab.settle()
    evidence = check_delivery.Evidence(deployment.spark, deployment.settings)
    verdict = evidence.verdict(receipts(lab.folder))
    # The hosts died at different points of their input, so some have copies.
    assert {kind for kind, faults in verdict.faults.items() if faults} <= {"copies"}, [
        *verdict.lines()
    ]
    assert verdict.waiting == 0 and verdict.repeats > 0 and verdict.owed > 1_000
