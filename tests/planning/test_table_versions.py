"""Versions of the tables are told as streams need them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning.plans import sources, switch_sources
from stackcast.jobs.adapters.planning.versions import LINK_STATES, BatchVersions
from stackcast.jobs.adapters.tables.changes import committed_at
from stackcast.jobs.adapters.tables.edits import change_tree_states
from stackcast.jobs.adapters.tables.network_versions import SOURCES, NetworkVersions
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.switches import rollout

pytestmark = pytest.mark.integration

RULES = ("subscriptions", "subscription_seniority")
NAMES = (*SOURCES, *RULES, "network_versions", "egress_ledger")


@pytest.fixture(scope="module")
def held(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    made = open_tables(spark, str(tmp_path_factory.mktemp("versions")))
    made.create(*NAMES)
    return made


def tree(number: int, state: str) -> dict[str, object]:
    return {"tree_id": number, "edges": [], "strategy": "x", "state": state}


def batch(tables: Tables, topic: str, number: int, versions: dict[str, int]) -> None:
    row = dict.fromkeys(tables.read("egress_ledger").columns, 0)
    started = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number)
    row |= {
        "topic": topic,
        "topic_id": "",
        "partitions": [],
        "versions": versions,
        "started_at": started,
        "settings": None,
    }
    tables.append("egress_ledger", [row | {"seconds": 0.0}])


def test_a_table_that_somebody_made_stays_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    tables = open_tables(spark, str(tmp_path))
    spark.sql(
        f"CREATE TABLE delta.`{tmp_path}/virtual_trees` (state STRING) USING delta "
        "TBLPROPERTIES ('delta.constraints.state_known' = 'state <> \\'x\\'')"
    )
    tables.create("virtual_trees")
    assert tables.version("virtual_trees") == 0


def test_only_rows_that_are_as_told_move_on(held: Tables) -> None:
    trees = [tree(1, "installing"), tree(2, "retiring"), tree(3, "active"), tree(4, "installing")]
    held.overwrite("virtual_trees", trees)
    before = held.version("virtual_trees")
    moves = {
        1: ("installing", "active"),
        2: ("retiring", "retired"),
        3: ("retiring", "retired"),
        9: ("installing", "active"),
    }
    change_tree_states(held, moves)
    states = {row["tree_id"]: row["state"] for row in held.rows("virtual_trees")}
    assert states == {1: "active", 2: "retired", 3: "active", 4: "installing"}
    change_tree_states(held, {})
    assert held.version("virtual_trees") == before + 1


def test_the_time_of_a_commit_is_deltas_own(spark: SparkSession, held: Tables) -> None:
    version = held.version("virtual_trees")
    (told,) = DeltaTable.forPath(spark, f"{held.location}/virtual_trees").history(1).collect()
    elsewhere = open_tables(spark, f"file://{held.location}")
    far = SparkTables(spark, held.location)
    for tables in (held, elsewhere, far):
        at = committed_at(tables, "virtual_trees", version)
        assert abs((at - told["timestamp"].astimezone(dt.UTC)).total_seconds()) < 1
    assert committed_at(held, "virtual_trees", version + 1) is None


def test_the_last_batch_of_each_stream_is_found_whatever_was_seen_before(held: Tables) -> None:
    versions = NetworkVersions(held)
    assert versions.used() == []
    batch(held, "a", 1, {"hosts": 1})
    batch(held, "b", 5, {"hosts": 5})
    assert sorted(v["hosts"] for v in versions.used()) == [1, 5]
    # Written later, started earlier than the other's last.
    batch(held, "a", 3, {"hosts": 3})
    assert sorted(v["hosts"] for v in versions.used()) == [3, 5]
    batch(held, "b", 4, {"hosts": 4})
    assert sorted(v["hosts"] for v in NetworkVersions(held).used()) == [3, 5]
    held.overwrite("egress_ledger", [])


def test_a_stream_goes_by_what_is_ready_but_sees_links_fail_at_once(
    held: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    stream = BatchVersions(held, "t")
    now = {name: held.version(name) for name in (*RULES, *SOURCES)}
    assert stream.current() == now | {LINK_STATES: now["links"]}
    assert "is marked as ready" in caplog.text
    stream.announce(stream.current())
    versions = NetworkVersions(held)
    network = {name: now[name] for name in SOURCES}
    assert versions.used() == [network]
    when = dt.datetime.now(dt.UTC)
    versions.publish(network, 3, when, when + dt.timedelta(seconds=2))
    for name in ("links", "virtual_trees", "subscriptions"):
        held.overwrite(name, [])
    later = {name: held.version(name) for name in ("subscriptions", "links")}
    expected = now | {"subscriptions": later["subscriptions"], LINK_STATES: later["links"]}
    assert stream.current() == BatchVersions(held, "t").current() == expected
    newest = {name: held.version(name) for name in SOURCES}
    versions.publish(newest, 4, None, when)
    assert stream.current() == newest | expected | {
        name: newest[name] for name in ("links", "virtual_trees")
    }
    (row,) = [r for r in held.rows("network_versions") if r["entries_version"] == 3]
    assert row["seconds"] == 2.0 and row["topic"] is None and row["versions"] == network


def test_where_switches_match_a_stream_goes_by_the_subscriptions_that_they_hold(
    tables: Tables,
) -> None:
    settings = Settings(match="network")
    stream = BatchVersions(tables, "matched", sources(settings), switch_sources(settings))
    decide = (*RULES, "grants", *SOURCES)
    hold = {name: tables.version(name) for name in decide}
    NetworkVersions(tables).publish(hold, 5, None, dt.datetime.now(dt.UTC))
    for name in ("subscriptions", "rejected_subscriptions"):
        tables.overwrite(name, [])
    found = stream.current()
    assert {name: found[name] for name in decide} == hold
    assert hold["subscriptions"] < tables.version("subscriptions")
    # What the switches refuse is known before they hold the rest.
    assert found["rejected_subscriptions"] == tables.version("rejected_subscriptions")
    stream.announce(found)
    assert hold in NetworkVersions(tables).used()
    newest = {name: tables.version(name) for name in decide}
    NetworkVersions(tables).publish(newest, 6, None, dt.datetime.now(dt.UTC))
    assert stream.current()["subscriptions"] == tables.version("subscriptions")


def test_who_has_been_succeeded_publishes_no_more(held: Tables) -> None:
    first, second = NetworkVersions(held), NetworkVersions(held)
    when = dt.datetime.now(dt.UTC)
    host = {"host": "h", "switch": "s", "port": 1, "mac": 1, "ipv4": "10.0.0.1"}
    for role in ("publisher", "subscriber"):
        held.overwrite("hosts", [host | {"role": role}])
    after = {name: held.version(name) for name in SOURCES}
    newest = after | {"hosts": after["hosts"] - 1}
    first.begin_term()
    assert not first.superseded()
    second.begin_term()
    assert first.superseded() and not second.superseded()
    first.publish(newest, 1, None, when)
    assert newest not in NetworkVersions(held).ready()
    second.publish(newest, 1, None, when)
    second.publish(after, 1, None, when)
    ready = [v for v in NetworkVersions(held).ready() if v["hosts"] >= newest["hosts"]]
    assert sorted(ready, key=rollout.age) == [newest, after]
