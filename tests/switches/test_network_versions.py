"""What the rows of network_versions say, whatever becomes of tables, rows and clocks."""

from __future__ import annotations

import datetime as dt
import threading

import pytest
from rollout_world import World, hasty, refresher

from stackcast.jobs.adapters.tables.network_tables import NetworkTables
from stackcast.jobs.adapters.tables.network_versions import NetworkVersions
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
RACK = NETWORK.hosts["h1"].switch


@pytest.fixture(scope="module", autouse=True)
def _hasty():
    with hasty():
        yield


def tree(number, state="active", edges=(("h1", RACK),)):
    return VirtualTree(number, frozenset(edges), "test", state)


def settled():
    """A world whose refresher has done all that there is to do; tree 5 is active."""
    world = World()
    for name, rows in network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "")).items():
        world.tables.overwrite(name, rows)
    world.tables.overwrite("virtual_trees", [tree_to_row(tree(5))])
    job = refresher(world)
    poll(job)
    assert newest(world) == current(world)
    return world, job


def poll(job):
    for _ in range(12):
        job.poll()


def current(world):
    return NetworkTables(world.tables).current()


def newest(world):
    return NetworkVersions(world.tables).newest(current(world))


def put(world, *trees):
    world.tables.overwrite("virtual_trees", [tree_to_row(each) for each in trees])


def state(world):
    (row,) = world.tables.rows("virtual_trees")
    return row["state"]


def batch(world, versions, number):
    started = dt.datetime.fromtimestamp(number, dt.UTC)
    row = {"topic": "t", "versions": dict(versions), "started_at": started}
    world.tables.append("egress_ledger", [row])


def stamped(hours, **others):
    row = {"versions": {}, "topic": None, "term": None, "table_ids": {}}
    return row | {"ready_at": dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours)} | others


def test_a_stream_that_is_gone_holds_nothing_back_once_its_rows_are_removed():
    world, job = settled()
    batch(world, current(world), 1)
    put(world, tree(5, "retiring"))
    poll(job)
    assert state(world) == "retiring"
    world.tables.overwrite("egress_ledger", [])
    poll(job)
    assert state(world) == "retired"


def test_a_stream_that_never_came_holds_nothing_back_once_its_announcement_is_removed():
    world, job = settled()
    NetworkVersions(world.tables).announce("gone", current(world))
    put(world, tree(5, "retiring"))
    poll(job)
    assert state(world) == "retiring"
    rows = [row for row in world.tables.rows("network_versions") if row["topic"] != "gone"]
    world.tables.overwrite("network_versions", rows)
    poll(job)
    assert state(world) == "retired"


@pytest.mark.parametrize("hours", [-48, -2, 0, 2, 48])
def test_terms_begin_and_rows_are_seen_whatever_the_clocks_said(hours):
    tables = World().tables
    versions = dict.fromkeys(("switches", "hosts", "links", "virtual_trees"), 0)
    tables.append("network_versions", [stamped(hours, versions=versions, topic="t", term=3)])
    first, second = NetworkVersions(tables), NetworkVersions(tables)
    first.begin_term()
    assert not first.superseded()
    second.begin_term()
    assert first.superseded() and not second.superseded()
    now = dt.datetime.now(dt.UTC)
    first.publish(versions, 1, None, now)
    assert second.ready() == []
    second.publish(versions, 1, None, now)
    assert first.ready() == second.ready() == [versions]


def test_a_term_begins_though_rows_of_terms_before_were_removed():
    tables = World().tables
    first = NetworkVersions(tables)
    for _ in range(40):
        first.begin_term()
    tables.overwrite("network_versions", [])
    begun = tables.version("network_versions")
    second = NetworkVersions(tables)
    second.begin_term()
    assert tables.version("network_versions") == begun + 1
    assert first.superseded() and not second.superseded()


def test_versions_of_a_table_that_was_made_anew_mean_nothing():
    world, job = settled()
    for _ in range(5):
        put(world, tree(5))
    poll(job)
    old = newest(world)
    NetworkVersions(world.tables).announce("t", old)
    assert NetworkVersions(world.tables).used() == [old]
    running = NetworkVersions(world.tables)
    assert running.ready()
    world.tables.recreate("virtual_trees", *[[tree_to_row(tree(50))]] * old["virtual_trees"])
    assert current(world) == old
    # The same numbers, other rows: nothing of it is ready, whoever looks.
    assert newest(world) is None and running.ready() == [] and running.used() == []
    # What somebody says who read the old table long ago is not said of the new one.
    running.publish(
        old | {"virtual_trees": old["virtual_trees"] + 1}, 1, None, dt.datetime.now(dt.UTC)
    )
    put(world, tree(50), tree(60))
    assert newest(world) is None
    poll(job)
    assert newest(world) == current(world)


def test_what_a_table_of_its_own_said_is_forgotten_when_it_is_made_anew():
    world, _ = settled()
    versions = NetworkVersions(world.tables)
    batch(world, current(world), 1)
    assert versions.ready() and versions.topics()
    length = world.tables.version("network_versions")
    world.tables.recreate("network_versions", *[[]] * (length + 3))
    world.tables.recreate("egress_ledger", *[[]] * 5)
    assert versions.ready() == [] and versions.topics() == {} and versions.used() == []


def test_the_id_of_a_tree_keeps_its_edges_until_no_version_in_use_names_it():
    world, job = settled()
    other = tree(5, "installing", (("feed1", RACK),))
    batch(world, newest(world), 1)
    put(world, tree(5, "retiring"))
    poll(job)
    before = newest(world)
    # The stream may still name the tree by the versions of its batch.
    for again in (job, refresher(world)):
        put(world, other)
        poll(again)
        assert state(world) == "installing" and newest(world) == before
    put(world, tree(5, "retiring"))
    for number in (2, 3):
        poll(job)
        batch(world, newest(world), number)
    poll(job)
    assert state(world) == "retired"
    # Switches have given it up, and the next batch cannot name it.
    put(world, other)
    poll(job)
    assert state(world) == "active" and newest(world) == current(world)


def test_many_threads_may_ask_whether_another_leads():
    tables = World().tables
    ours, other = NetworkVersions(tables), NetworkVersions(tables)
    ours.begin_term()
    asked, ended, wrong = [], threading.Event(), []

    def ask():
        before = False
        try:
            while not ended.is_set() or not before:
                now = ours.superseded()
                # Once another leads, that is how it stays.
                assert now or not before
                before = now
            asked.append(before)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for number in range(40):
        tables.append("network_versions", [stamped(0, topic=str(number), versions={"hosts": 0})])
        if number % 10 == 5:
            rows = tables.rows("network_versions")
            tables.overwrite("network_versions", [row for row in rows if row["term"]])
    other.begin_term()
    ended.set()
    for thread in threads:
        thread.join(600)
    assert wrong == [] and asked == [True] * 16
