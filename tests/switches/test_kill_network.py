"""kill -9 of switches, hosts and the refresher costs no notification.

The lab's switches and hosts are one process; it comes back where it was, with empty switches. The
refresher is the real job in a process of its own. The stream that a dead switch ends is started
again when the switches are filled.
"""

from __future__ import annotations

import datetime as dt
import random
import shlex
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from crash_world import NETWORK, PUBLISHER, ROOT, RULES, TREES, Program, packets
from kafka import KafkaProducer
from polling import drain, polled
from pyspark.sql import SparkSession
from waiting import until

from jobs import check_delivery
from jobs.adapters.app.settings import Settings
from jobs.adapters.tables.tables import Tables
from lab.proof.receipts import receipts
from lab.traffic.publisher import ensure_topic
from lab.up.lab import Lab
from udfs.errors import StreamError
from udfs.network.rows import network_to_rows, tree_to_row

pytestmark = pytest.mark.integration

TOPIC = "itch.raw"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "lab", NETWORK) as started:
        started.up()
        yield started


@pytest.fixture
def filled(tables: Tables, lab: Lab) -> Tables:
    for name, rows in network_to_rows(
        NETWORK, dict.fromkeys(NETWORK.switches, lab.p4runtime)
    ).items():
        tables.append(name, rows)
    tables.append("virtual_trees", [tree_to_row(tree) for tree in TREES])
    who = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
    tables.append(
        "subscriptions",
        [
            {"id": n, "subscriber": h, "format": "itch", "filter": f, "enabled": True, **who}
            for n, (h, f) in RULES.items()
        ],
    )
    return tables


class Deployment:
    """A stream in this process, and a refresher in one of its own."""

    def __init__(self, spark: SparkSession, lab: Lab, tables: Tables, folder: Path) -> None:
        self.spark, self.lab, self.tables, self.folder = spark, lab, tables, folder
        self.settings = Settings(
            tables=tables.location,
            publisher=PUBLISHER,
            udp_endpoint=lab.ingress[PUBLISHER],
            udp_window=64,
            topic=TOPIC,
            dead_letter_topic="itch.dead",
            checkpoint=str(folder / "checkpoint"),
            # All that is published at once is one batch, in the middle of which something dies.
            latency="microbatch",
            max_offsets_per_trigger=4_000,
            kafka={"bootstrap.servers": lab.bootstrap_servers},
        )
        ensure_topic(lab.bootstrap_servers, TOPIC, 2)
        self._packets = packets(random.Random(5))

    def refresher(self) -> Program:
        conf = {
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": self.folder / "warehouse",
            "spark.stackcast.tables": self.tables.location,
            "spark.stackcast.kafka.bootstrap.servers": self.lab.bootstrap_servers,
        }
        options = " ".join(f"--conf {shlex.quote(f'{k}={v}')}" for k, v in conf.items())
        return Program(
            self.folder,
            str(ROOT / "jobs" / "refresh_switches.py"),
            PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell",
        )

    def in_step(self, since: dt.datetime) -> bool:
        """Whether all switches were seen since then to hold their entries, when last looked at."""
        rows = sorted(polled(self.tables, "switch_status"), key=lambda row: row["checked_at"])
        last = {row["switch"]: row["in_step"] for row in rows if row["checked_at"] > since}
        return last.keys() == NETWORK.switches.keys() and all(last.values())

    def filled(self, refresher: Program) -> None:
        """Wait until a refresher has brought all switches in step from now on."""
        since = dt.datetime.now(dt.UTC)
        until(lambda: self.in_step(since) or refresher.process.poll() is not None)
        assert refresher.process.poll() is None, refresher.output[-4000:]

    def publish(self, count: int) -> None:
        producer = KafkaProducer(bootstrap_servers=self.lab.bootstrap_servers, acks="all")
        for number, packet in enumerate(islice(self._packets, count)):
            producer.send(TOPIC, packet, partition=number % 2)
        producer.flush()
        producer.close()

    def run(self) -> None:
        """The stream, until the topic is drained. Raises StreamError."""
        drain(self.spark, self.settings)

    def received(self) -> int:
        return sum(path.stat().st_size for path in self.lab.folder.glob("receipts/*.mold"))


def test_switches_hosts_and_the_refresher_die_and_nothing_is_lost(
    spark: SparkSession, lab: Lab, filled: Tables, tmp_path: Path
) -> None:
    deployment = Deployment(spark, lab, filled, tmp_path)
    refresher = deployment.refresher()
    try:
        deployment.filled(refresher)
        deployment.publish(500)
        deployment.run()
        # Without the refresher the switches serve on.
        refresher.kill()
        deployment.publish(500)
        deployment.run()
        # Now the network dies in the middle of a batch.
        deployment.publish(4_000)
        before = deployment.received()

        def strike() -> None:
            until(lambda: deployment.received() > before)
            lab.kill_network()

        thread = threading.Thread(target=strike)
        thread.start()
        with pytest.raises(StreamError, match=r"SINK\.(UNREACHABLE|NO_CREDIT)"):
            deployment.run()
        thread.join()
        lab.revive_network()
        refresher = deployment.refresher()
        deployment.filled(refresher)
        deployment.run()
        lab.settle()
    finally:
        refresher.kill()
    evidence = check_delivery.Evidence(spark, deployment.settings)
    verdict = evidence.verdict(receipts(lab.folder))
    # How far hosts had read when they died differs from host to host.
    assert {kind for kind, faults in verdict.faults.items() if faults} <= {"copies"}, [
        *verdict.lines()
    ]
    assert verdict.waiting == 0 and verdict.repeats > 0 and verdict.owed > 1_000
