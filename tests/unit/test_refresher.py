"""The refresher against model tables and switches: what fails, and what stays as it was."""

from __future__ import annotations

import datetime as dt
import itertools

import pytest
from pyspark.errors import AnalysisException, PySparkException
from rollout_world import World, refresher

from jobs import refresh_switches
from jobs.adapters import network_tables, refresh, switch_sessions
from jobs.adapters.network_versions import SOURCES, NetworkVersions
from jobs.adapters.refresh import Refresher
from jobs.refresh_switches import Following
from udfs.switches.entry import canonical
from udfs.trees.rows import network_to_rows, tree_to_row
from udfs.trees.topology import fabric
from udfs.trees.virtual_tree import VirtualTree

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
RACK = NETWORK.hosts["h1"].switch
GONE = "[DELTA_VERSION_NOT_FOUND] Cannot time travel Delta table to version 2."


class Clock:
    """Time in which every pause is over at the next look."""

    def __init__(self):
        self._ticks = itertools.count(0, 1000)

    def monotonic(self):
        return float(next(self._ticks))


@pytest.fixture(autouse=True)
def in_order(monkeypatch):
    for module in (network_tables, switch_sessions):
        monkeypatch.setattr(
            module, "side_by_side", lambda work, items: [work(item) for item in items]
        )
    clock = Clock()
    monkeypatch.setattr(refresh_switches, "time", clock)
    monkeypatch.setattr(refresh, "time", clock)


def tree(number, state="active", edges=(("h1", RACK),)):
    return VirtualTree(number, frozenset(edges), "test", state)


class Site:
    """A world with a network, and refreshers that look at it."""

    def __init__(self):
        self.world = World()
        self.tables = self.world.tables
        self.switches()

    def switches(self, **limits):
        """Write the network; all switches have these limits."""
        rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, ""))
        rows["switches"] = [row | limits for row in rows["switches"]]
        for name in rows if not self.tables.rows("hosts") else ["switches"]:
            self.tables.overwrite(name, rows[name])

    def trees(self, *trees):
        self.tables.overwrite("virtual_trees", [tree_to_row(tree) for tree in trees])

    def job(self, between=lambda: None):
        return Following(refresher(self.world, "a", between, Refresher))

    def current(self):
        return {name: self.tables.version(name) for name in SOURCES}

    def ready(self):
        return NetworkVersions(self.tables).newest(self.current())

    def batch(self, versions, second):
        now = dt.datetime.fromtimestamp(second, dt.UTC)
        row = {"topic": "t", "versions": dict(versions), "started_at": now}
        self.tables.append("egress_ledger", [row])

    def holds(self, number):
        """Whether the rack's switch knows the tree."""
        label = canonical(0x4000 | number)
        entries = self.world.held[RACK].values()
        return any("label" in e.table and e.match[0][2] == label for e in entries)

    def state(self, number):
        (row,) = [r for r in self.tables.rows("virtual_trees") if r["tree_id"] == number]
        return row["state"]


@pytest.fixture
def site():
    return Site()


def looks(following, times=6):
    for _ in range(times):
        following.look()


def failing(following, name, version, error, times=10**9):
    """Have the job's reads of one version fail, the first ``times``."""
    tables = following._refresher._network._tables
    rows, left = tables.rows, [times]

    def read(which, of=None, since=None):
        if (which, of) == (name, version) and left[0] > 0:
            left[0] -= 1
            raise error
        return rows(which, of, since)

    tables.rows = read


def behind_by_one_tree(site):
    """A stream stands still on the tree 5, which nobody else knows any more; its versions."""
    site.trees(tree(5))
    job = site.job()
    looks(job)
    used = site.current()
    site.batch(used, 1)
    site.trees(tree(5, "retiring"), tree(6))
    looks(job)
    site.trees(tree(6))
    looks(job)
    assert site.holds(5) and site.holds(6)
    return used


def test_a_read_that_fails_once_takes_nothing_off_that_a_batch_may_use(site, caplog):
    used = behind_by_one_tree(site)
    again = site.job()
    error = PySparkException("java.net.SocketTimeoutException: Read timed out")
    failing(again, "virtual_trees", used["virtual_trees"], error, times=3)
    for _ in range(12):
        again.look()
        assert site.holds(5)
    assert "Read timed out" in caplog.text
    assert site.ready() == site.current()
    site.batch(site.ready(), 2)
    looks(again)
    assert not site.holds(5) and site.holds(6)


def test_while_versions_in_use_are_gone_for_good_nothing_leaves_the_switches(site, caplog):
    used = behind_by_one_tree(site)
    site.trees(tree(6, "retiring"), tree(7))
    again = site.job()
    failing(again, "virtual_trees", used["virtual_trees"], AnalysisException(GONE))
    looks(again, 12)
    assert site.holds(5) and site.holds(6) and site.holds(7)
    assert site.state(6) == "retiring"
    assert caplog.text.count("delete its rows from egress_ledger") == 1
    site.batch(site.ready(), 2)
    looks(again, 12)
    assert not site.holds(5) and not site.holds(6) and site.holds(7)
    assert site.state(6) == "retired"


def test_a_tree_in_use_by_gone_versions_alone_is_not_retired(site):
    site.trees(tree(5))
    looks(site.job())
    used = site.current()
    site.batch(used, 1)
    site.trees(tree(5, "retiring"))
    again = site.job()
    failing(again, "virtual_trees", used["virtual_trees"], AnalysisException(GONE))
    looks(again, 12)
    assert site.state(5) == "retiring" and site.holds(5)
