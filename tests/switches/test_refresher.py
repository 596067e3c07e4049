"""The refresher against model tables and switches: what fails, and what stays as it was."""

from __future__ import annotations

import datetime as dt

import pytest
from rollout_world import FakeSession, World, hasty, refresher

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.switches.results import RefreshResult
from stackcast.jobs.adapters.tables.network_versions import SOURCES, NetworkVersions
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches.entry import canonical

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
RACK = NETWORK.hosts["h1"].switch
GONE = "[DELTA_VERSION_NOT_FOUND] Cannot time travel Delta table to version 2."


@pytest.fixture(autouse=True)
def _hasty():
    with hasty():
        yield


def tree(number, state="active", edges=(("h1", RACK),)):
    return VirtualTree(number, frozenset(edges), "test", state)


class Session(FakeSession):
    """Switches that are ``taken`` are written by somebody else."""

    taken: set[str]

    @property
    def rival(self):
        return f"{self._name} is written by another client, with election id 7"

    def leads(self, connect=True):
        return self._name not in self.taken and super().leads(connect)

    def refresh(self, desired, pipeline, patience=0.0):
        if self._name in self.taken:
            return RefreshResult(None, False, ["written by another"], primary=False)
        return super().refresh(desired, pipeline, patience)


class Site:
    """A world with a network, and refreshers that look at it."""

    def __init__(self):
        self.world = World()
        self.taken = set()
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

    def job(self, owner="a"):
        def opened(target):
            session = Session(self.world, owner, target, lambda: None)
            session.taken = self.taken
            return session

        return refresher(self.world, owner, open_session=opened)

    def status(self, switch):
        """The newest row of a switch."""
        return [row for row in self.tables.rows("switch_status") if row["switch"] == switch][-1]

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


def polls(job, times=6):
    for _ in range(times):
        job.poll()


def failing(job, name, version, error, times=10**9):
    """Have the job's reads of one version fail, the first ``times``."""
    tables = job._tables
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
    polls(job)
    used = site.current()
    site.batch(used, 1)
    site.trees(tree(5, "retiring"), tree(6))
    polls(job)
    site.trees(tree(6))
    polls(job)
    assert site.holds(5) and site.holds(6)
    return used


def test_a_read_that_fails_once_takes_nothing_off_that_a_batch_may_use(site, caplog):
    used = behind_by_one_tree(site)
    again = site.job()
    error = StorageError("java.net.SocketTimeoutException: Read timed out")
    failing(again, "virtual_trees", used["virtual_trees"], error, times=3)
    for _ in range(12):
        again.poll()
        assert site.holds(5)
    assert "Read timed out" in caplog.text
    assert site.ready() == site.current()
    site.batch(site.ready(), 2)
    polls(again)
    assert not site.holds(5) and site.holds(6)


def test_while_versions_in_use_are_gone_for_good_nothing_leaves_the_switches(site, caplog):
    used = behind_by_one_tree(site)
    site.trees(tree(6, "retiring"), tree(7))
    again = site.job()
    failing(again, "virtual_trees", used["virtual_trees"], StorageError(GONE, gone=True))
    polls(again, 12)
    assert site.holds(5) and site.holds(6) and site.holds(7)
    assert site.state(6) == "retiring"
    assert caplog.text.count("delete its rows from egress_ledger") == 1
    site.batch(site.ready(), 2)
    polls(again, 12)
    assert not site.holds(5) and not site.holds(6) and site.holds(7)
    assert site.state(6) == "retired"


def test_a_tree_in_use_by_gone_versions_alone_is_not_retired(site):
    site.trees(tree(5))
    polls(site.job())
    used = site.current()
    site.batch(used, 1)
    site.trees(tree(5, "retiring"))
    again = site.job()
    failing(again, "virtual_trees", used["virtual_trees"], StorageError(GONE, gone=True))
    polls(again, 12)
    assert site.state(5) == "retiring" and site.holds(5)


def test_a_bad_edit_is_told_and_switches_are_mended_though_the_last_good_is_gone(site, caplog):
    site.trees(tree(5))
    polls(site.job())
    good = site.current()
    site.batch(good, 1)
    site.trees(tree(5), tree(7, edges=(("h1", "h2"),)))
    again = site.job()
    failing(again, "virtual_trees", good["virtual_trees"], StorageError(GONE, gone=True))
    site.world.held[RACK].clear()
    polls(again)
    assert site.holds(5)
    assert "the tables cannot be used" in caplog.text
    assert site.ready() == good


