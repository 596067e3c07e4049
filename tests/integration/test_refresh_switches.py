"""Switches follow the tables: real Delta, real P4Runtime, the lab's network as its own process."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import refresh_switches
from jobs.adapters.lifecycle import Lifecycle
from jobs.adapters.p4runtime import SwitchConnection
from jobs.adapters.refresh import Refresher
from jobs.adapters.settings import Settings
from jobs.adapters.tables import Tables
from lab.process import Child
from udfs.errors import NetworkError
from udfs.stacks.entries import switch_entries
from udfs.switches.entry import SwitchEntry, difference
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.rows import entry_to_row, network_to_rows, tree_to_row
from udfs.trees.topology import fabric
from udfs.trees.virtual_tree import VirtualTree

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
(BROADCAST,) = broadcast_trees(NETWORK)
#: A tree inside the first rack: it concerns that switch and no other.
RACK = NETWORK.hosts["h1"].switch
SMALL = VirtualTree(900, frozenset({("h1", RACK)}), "test", "active")
TABLES = ("switches", "hosts", "links", "virtual_trees", "switch_entries", "switch_status")


class Deployment:
    def __init__(self, spark: SparkSession, folder: Path, p4runtime: str) -> None:
        self.spark, self.p4runtime = spark, p4runtime
        self.tables = Tables(spark, str(folder / "tables"))
        self.tables.create(*TABLES)
        self.settings = Settings(
            tables=self.tables.location, wait_seconds=1, p4_folder=str(ROOT / "p4")
        )
        self.refresher = Refresher(self.tables, self.settings)
        self.reset()

    def reset(self) -> None:
        self.place({})
        self.trees(BROADCAST)

    def place(self, elsewhere: dict[str, str]) -> None:
        """Write the network; all switches are where they are but those that are elsewhere."""
        addresses = dict.fromkeys(NETWORK.switches, self.p4runtime) | elsewhere
        for name, rows in network_to_rows(NETWORK, addresses).items():
            self.tables.overwrite(name, rows)

    def trees(self, *trees: VirtualTree) -> None:
        self.tables.overwrite("virtual_trees", [tree_to_row(tree) for tree in trees])

    def held(self, switch: str) -> set[SwitchEntry]:
        """What a client of its own reads from the switch."""
        device = NETWORK.switches[switch].device_id
        with SwitchConnection.connect(self.p4runtime, device, 1) as connection:
            return connection.read_entries(switch)

    def in_step(self, *trees: VirtualTree) -> bool:
        wanted = switch_entries(NETWORK, trees)
        return all(
            self.held(name) == {entry for entry in wanted if entry.switch == name}
            for name in NETWORK.switches
        )

    def status(self, since: int) -> list[dict]:
        """Rows of switch_status that came after a version of it."""
        old = len(self.tables.rows("switch_status", since))
        rows = self.tables.rows("switch_status")
        return sorted(rows, key=lambda row: row["checked_at"])[old:]


@pytest.fixture(scope="module")
def deployment(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("refresh")
    rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, ""))
    (folder / "network.json").write_text(json.dumps(rows))
    line = [sys.executable, "-m", "lab.network", "--description", folder / "network.json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Child("network", [*line, "--out", folder], folder / "log", environment) as child:
        where = json.loads(child.start(60))
        yield Deployment(spark, folder, where["p4runtime"])


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_a_refresh_brings_every_switch_in_step_and_says_so(deployment: Deployment) -> None:
    before = deployment.tables.version("switch_status")
    version = deployment.refresher.derive()
    statuses = deployment.refresher.refresh(version)
    assert deployment.in_step(BROADCAST)
    assert {s["switch"] for s in statuses} == set(NETWORK.switches)
    rows = deployment.status(before)
    assert {row["switch"] for row in rows} == set(NETWORK.switches)
    for row in rows:
        assert row["in_step"] and row["errors"] == [] and row["entries_version"] == version
        assert row["held"] == row["desired"] == len(deployment.held(row["switch"]))
        assert 0 < row["seconds"] < 60


def test_a_switch_that_forgot_or_made_up_entries_is_repaired(deployment: Deployment) -> None:
    version = deployment.refresher.derive()
    deployment.refresher.refresh(version)
    device = NETWORK.switches[RACK].device_id
    with SwitchConnection.connect(deployment.p4runtime, device, 1) as connection:
        # One half is gone, and a tree is there that nobody knows.
        kept = set(sorted(connection.read_entries(RACK), key=lambda entry: entry.key)[::2])
        kept |= {e for e in switch_entries(NETWORK, [SMALL]) if e.switch == RACK and "900" in e.key}
        stray = [e for e in switch_entries(NETWORK, [SMALL]) if e.table == "ingress.check_tree"]
        assert stray
        assert connection.write(difference(kept | set(stray), connection.read_entries(RACK))) == []
    assert not deployment.in_step(BROADCAST)
    assert all(s["in_step"] for s in deployment.refresher.refresh(version))
    assert deployment.in_step(BROADCAST)


def test_a_switch_that_is_away_is_told_and_the_others_are_in_step(
    deployment: Deployment,
) -> None:
    deployment.place({RACK: "127.0.0.1:1"})
    try:
        before = deployment.tables.version("switch_status")
        deployment.refresher.refresh(deployment.refresher.derive())
        rows = {row["switch"]: row for row in deployment.status(before)}
        away = rows.pop(RACK)
        assert not away["in_step"] and away["held"] is None
        (error,) = away["errors"]
        assert "SWITCH.UNREACHABLE" in error and "127.0.0.1:1" in error
        assert rows.keys() == NETWORK.switches.keys() - {RACK}
        assert all(row["in_step"] for row in rows.values())
    finally:
        deployment.reset()


def test_odd_values_of_one_switch_cost_no_other_its_status(deployment: Deployment) -> None:
    version = deployment.refresher.derive()
    before = deployment.tables.version("switch_status")
    other = NETWORK.hosts["h3"].switch
    row = entry_to_row(next(e for e in switch_entries(NETWORK, []) if e.switch == RACK))
    odd = {**row, "entry_key": "odd", "match": [{"field": "port", "kind": "exact", "value": None}]}
    deployment.tables.append("switch_entries", [odd])
    deployment.spark.sql(
        f"UPDATE delta.`{deployment.tables.location}/switches` SET pipeline = 'unheard' "
        f"WHERE switch = '{other}'"
    )
    try:
        deployment.refresher.refresh(version + 1)
        rows = {row["switch"]: row for row in deployment.status(before)}
        assert rows.keys() == NETWORK.switches.keys()
        assert {name for name, row in rows.items() if not row["in_step"]} == {RACK, other}
        assert "TypeError" in rows[RACK]["errors"][0]
        assert "SWITCH.NO_P4INFO" in rows[other]["errors"][0]
    finally:
        deployment.reset()
    assert all(s["in_step"] for s in deployment.refresher.refresh(deployment.refresher.derive()))


def test_deriving_again_what_is_there_makes_no_version(deployment: Deployment) -> None:
    version = deployment.refresher.derive()
    assert Refresher(deployment.tables, deployment.settings).derive() == version


def test_sources_that_do_not_fit_leave_the_derived_entries_as_they_are(
    deployment: Deployment,
) -> None:
    version = deployment.refresher.derive()
    broken = VirtualTree(901, frozenset({("h1", "h2")}), "test", "active")
    deployment.trees(BROADCAST, broken)
    try:
        assert deployment.refresher.stale()
        with pytest.raises(NetworkError):
            deployment.refresher.derive()
        # It is not tried again until somebody edits the tables.
        assert not deployment.refresher.stale()
        assert deployment.tables.version("switch_entries") == version
    finally:
        deployment.reset()


def test_edits_arrive_on_exactly_the_switches_they_concern_while_it_follows(
    deployment: Deployment,
) -> None:
    refresher, tables = deployment.refresher, deployment.tables
    version = refresher.derive()
    refresher.refresh(version)
    begun = tables.version("switch_status")
    # An edit between the first refresh and the stream must not be lost.
    deployment.trees(BROADCAST, SMALL)
    lifecycle = Lifecycle()
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            refresh_switches.follow(tables, refresher, lifecycle, version)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        until(lambda: bool(failures) or tables.version("switch_status") > begun)
        assert not failures
        assert deployment.in_step(BROADCAST, SMALL)
        assert {row["switch"] for row in deployment.status(begun)} == {RACK}
        added = tables.version("switch_status")
        # A tree that makes no sense harms nobody; one that is removed disappears.
        deployment.trees(BROADCAST, VirtualTree(901, frozenset({("h1", "h2")}), "x", "active"))
        time.sleep(2 * refresh_switches.POLL_SECONDS)
        assert deployment.in_step(BROADCAST, SMALL)
        deployment.trees(BROADCAST)
        until(lambda: bool(failures) or tables.version("switch_status") > added)
        assert deployment.in_step(BROADCAST)
        assert {row["switch"] for row in deployment.status(added)} == {RACK}
    finally:
        lifecycle.stopping.set()
        thread.join(60)
        deployment.reset()
    assert not thread.is_alive() and not failures


def test_once_tells_by_its_exit_code_whether_all_are_in_step(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The session of the tests stands in for one of the job's own, which would take seconds.
    monkeypatch.setattr(refresh_switches.session, "start", lambda _: deployment.spark)
    monkeypatch.setattr(Lifecycle, "hold_jvm", lambda *_: None)
    monkeypatch.setattr(Settings, "read", lambda _: deployment.settings)
    monkeypatch.setattr(refresh_switches, "set_up", lambda: None)
    assert refresh_switches.main(["--once"]) == 0
    deployment.place({RACK: "127.0.0.1:1"})
    try:
        assert refresh_switches.main(["--once"]) == 1
    finally:
        deployment.reset()
    assert refresh_switches.main(["--twice"]) == 2
