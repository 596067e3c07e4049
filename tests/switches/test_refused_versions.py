"""Tables that cannot be used: switches stay as they were, and are kept so, until they can be."""

from __future__ import annotations

import datetime as dt

import pytest
from rollout_world import OneProgram, World, hasty, refresher

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.switches.wanted import WantedEntries
from stackcast.jobs.adapters.tables.network_versions import SOURCES, NetworkVersions
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches.derivation import DERIVATIONS

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
RACK, OTHER = (NETWORK.hosts[name].switch for name in ("h1", "h2"))
STACKS, FILTERS, SPARE = "virtual_trees", "packet_subscriptions", "spare"


@pytest.fixture(autouse=True)
def _hasty():
    with hasty():
        yield


class Site:
    """A network whose switches a refresher has brought in step."""

    def __init__(self):
        self.world = World()
        self.tables = self.world.tables
        for name, rows in network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "")).items():
            self.tables.overwrite(name, rows)
        tree = VirtualTree(5, frozenset([("h1", RACK)]), "test", "active")
        self.tables.overwrite("virtual_trees", [tree_to_row(tree)])
        self.job = refresher(self.world)
        self.polls()
        assert self.is_ready()
        self.held = {name: dict(entries) for name, entries in self.world.held.items()}

    def polls(self):
        for _ in range(6):
            self.job.poll()

    def switch(self, name, **values):
        rows = self.tables.rows("switches")
        self.tables.overwrite(
            "switches", [row | values if row["switch"] == name else row for row in rows]
        )

    def reboot(self, name):
        """The switch forgets all, and every refresher loses its connection."""
        self.world.held[name].clear()
        self.world.programs.pop(name, None)
        self.world.disturbed.add(("a", name))

    def current(self):
        return {name: self.tables.version(name) for name in SOURCES}

    def is_ready(self):
        return NetworkVersions(self.tables).newest(self.current()) == self.current()

    def status(self, switch):
        return [row for row in self.tables.rows("switch_status") if row["switch"] == switch][-1]


@pytest.fixture
def site():
    return Site()


RESTARTED = pytest.mark.parametrize("restarted", [False, True], ids=["runs on", "restarted"])


@RESTARTED
def test_a_refused_program_never_reaches_a_switch(site, restarted):
    site.switch(RACK, pipeline=FILTERS)
    site.polls()
    if restarted:
        site.job = refresher(site.world)
    site.reboot(RACK)
    site.polls()
    assert site.world.programs[RACK] == STACKS
    assert site.world.held == site.held and not site.is_ready()
    # Nor does it while another leads for a moment.
    site.world.leader = "b"
    site.polls()
    site.world.leader = "a"
    site.reboot(RACK)
    site.polls()
    assert site.world.programs[RACK] == STACKS and site.world.held == site.held
    site.switch(RACK, pipeline=STACKS)
    site.polls()
    assert site.is_ready()


@RESTARTED
@pytest.mark.parametrize("gone", [{RACK}, set(NETWORK.switches)], ids=["one", "all"])
def test_a_switch_whose_row_was_deleted_by_mistake_is_mended_when_it_reboots(site, restarted, gone):
    rows = site.tables.rows("switches")
    site.tables.overwrite("switches", [row for row in rows if row["switch"] not in gone])
    site.polls()
    if restarted:
        site.job = refresher(site.world)
    site.reboot(RACK)
    site.polls()
    assert site.world.held == site.held and site.world.programs[RACK] == STACKS
    assert site.status(RACK)["in_sync"]


def test_where_nothing_was_ever_usable_no_switch_is_touched(site):
    """Entries are on record, but of which rows of switches nobody can say any more."""
    site.tables.overwrite("network_versions", [])
    site.switch(RACK, pipeline=FILTERS)
    site.reboot(RACK)
    site.job = refresher(site.world)
    site.polls()
    assert RACK not in site.world.programs and not site.world.held[RACK]