def test_a_bad_edit_is_told_though_storage_does_not_answer_for_the_last_good(site, caplog):
    site.trees(tree(5))
    polls(site.job())
    good = site.current()
    site.tables.overwrite("hosts", [])
    again = site.job()
    failing(again, "hosts", good["hosts"], StorageError("timed out"), times=2)
    site.world.held[RACK].clear()
    again.poll()
    assert caplog.text.index("the tables cannot be used") < caplog.text.index("timed out")
    polls(again)
    assert site.holds(5)


def groups_and_rules(site):
    held = site.world.held[RACK].values()
    groups = sum(entry.table == "multicast_group" for entry in held)
    return groups, len(held) - groups


def test_an_exchange_without_room_leaves_that_switch_as_it_is_and_others_go_on(site, caplog):
    site.trees(tree(5))
    job = site.job()
    polls(job)
    first = site.current()
    site.batch(first, 1)
    _, rules = groups_and_rules(site)
    before = dict(site.world.held[RACK])
    site.switches(max_rules=rules)
    polls(job)
    assert site.ready() == site.current()
    far = NETWORK.hosts["h2"].switch
    site.trees(tree(6, "installing"), tree(8, "installing", (("h2", far),)))
    polls(job)
    assert site.world.held[RACK] == before
    assert site.state(6) == "installing" and site.ready() != site.current()
    assert f"{rules} entries for the newest tables, 1 more" not in caplog.text
    assert "more for batches that still use older versions" in caplog.text
    assert not site.status(RACK)["in_sync"]
    assert "SWITCH.LIMIT" in site.status(RACK)["errors"][0]
    assert any(
        "label" in entry.table and entry.match[0][2] == canonical(0x4000 | 8)
        for entry in site.world.held[far].values()
    )
    shown = job.compare()
    assert [name for name, found in shown.items() if isinstance(found, SwitchError)] == [RACK]
    # It restarts, and so does the refresher.
    site.world.held[RACK].clear()
    site.world.disturbed.add(("a", RACK))
    polls(job)
    assert site.world.held[RACK] == before
    site.world.held[RACK].clear()
    job = site.job()
    polls(job)
    assert site.world.held[RACK] == before
    # First out with the old, then in with the new.
    site.trees(tree(5, "retiring"))
    polls(job)
    assert site.ready() == site.current() and site.holds(5)
    site.batch(site.ready(), 2)
    polls(job, 12)
    assert not site.holds(5) and site.state(5) == "retired"
    site.trees(tree(6, "installing"))
    polls(job)
    site.batch(site.ready(), 3)
    polls(job, 12)
    assert site.holds(6) and site.state(6) == "active" and site.ready() == site.current()
    assert site.status(RACK)["in_sync"]


def test_one_client_on_one_switch_keeps_no_other_switch_from_its_entries(site, caplog):
    site.trees(tree(5))
    job = site.job()
    polls(job)
    other = next(name for name in NETWORK.switches if name != RACK)
    site.taken.add(other)
    site.trees(tree(5), tree(6, "installing"))
    polls(job)
    assert site.holds(6)
    assert site.ready() != site.current()
    assert not site.status(other)["in_sync"] and site.status(RACK)["in_sync"]
    # The same where it was there first.
    job = site.job()
    site.trees(tree(5), tree(6, "installing"), tree(7, "installing"))
    polls(job)
    assert site.holds(7) and site.ready() != site.current()
    site.taken.clear()
    polls(job, 12)
    assert site.ready() == site.current()
    assert [site.state(number) for number in (5, 6, 7)] == ["active"] * 3


def test_where_most_switches_are_written_by_another_it_waits_and_names_them(site, caplog):
    site.trees(tree(5))
    site.taken.update(NETWORK.switches)
    job = site.job()
    polls(job)
    for name in NETWORK.switches:
        assert f"{name} is written by another client, with election id 7" in caplog.text
    site.taken.discard(RACK)
    polls(job)
    assert not site.holds(5) and site.tables.version("network_versions") == 0
    site.taken.clear()
    polls(job)
    assert site.holds(5)


def test_one_that_others_have_led_since_gives_way_while_they_hold_most_switches(site):
    site.trees(tree(5))
    job = site.job()
    polls(job)
    site.taken.update(set(NETWORK.switches) - {RACK})
    rival = NetworkVersions(site.tables)
    rival.begin_term()
    site.trees(tree(5), tree(6, "installing"))
    polls(job)
    assert not site.holds(6) and not rival.superseded()
    site.taken.clear()
    polls(job)
    assert site.holds(6) and rival.superseded()
