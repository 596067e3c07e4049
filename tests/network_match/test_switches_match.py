"""Switches that match follow the subscriptions: real Delta, P4Runtime, tunnel and hosts."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from following import following, polled, wait_for_rounds
from paths import COMPILED_P4
from pyspark.sql import SparkSession
from rollout_world import by_old_or_new
from waiting import until

from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.tables.edits import replace_changed
from stackcast.jobs.adapters.tables.network_versions import TABLE
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.jobs.embedded.network import expected
from stackcast.lab.proof import verification
from stackcast.lab.traffic.feed import feed_frames
from stackcast.lab.traffic.packets import new_packets
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up import deployment
from stackcast.lab.up.lab import Lab
from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import CheckedRule, check
from stackcast.udfs.network.topology import fabric

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
GROUP = int.from_bytes(bytes([233, 54, 12, 1]))


class Feed:
    """A long session, sent packet by packet; ``sent`` is an argument of `expected`."""

    def __init__(self, endpoint: str) -> None:
        self._packets = iter(new_packets(TradingSession(60_000, 5, 12)))
        self._sink = open_sink(SinkOptions("udp", endpoint=endpoint, window=deployment.WINDOW))
        self.sent: list[tuple[int, int, bytes]] = []

    def send(self, count: int) -> None:
        """Send packets; returns when hosts have received them."""
        for _ in range(count):
            packet, _ = next(self._packets)
            (frame,) = feed_frames([packet], NETWORK.hosts["feed1"], GROUP, 26400)
            self._sink.send(np.frombuffer(frame, np.uint8), np.array([0, len(frame)], np.int64))
            self.sent.append((0, int.from_bytes(packet[10:18]), packet))
        self._sink.flush()

    def close(self) -> None:
        self._sink.close()


class Deployment:
    def __init__(self, spark: SparkSession, tables: Tables, lab: Lab) -> None:
        self.spark, self.tables, self.lab = spark, tables, lab
        self.name = f"delta.`{tables.location}/subscriptions`"
        self.settings = Settings(
            match="network",
            tables=tables.location,
            wait_seconds=60,
            p4_folder=str(COMPILED_P4),
        )
        rows = deployment.rows(NETWORK, lab.p4runtime, 80, 4, match="network")
        for name, content in rows.items():
            tables.append(name, list(content))

    def rules(self, itch) -> list[CheckedRule]:
        """Returns the rules that switches should apply."""
        rejected = {row["id"] for row in self.tables.rows("rejected_subscriptions")}
        seniority = partial(self.tables.rows, "subscription_seniority")
        rows, _ = select(self.tables.rows("subscriptions"), "itch", FORMATS, itch, seniority)
        rules, _ = check(rows, itch, set(NETWORK.subscribers()), "feed1")
        return [rule for rule in rules if rule.id not in rejected]

    def ready(self) -> int:
        """Returns the newest version of subscriptions that all switches have; -1 if none."""
        versions = (row["versions"] for row in polled(self.tables, TABLE) if row["topic"] is None)
        return max((dict(pairs).get("subscriptions", -1) for pairs in versions), default=-1)

    def wait_until_ready(self) -> None:
        version = self.tables.version("subscriptions")
        until(lambda: self.ready() >= version)

    def edit(self, rule: str, **values: str) -> None:
        rows = self.tables.rows("subscriptions")
        edited = [row | values if row["id"] == rule else row for row in rows]
        assert replace_changed(self.tables, "subscriptions", edited, ("id",), rows)

    def statuses(self) -> list[dict]:
        return self.tables.rows("switch_status")

    def following(self) -> AbstractContextManager[Refresher]:
        return following(self.tables, self.settings)


@pytest.fixture
def deployed(spark: SparkSession, tables: Tables, tmp_path: Path) -> Iterator[Deployment]:
    with Lab(tmp_path / "lab", NETWORK, broker=False) as lab:
        lab.up()
        yield Deployment(spark, tables, lab)


def test_packets_are_filtered_by_the_old_or_the_new_rules_while_subscriptions_are_edited(
    deployed: Deployment, itch, monkeypatch, caplog
):
    feed = Feed(deployed.lab.ingress["feed1"])
    received = deployed.lab.folder
    with deployed.following() as refresher:
        deployed.wait_until_ready()
        before = deployed.rules(itch)
        rejected = deployed.tables.rows("rejected_subscriptions")
        assert rejected
        assert {r["code"] for r in rejected} == {"SUBSCRIPTION.NOT_ON_SWITCHES"}
        feed.send(200)
        deployed.lab.settle()
        owed = expected(feed.sent, before, itch)
        outcome = verification.compare(owed, verification.receipts(received), pruned=True)
        assert outcome.exact and outcome.received > 50, outcome

        # Packets are sent during an edit by SQL.
        edit = threading.Thread(
            target=lambda: deployed.spark.sql(
                f"UPDATE {deployed.name} SET filter = concat('(', filter, ') or shares < 200') "
                "WHERE id < 's0040' AND id NOT IN "
                f"({', '.join(repr(r['id']) for r in rejected)})"
            )
        )
        version = deployed.tables.version("subscriptions")
        edit.start()

        def edited() -> bool:
            feed.send(20)
            return not edit.is_alive() and deployed.ready() > version

        until(edited)
        after = deployed.rules(itch)
        middle = len(feed.sent)
        feed.send(100)
        deployed.lab.settle()
        old, new = (expected(feed.sent, rules, itch).deliveries for rules in (before, after))
        counts = by_old_or_new(
            NETWORK, verification.receipts(received), old, new, feed.sent[middle][1]
        )
        assert min(counts["old"], counts["new"]) > 0, counts

        # A rule of one host concerns the switches on the path to it.
        near = next(
            name
            for name in NETWORK.subscribers()
            if NETWORK.hosts[name].switch == NETWORK.hosts["feed1"].switch
        )
        count = len(deployed.statuses())
        own = next(rule.id for rule in after if rule.receivers == (near,))
        deployed.edit(own, filter="stock == AAPL")
        deployed.wait_until_ready()
        rows = sorted(deployed.statuses(), key=lambda row: row["checked_at"])[count:]
        assert {row["switch"] for row in rows} == {NETWORK.hosts["feed1"].switch}

        # An edit that changes no valid rule writes no switch.
        entries, count = deployed.tables.version("switch_entries"), len(deployed.statuses())
        deployed.edit("s0001", updated_by="me")
        deployed.wait_until_ready()
        row = deployed.tables.rows("subscriptions")[0] | {"id": "bad", "filter": "stock >"}
        deployed.tables.append("subscriptions", [row])
        deployed.wait_until_ready()
        assert "bad" in {r["id"] for r in deployed.tables.rows("rejected_subscriptions")}
        live = deployed.rules(itch)

        # Rules that do not fit change nothing until the next edit.
        def too_large(*_args, **_options):
            raise FilterError("TOO_LARGE", "more rows than the test allows")

        with monkeypatch.context() as patched:
            patched.setattr("stackcast.udfs.network_match.filters.fitting_rules", too_large)
            ready = deployed.ready()
            with caplog.at_level(logging.ERROR, "stackcast.jobs.adapters.switches.derive"):
                deployed.spark.sql(f"DELETE FROM {deployed.name} WHERE id > 's0050'")
                until(lambda: "FILTER.TOO_LARGE" in caplog.text)
            wait_for_rounds(refresher, 2)
        assert deployed.ready() == ready
        assert deployed.tables.version("switch_entries") == entries
        assert len(deployed.statuses()) == count
        first = len(feed.sent)
        feed.send(100)
        deployed.edit("s0002", updated_by="me")
        deployed.wait_until_ready()
        fewer = len(feed.sent)
        feed.send(100)
        deployed.lab.settle()
        for rules, sent in (
            (live, feed.sent[first:fewer]),
            (deployed.rules(itch), feed.sent[fewer:]),
        ):
            numbers = {number for _, number, _ in sent}
            part = {
                host: [r for r in receipts if r.sequence in numbers]
                for host, receipts in verification.receipts(received).items()
            }
            outcome = verification.compare(expected(sent, rules, itch), part, pruned=True)
            assert outcome.exact and outcome.received > 0, outcome
    feed.close()


def test_a_refresher_that_starts_again_finds_nothing_to_write(deployed: Deployment):
    with Refresher(deployed.tables, deployed.settings) as refresher:
        assert refresher.once() == {}
    entries = deployed.tables.version("switch_entries")
    with Refresher(deployed.tables, deployed.settings) as refresher:
        assert not any(refresher.compare().values())
        assert refresher.once() == {}
    assert deployed.tables.version("switch_entries") == entries
    # An edit of grants changes the valid rules.
    grant = {"id": "g", "subscriber": "*", "format": "itch", "filter": "price > 1000000"}
    deployed.tables.append("grants", [grant | {"updated_by": None, "updated_at": None}])
    before = len(deployed.tables.rows("switch_entries"))
    with Refresher(deployed.tables, deployed.settings) as refresher:
        assert refresher.once() == {}
    rejected = deployed.tables.rows("rejected_subscriptions")
    assert "SUBSCRIPTION.NOT_GRANTED" in {row["code"] for row in rejected}
    assert len(deployed.tables.rows("switch_entries")) < before
    # The stream's program is a different one, so the switches stay as they are.
    stream = dataclasses.replace(deployed.settings, match="spark")
    with (
        Refresher(deployed.tables, stream) as refresher,
        pytest.raises(Exception, match="WRONG_PIPEL"),
    ):
        refresher.once()