def test_a_refusal_is_told_though_the_last_ready_rows_of_switches_are_gone(site, monkeypatch):
    ready = site.tables.version("switches")
    rows = site.tables.rows("switches")
    site.tables.overwrite("switches", rows[1:])
    site.job = refresher(site.world)
    real = site.job._tables.rows

    def read(name, version=None, since=None):
        if (name, version) == ("switches", ready):
            raise StorageError(
                "[DELTA_VERSION_NOT_FOUND] Cannot time travel to version 1.", gone=True
            )
        return real(name, version, since)

    monkeypatch.setattr(site.job._tables, "rows", read)
    site.polls()
    assert "NETWORK." in site.job.metrics.refused_why and site.world.held == site.held


class BrokenFolder(OneProgram):
    """One program is none any more. mended: it is again."""

    mended = False

    def program(self, name):
        if name == SPARE and not self.mended:
            raise SwitchError("NO_P4INFO", "it is no P4Info")
        return name

    def tables(self, name):
        wrong = name == SPARE and not self.mended
        return ["ingress.other"] if wrong else super().tables(name)


def test_after_a_restart_with_a_wrong_program_all_other_switches_are_kept_in_step(
    site, monkeypatch
):
    monkeypatch.setitem(DERIVATIONS, SPARE, DERIVATIONS[STACKS])
    site.switch(RACK, pipeline=SPARE)
    site.polls()
    assert site.is_ready() and site.world.programs[RACK] == SPARE
    programs = BrokenFolder()
    site.job = refresher(site.world, programs=programs)
    site.reboot(OTHER)
    site.polls()
    assert site.world.held == site.held
    assert not site.status(RACK)["in_sync"] and "NO_P4INFO" in site.status(RACK)["errors"][0]
    # Somebody puts the right file there; no table changes.
    programs.mended = True
    site.reboot(RACK)
    site.polls()
    assert site.world.held == site.held and site.job.metrics.refused_why == ""


def moved(site, port):
    """Host h1 is on another port, by a link that keeps its id."""
    for name, key in (("hosts", "host"), ("links", "neighbor")):
        rows = site.tables.rows(name)
        site.tables.overwrite(
            name, [row | {"port": port} if row[key] == "h1" else row for row in rows]
        )


def test_what_was_refused_is_taken_up_once_the_reason_is_gone(site, caplog):
    now = dt.datetime.now(dt.UTC)
    row = {"topic": "gone", "versions": site.current(), "started_at": now}
    site.tables.append("egress_ledger", [row])
    moved(site, 29)
    site.polls()
    assert "LINK_ID_REUSED" in site.job.metrics.refused_why and not site.is_ready()
    assert site.world.held == site.held
    assert caplog.text.count("the tables cannot be used") == 1
    # Nobody uses those versions any more, and they are taken off the record.
    site.tables.overwrite("egress_ledger", [])
    rows = site.tables.rows("network_versions")
    site.tables.overwrite("network_versions", [row for row in rows if not row["versions"]])
    site.polls()
    assert site.job.metrics.refused_why == "" and site.is_ready()


def test_a_commit_of_somebody_else_while_entries_are_written_is_not_taken_for_ours(
    site, monkeypatch
):
    rows = site.tables.rows("switch_entries")
    real = WantedEntries.at

    def meanwhile(self, versions, current):
        wanted = real(self, versions, current)
        monkeypatch.setattr(WantedEntries, "at", real)
        site.tables.overwrite("switch_entries", rows[5:])
        return wanted

    monkeypatch.setattr(WantedEntries, "at", meanwhile)
    links = site.tables.rows("links")
    site.tables.overwrite("links", links)
    site.polls()
    by_key = lambda row: (row["switch"], row["entry_key"])  # noqa: E731
    assert sorted(site.tables.rows("switch_entries"), key=by_key) == sorted(rows, key=by_key)
    assert site.is_ready()
