"""Switches that match events of attributes follow attributes and rules: real Delta and hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from following import following, polled
from paths import COMPILED_P4
from pyspark.sql import SparkSession
from waiting import until

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.network_versions import TABLE
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.jobs.embedded import network
from stackcast.jobs.embedded.feed import Fed
from stackcast.jobs.embedded.kinds import SensorRun
from stackcast.lab.traffic import sensors
from stackcast.lab.up import deployment
from stackcast.lab.up.lab import Lab
from stackcast.udfs.network.topology import line

pytestmark = pytest.mark.integration

NETWORK = line(3, 2)


class Deployment:
    def __init__(self, spark: SparkSession, tables: Tables, lab: Lab) -> None:
        self.spark, self.tables, self.lab = spark, tables, lab
        self.settings = Settings(
            match="network",
            format="attributes",
            tables=tables.location,
            wait_seconds=60,
            p4_folder=str(COMPILED_P4),
        )
        rows = deployment.rows(
            NETWORK, lab.p4runtime, 20, 4, match="network", message_format="attributes"
        )
        for name, content in rows.items():
            tables.append(name, list(content))

    def sql(self, text: str) -> None:
        """Run a statement in which ``{}`` means the folder of the tables."""
        self.spark.sql(text.format(self.tables.location))

    def wait_until_ready(self) -> None:
        """Wait until switches have the entries of the current rules and attributes."""
        current = {name: self.tables.version(name) for name in ("subscriptions", "attributes")}
        until(
            lambda: any(
                row["topic"] is None and current.items() <= dict(row["versions"]).items()
                for row in polled(self.tables, TABLE)
            )
        )

    def entries(self) -> dict[tuple[str, str], dict]:
        rows = self.tables.rows("switch_entries")
        return {(row["switch"], row["entry_key"]): row for row in rows}

    def outcome(self, fed: Fed, status: Mapping[str, Any] | None = None) -> network.NetworkProof:
        """Returns the proof of the embedded default about the frames that hosts received."""
        return network.NetworkProof(
            self.settings,
            SensorRun(),
            self.tables,
            NETWORK,
            fed,
            self.lab.folder,
            status or self.lab.settle(),
        )

    def following(self) -> AbstractContextManager[Refresher]:
        return following(self.tables, self.settings)


@pytest.fixture
def deployed(spark: SparkSession, tables: Tables, tmp_path: Path) -> Iterator[Deployment]:
    with Lab(tmp_path / "lab", NETWORK, broker=False) as lab:
        lab.up()
        yield Deployment(spark, tables, lab)


@pytest.mark.long
def test_a_new_attribute_changes_no_entry_and_a_rule_on_it_adds_some(
    deployed: Deployment, tmp_path: Path
):
    with deployed.following():
        deployed.wait_until_ready()
        before, version = deployed.entries(), deployed.tables.version("switch_entries")
        statuses = len(deployed.tables.rows("switch_status"))
        deployed.sql(
            "INSERT INTO delta.`{}/attributes` (id, name, type, scale, offset) "
            f"VALUES (31, '{sensors.LATE}', 'unsigned', 1, 0)"
        )
        deployed.wait_until_ready()
        assert deployed.tables.version("switch_entries") == version
        assert len(deployed.tables.rows("switch_status")) == statuses

        deployed.sql(
            "INSERT INTO delta.`{}/subscriptions` (id, subscriber, format, filter, enabled) "
            f"VALUES ('late', 'h5', 'attributes', '{sensors.LATE} >= 1024', true)"
        )
        deployed.wait_until_ready()
        after = deployed.entries()
        assert after != before
        # The last switch, where rules are combined, keeps all its entries.
        last = {key: entry for key, entry in before.items() if key[0] == "s3"}
        assert last and {key: after.get(key) for key in last} == last
        assert not deployed.tables.rows("rejected_subscriptions")

    source = tmp_path / "sensors.jsonl"
    records = list(sensors.events(400, seed=4, late=True))
    source.write_bytes(b"".join(record + b"\n" for record in records))
    endpoint = deployed.lab.ingress["feed1"]
    sink = open_sink(SinkOptions("udp", endpoint=endpoint, window=deployment.WINDOW))
    publisher = NETWORK.host("feed1")
    fed = SensorRun().feed(
        deployed.settings, deployed.tables, publisher, sink, source, Event(), lambda *_: None
    )
    sink.close()
    outcome = deployed.outcome(fed)
    assert outcome.exact
    summary = outcome.write(0.0)
    assert summary["messages_in"] == 400 and summary["deliveries_received"] > 50

    # A single missing receipt makes the proof fail, and so does a single missing frame.
    status = deployed.lab.settle()
    late = deployed.lab.folder / "receipts" / "h5.mold"
    content = late.read_bytes()
    late.write_bytes(content[2 + int.from_bytes(content[:2], "big") :])
    assert not deployed.outcome(fed).exact
    late.write_bytes(content)
    assert deployed.outcome(fed).exact
    fewer = dict(status, frames_in=status["frames_in"] - 1)
    assert not deployed.outcome(fed, fewer).exact
