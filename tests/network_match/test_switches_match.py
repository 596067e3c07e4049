"""Switches that match follow the subscriptions: real Delta, P4Runtime, tunnel and hosts."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from following import following
from network_edits import by_old_or_new
from paths import P4
from polling import polled
from pyspark.sql import SparkSession

from jobs.adapters.app.settings import FORMATS, Settings
from jobs.adapters.switches.lead import Refresher
from jobs.adapters.tables.network_versions import TABLE
from jobs.adapters.tables.tables import Tables
from jobs.adapters.wire import SinkOptions, open_sink
from jobs.embedded.network import expected
from lab.proof import verification
from lab.traffic.feed import feed_frames
from lab.traffic.packets import new_packets
from lab.traffic.trading_session import TradingSession
from lab.up import deployment
from lab.up.lab import Lab
from udfs.errors import FilterError
from udfs.filters.subscriptions import CheckedRule, check, select
from udfs.network.topology import fabric

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
GROUP = int.from_bytes(bytes([233, 54, 12, 1]))
WAIT_S = 240


class Feed:
    """One long session, sent packet by packet; ``sent`` is as `expected` takes it."""

    def __init__(self, endpoint: str) -> None:
        self._packets = iter(new_packets(TradingSession(60_000, 5, 12)))
        self._sink = open_sink(SinkOptions("udp", endpoint=endpoint, window=deployment.WINDOW))
        self.sent: list[tuple[int, int, bytes]] = []

    def send(self, count: int) -> None:
        """Returns when hosts have what they get of so many packets."""
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
            wait_seconds=10,
            p4_folder=str(P4),
        )
        rows = deployment.rows(NETWORK, lab.p4runtime, 80, 4, match="network")
        for name, content in rows.items():
            tables.append(name, list(content))

    def rules(self, itch) -> list[CheckedRule]:
        """The rules that switches should hold by now."""
        rejected = {row["id"] for row in self.tables.rows("rejected_subscriptions")}
        rows, _ = select(self.tables.rows("subscriptions"), "itch", FORMATS)
        rules, _ = check(rows, itch, set(NETWORK.subscribers()), "feed1")
        return [rule for rule in rules if rule.id not in rejected]

    def ready(self) -> int:
        """The newest version of subscriptions that all switches hold; -1 for none."""
        versions = (row["versions"] for row in polled(self.tables, TABLE) if row["topic"] is None)
        return max((dict(each).get("subscriptions", -1) for each in versions), default=-1)

    def wait_until_ready(self) -> None:
        version = self.tables.version("subscriptions")
        deadline = time.monotonic() + WAIT_S
        while self.ready() < version:
            assert time.monotonic() < deadline, f"version {version} is not on the switches"
            time.sleep(0.2)

    def statuses(self) -> list[dict]:
        return self.tables.rows("switch_status")

    def following(self) -> AbstractContextManager[None]:
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
    with deployed.following():
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

        # An edit through SQL, and packets all the while.
        edit = threading.Thread(
            target=lambda: deployed.spark.sql(
                f"UPDATE {deployed.name} SET filter = concat('(', filter, ') or shares < 200') "
                "WHERE id < 's0040' AND id NOT IN "
                f"({', '.join(repr(r['id']) for r in rejected)})"
            )
        )
        version = deployed.tables.version("subscriptions")
        edit.start()
        deadline = time.monotonic() + WAIT_S
        while edit.is_alive() or deployed.ready() <= version:
            feed.send(20)
            time.sleep(0.2)
            assert time.monotonic() < deadline
        after = deployed.rules(itch)
        middle = len(feed.sent)
        feed.send(100)
        deployed.lab.settle()
        old, new = (expected(feed.sent, rules, itch).deliveries for rules in (before, after))
        went = by_old_or_new(
            NETWORK, verification.receipts(received), old, new, feed.sent[middle][1]
        )
        assert min(went["old"], went["new"]) > 0, went

        # One rule of one host concerns the switches on its way.
        near = next(
            name
            for name in NETWORK.subscribers()
            if NETWORK.hosts[name].switch == NETWORK.hosts["feed1"].switch
        )
        told = len(deployed.statuses())
        own = next(rule.id for rule in after if rule.receivers == (near,))
        deployed.spark.sql(
            f"UPDATE {deployed.name} SET filter = 'stock == AAPL' WHERE id = '{own}'"
        )
        deployed.wait_until_ready()
        rows = sorted(deployed.statuses(), key=lambda row: row["checked_at"])[told:]
        assert {row["switch"] for row in rows} == {NETWORK.hosts["feed1"].switch}

        # What changes no rule, or cannot be live, writes no switch.
        entries, told = deployed.tables.version("switch_entries"), len(deployed.statuses())
        deployed.spark.sql(f"UPDATE {deployed.name} SET updated_by = 'me' WHERE id = 's0001'")
        deployed.wait_until_ready()
        row = deployed.tables.rows("subscriptions")[0] | {"id": "bad", "filter": "stock >"}
        deployed.tables.append("subscriptions", [row])
        deployed.wait_until_ready()
        assert "bad" in {r["id"] for r in deployed.tables.rows("rejected_subscriptions")}
        live = deployed.rules(itch)

        # Rules that do not fit leave everything as it is, until the next edit.
        def too_large(*_args, **_options):
            raise FilterError("TOO_LARGE", "more rows than the test allows")

        with monkeypatch.context() as patched:
            patched.setattr("udfs.network_match.filters.fitting_rules", too_large)
            ready = deployed.ready()
            with caplog.at_level(logging.ERROR, "jobs.adapters.switches.derive"):
                deployed.spark.sql(f"DELETE FROM {deployed.name} WHERE id > 's0050'")
                deadline = time.monotonic() + WAIT_S
                while "FILTER.TOO_LARGE" not in caplog.text:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            time.sleep(1)
        assert deployed.ready() == ready
        assert deployed.tables.version("switch_entries") == entries
        assert len(deployed.statuses()) == told
        first = len(feed.sent)
        feed.send(100)
        deployed.spark.sql(f"UPDATE {deployed.name} SET updated_by = 'me' WHERE id = 's0002'")
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
    with Refresher(deployed.tables, deployed.settings) as again:
        assert not any(again.compare().values())
        assert again.once() == {}
    assert deployed.tables.version("switch_entries") == entries
    # An edit of grants is one of rules.
    grant = {"id": "g", "subscriber": "*", "format": "itch", "filter": "price > 1000000"}
    deployed.tables.append("grants", [grant | {"updated_by": None, "updated_at": None}])
    before = len(deployed.tables.rows("switch_entries"))
    with Refresher(deployed.tables, deployed.settings) as again:
        assert again.once() == {}
    rejected = deployed.tables.rows("rejected_subscriptions")
    assert "SUBSCRIPTION.NOT_GRANTED" in {row["code"] for row in rejected}
    assert len(deployed.tables.rows("switch_entries")) < before
    # The stream's program is another one: the switches stay as they are.
    stream = dataclasses.replace(deployed.settings, match="spark")
    with Refresher(deployed.tables, stream) as other, pytest.raises(Exception, match="WRONG_PIPEL"):
        other.once()
