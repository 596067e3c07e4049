"""Switches follow the tables: real Delta, real P4Runtime, and the lab's network as a process."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from following import polled, wait_for_rounds
from paths import COMPILED_P4, ROOT
from pyspark.sql import SparkSession
from stopping_job import StoppingJob
from waiting import until

from stackcast.jobs import refresh_switches
from stackcast.jobs.adapters.app import application
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches import drops, lead, leader_watch, session
from stackcast.jobs.adapters.switches.apply import Applier
from stackcast.jobs.adapters.switches.derive import Derived
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.switches.metrics import SwitchMetrics
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.jobs.adapters.switches.program import Programs
from stackcast.jobs.adapters.switches.results import SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.jobs.adapters.switches.sessions import SwitchSessions
from stackcast.jobs.adapters.tables.network_versions import SOURCES, TABLE, NetworkVersions
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.lab.up.process import Child
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches.entry import Difference, SwitchEntry, entry_to_row
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
(BROADCAST,) = broadcast_trees(NETWORK)
#: A tree inside the first rack, which concerns only that switch.
RACK = NETWORK.hosts["h1"].switch
SMALL = VirtualTree(900, frozenset({("h1", RACK)}), "test", "active")
TABLES = (*SOURCES, "switch_entries", "switch_status", TABLE, "egress_ledger")
#: An election id above that of the settings and below that of --reconcile.
RIVAL = 7


class Deployment:
    def __init__(self, spark: SparkSession, folder: Path, p4runtime: str, ingress: str) -> None:
        """folder: contains empty tables."""
        self._ready: tuple[dict[str, int], dict[str, int] | None] | None = None
        self.spark, self.p4runtime, self.ingress = spark, p4runtime, ingress
        self.tables = open_tables(spark, str(folder / "tables"))
        self.settings = Settings(
            tables=self.tables.location, wait_seconds=60, p4_folder=str(COMPILED_P4)
        )
        #: Settings for switches that do not answer, or that another refresher writes.
        self.impatient = dataclasses.replace(self.settings, wait_seconds=1)
        self.reset()

    def reset(self) -> None:
        self.place({})
        self.trees(BROADCAST)

    def place(self, wrong: dict[str, str]) -> None:
        """Write the network, with wrong addresses for some switches."""
        addresses = dict.fromkeys(NETWORK.switches, self.p4runtime) | wrong
        rows = network_to_rows(NETWORK, addresses)
        # Hosts and links never change, so versions that are in use stay valid.
        for name in rows if not self.tables.rows("hosts") else ["switches"]:
            self.tables.overwrite(name, rows[name])

    def trees(self, *trees: VirtualTree) -> None:
        self.tables.overwrite("virtual_trees", [tree_to_row(tree) for tree in trees])

    def refresher(self, election_id: int = 1) -> Refresher:
        return Refresher(self.tables, self.settings, election_id=election_id)

    def states(self) -> dict[int, str]:
        return {row["tree_id"]: row["state"] for row in polled(self.tables, "virtual_trees")}

    def batch(self, versions: dict[str, int]) -> None:
        """Record a stream's batch of these versions."""
        row = dict.fromkeys(self.tables.read("egress_ledger").columns, 0)
        started_at = dt.datetime.now(dt.UTC)
        row |= {
            "topic": "t",
            "topic_id": "",
            "partitions": [],
            "versions": versions,
            "started_at": started_at,
            "settings": None,
        }
        self.tables.append("egress_ledger", [row | {"seconds": 0.0}])

    def current(self) -> dict[str, int]:
        return {name: self.tables.version(name) for name in SOURCES}

    def ready(self) -> dict[str, int] | None:
        current = {name: self.tables.version(name) for name in (*SOURCES, TABLE)}
        # Reading the table takes half a second.
        if self._ready is None or self._ready[0] != current:
            newest = NetworkVersions(self.tables).newest({name: current[name] for name in SOURCES})
            self._ready = current, None if newest is None else dict(newest)
        return self._ready[1]

    def entries(self, switch: str) -> set[SwitchEntry]:
        """Returns the entries of a switch, as another client reads them."""
        device = NETWORK.switches[switch].device_id
        with SwitchConnection.connect(self.p4runtime, device, 0) as connection:
            return connection.read_entries(switch)

    def in_sync(self, *trees: VirtualTree) -> bool:
        desired = switch_entries(NETWORK, trees)
        return all(
            self.entries(name) == {entry for entry in desired if entry.switch == name}
            for name in NETWORK.switches
        )

    @contextmanager
    def led_by_another(self) -> Iterator[None]:
        """Another refresher, which writes nothing, precedes those of the settings."""
        with ExitStack() as stack:
            for name, switch in NETWORK.switches.items():
                target = SwitchTarget(name, self.p4runtime, switch.device_id)
                until(stack.enter_context(SwitchSession(target, election_id=RIVAL)).leads)
            yield

    def rob(self, switch: str) -> None:
        """As another client, lead a switch, remove half of its entries, and disconnect."""
        device = NETWORK.switches[switch].device_id
        with SwitchConnection.connect(self.p4runtime, device, 1 << 62) as connection:
            highest, _ = connection.rivals
            assert connection.ask_again(highest + 1)
            entries = sorted(connection.read_entries(switch), key=lambda entry: entry.key)
            labels = tuple(entry for entry in entries if "label" in entry.table)
            assert connection.write(Difference((), (), labels[::2])) == []

    def status(self, since: int) -> list[dict]:
        """Returns the rows of switch_status that are newer than a version of it."""
        old = len(self.tables.rows("switch_status", since))
        rows = self.tables.rows("switch_status")
        return sorted(rows, key=lambda row: row["checked_at"])[old:]

    @contextmanager
    def following(self, refresher: Refresher) -> Iterator[list[BaseException]]:
        """Run the job on a thread; yields a list to which it adds an error that ends it."""
        lifecycle = Lifecycle()
        failures: list[BaseException] = []

        def follow() -> None:
            try:
                refresh_switches.follow(self.tables, refresher, lifecycle)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield failures
        finally:
            lifecycle.stopping.set()
            thread.join(600)
            if failures:
                raise failures[0]
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def deployment(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("refresh")
    shutil.copytree(empty_tables, folder / "tables")
    rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, ""))
    (folder / "network.json").write_text(json.dumps(rows))
    line = [
        sys.executable,
        "-m",
        "stackcast.lab.fabric.network",
        "--description",
        folder / "network.json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        Child("network", [*line, "--out", folder], folder / "log", environment) as child,
        pytest.MonkeyPatch.context() as patch,
    ):
        # Switches answer in milliseconds, and no refresher of these tests stands in for another.
        patch.setattr(session, "_STAND_IN_SECONDS", 0.2)
        patch.setattr(lead, "STANDBY_SECONDS", 0.3)
        patch.setattr(drops, "LOOK_SECONDS", 1.0)
        where = json.loads(child.start(600))
        yield Deployment(spark, folder, where["p4runtime"], where["ingress"]["feed1"])


#: A write to a switch and a commit of `switch_entries`: functions that do this and nothing else.
STEPS = {
    "switch": "stackcast.jobs.adapters.switches.p4runtime:SwitchConnection._sign",
    "table": "stackcast.jobs.adapters.tables.folder_tables:FolderTables.merge",
}


@contextmanager
def leading_process(deployment: Deployment, folder: Path, step: str) -> Iterator[StoppingJob]:
    """A refresher of election id 2, which leads, and which can be suspended at a step."""
    since = deployment.tables.version("network_versions")
    conf = {
        "spark.stackcast.tables": deployment.tables.location,
        "spark.stackcast.p4runtime.electionId": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
    }
    job = StoppingJob(folder, STEPS[step], "refresh_switches.py", conf=conf)
    try:
        until(lambda: deployment.tables.version("network_versions") > since, job.program)
        until(lambda: deployment.ready() == deployment.current(), job.program)
        yield job
    finally:
        job.program.kill()


def check_late_write(deployment: Deployment, job: StoppingJob) -> None:
    """Suspend a leader at its step while another refresher leads; it must overwrite nothing."""
    tables = deployment.tables
    later = VirtualTree(903, frozenset({("h3", NETWORK.hosts["h3"].switch)}), "test", "active")
    job.stop_at_step()
    deployment.trees(BROADCAST, SMALL)
    job.wait_until_stopped()
    deployment.trees(BROADCAST, later)
    with closing(deployment.refresher(RIVAL)) as rival:
        assert rival.once() == {}
        assert deployment.in_sync(BROADCAST, later)
        versions = {name: tables.version(name) for name in TABLES}
        job.go_on()
        until(
            lambda: "another refresher or another client writes the switches" in job.program.output,
            job.program,
        )
        for _ in range(5):
            assert deployment.in_sync(BROADCAST, later)
        assert {name: tables.version(name) for name in TABLES} == versions
    # It leads again after the rival has ended, and applies the tables as they are now.
    deployment.trees(BROADCAST)
    until(lambda: deployment.in_sync(BROADCAST), job.program)


# These come first: later tests record batches, for which switches keep trees that existed then.
@pytest.fixture(scope="class")
def leader(
    deployment: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoppingJob]:
    with leading_process(deployment, tmp_path_factory.mktemp("leader"), "switch") as job:
        yield job
    deployment.reset()


@pytest.mark.long
class TestLeaderThatIsSuspended:
    def test_it_overwrites_nothing_of_a_later_leader_when_it_continues(
        self, deployment: Deployment, leader: StoppingJob
    ) -> None:
        check_late_write(deployment, leader)

    def test_a_standby_of_a_lower_id_takes_over_its_edits(
        self,
        deployment: Deployment,
        leader: StoppingJob,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        # The lab's switches need longer to notice that a client does not answer.
        monkeypatch.setattr(leader_watch, "QUIET_SECONDS", 1.0)
        standby, program = deployment.refresher(1), leader.program
        with deployment.following(standby) as failures:
            until(
                lambda: failures or "another refresher or another client writes" in caplog.text,
                program,
            )
            program.process.send_signal(signal.SIGSTOP)
            leader.wait_until_stopped()
            deployment.trees(BROADCAST, SMALL)
            until(lambda: failures or deployment.in_sync(BROADCAST, SMALL))
            until(lambda: failures or deployment.ready() == deployment.current())
            assert "primary with election id 2 does not answer" in caplog.text
            assert standby.metrics.leads
            # When it continues, it leads again and writes nothing by its old knowledge.
            leader.go_on()
            until(lambda: failures or not standby.metrics.leads, program)
            for _ in range(5):
                assert deployment.in_sync(BROADCAST, SMALL)
            deployment.trees(BROADCAST)
            until(lambda: failures or deployment.in_sync(BROADCAST), program)
            assert not standby.metrics.leads


@pytest.mark.long
def test_a_leader_that_is_suspended_before_a_commit_overwrites_nothing_of_a_later_leader(
    deployment: Deployment, tmp_path: Path
) -> None:
    with leading_process(deployment, tmp_path, "table") as job:
        check_late_write(deployment, job)
    deployment.reset()


def test_drops_of_a_switch_are_in_a_table_by_the_reason_of_its_program(
    deployment: Deployment,
) -> None:
    host, _, port = deployment.ingress.rpartition(":")
    empty_stack, foreign = bytes(12) + b"\x99\x99" + bytes(46), bytes(12) + b"\x88\xb5" + bytes(46)
    with deployment.refresher() as refresher, deployment.following(refresher):
        until(lambda: deployment.ready() == deployment.current())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as publisher:
            for frame, times in ((empty_stack, 3), (foreign, 2)):
                for _ in range(times):
                    publisher.sendto(frame, (host, int(port)))
        home = NETWORK.hosts["feed1"].switch
        drops = {("EMPTY_STACK", 3), ("NOT_IPV4", 2)}

        def recorded() -> bool:
            rows = polled(deployment.tables, "switch_drops")
            return drops <= {(r["reason"], r["packets"]) for r in rows if r["switch"] == home}

        until(recorded)


def test_a_refresh_brings_every_switch_in_step_and_records_it(deployment: Deployment) -> None:
    before = deployment.tables.version("switch_status")
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
    version = deployment.tables.version("switch_entries")
    assert deployment.in_sync(BROADCAST)
    rows = deployment.status(before)
    assert sorted(row["switch"] for row in rows) == sorted(NETWORK.switches)
    for row in rows:
        assert row["in_sync"] and row["errors"] == [] and row["entries_version"] == version
        assert row["installed"] == row["desired"] == len(deployment.entries(row["switch"]))
        assert row["seconds"] > 0
    # The versions are ready, and the table says how long that took.
    current = deployment.current()
    assert deployment.ready() == current
    (ready,) = [r for r in deployment.tables.rows("network_versions") if r["versions"] == current]
    assert ready["entries_version"] == version and ready["topic"] is None
    assert ready["seconds"] == (ready["ready_at"] - ready["committed_at"]).total_seconds()
    assert ready["seconds"] > 0


def test_a_switch_that_forgot_entries_is_repaired(deployment: Deployment) -> None:
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
        deployment.rob(RACK)
        assert not deployment.in_sync(BROADCAST)
        assert refresher.once() == {}
        assert deployment.in_sync(BROADCAST)


def test_an_unreachable_switch_is_reported_and_the_others_are_in_step(
    deployment: Deployment,
) -> None:
    deployment.place({RACK: "127.0.0.1:1"})
    try:
        before = deployment.tables.version("switch_status")
        with Refresher(deployment.tables, deployment.impatient) as refresher:
            assert refresher.once().keys() == {RACK}
        rows = {row["switch"]: row for row in deployment.status(before)}
        row = rows.pop(RACK)
        assert not row["in_sync"] and row["installed"] is None
        (error,) = row["errors"]
        assert "SWITCH.UNREACHABLE" in error and "127.0.0.1:1" in error
        assert rows.keys() == NETWORK.switches.keys() - {RACK}
        assert all(row["in_sync"] for row in rows.values())
        # The new version is not ready, as one switch may not have its entries.
        assert deployment.ready()["switches"] < deployment.tables.version("switches")
    finally:
        deployment.reset()


def test_odd_values_of_one_switch_cost_no_other_its_status(deployment: Deployment) -> None:
    tables = deployment.tables
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
    version, before = tables.version("switch_entries"), tables.version("switch_status")
    second = NETWORK.hosts["h3"].switch
    row = entry_to_row(next(e for e in switch_entries(NETWORK, []) if e.switch == RACK))
    odd = {**row, "entry_key": "odd", "match": [{"field": "port", "kind": "exact", "value": None}]}
    switches = [
        row | {"pipeline": "unknown"} if row["switch"] == second else row
        for row in tables.rows("switches")
    ]
    rows = [*tables.rows("switch_entries"), odd]
    derived = Derived(1, deployment.current(), None, version, rows, switches, {})
    programs = Programs(deployment.settings.p4_folder)
    with closing(SwitchSessions(programs, SwitchSession)) as sessions:
        applied = Applier(tables, sessions, SwitchMetrics(), lambda: True).apply(derived, 60.0)
    assert applied.behind.keys() == {RACK, second} and not applied.ready
    status = {row["switch"]: row for row in deployment.status(before)}
    assert status.keys() == NETWORK.switches.keys()
    assert {name for name, row in status.items() if not row["in_sync"]} == {RACK, second}
    assert "TypeError" in status[RACK]["errors"][0]
    assert "SWITCH.NO_P4INFO" in status[second]["errors"][0]


def test_rows_written_by_hand_are_reverted(deployment: Deployment) -> None:
    row = entry_to_row(next(e for e in switch_entries(NETWORK, []) if e.switch == RACK))
    deployment.tables.append("switch_entries", [row | {"entry_key": "odd"}])
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
    assert "odd" not in {row["entry_key"] for row in deployment.tables.rows("switch_entries")}
    assert deployment.in_sync(BROADCAST)


def test_deriving_the_same_entries_again_makes_no_version(deployment: Deployment) -> None:
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
    version = deployment.tables.version("switch_entries")
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
    assert deployment.tables.version("switch_entries") == version


def test_sources_that_do_not_fit_leave_the_derived_entries_as_they_are(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
        version = deployment.tables.version("switch_entries")
        broken = VirtualTree(901, frozenset({("h1", "h2")}), "test", "active")
        deployment.trees(BROADCAST, broken)
        try:
            with pytest.raises(NetworkError):
                refresher.once()
            # It is not tried again until the next edit of the tables.
            for _ in range(3):
                refresher.wake.set()
                refresher.poll()
            assert caplog.text.count("the tables cannot be used") == 1
            assert deployment.tables.version("switch_entries") == version
            assert deployment.in_sync(BROADCAST)
        finally:
            deployment.reset()


def test_edits_arrive_on_exactly_the_switches_they_concern_while_it_follows(
    deployment: Deployment,
) -> None:
    tables = deployment.tables
    refresher = deployment.refresher()
    assert refresher.once() == {}
    begun = tables.version("switch_status")
    # An edit between a refresh and the start must not be lost.
    deployment.trees(BROADCAST, SMALL)
    with deployment.following(refresher) as failures:
        until(lambda: failures or deployment.in_sync(BROADCAST, SMALL))
        until(lambda: failures or deployment.ready() == deployment.current())
        added = tables.version("switch_status")
        assert added > begun
        # An invalid tree changes no switch; a tree that is removed disappears.
        deployment.trees(BROADCAST, VirtualTree(901, frozenset({("h1", "h2")}), "x", "active"))
        until(lambda: failures or refresher.metrics.refused_why)
        assert deployment.in_sync(BROADCAST, SMALL)
        deployment.trees(BROADCAST)
        until(lambda: failures or deployment.in_sync(BROADCAST))
        assert {row["switch"] for row in deployment.status(added)} == {RACK}
        # Rows written by hand are reverted, and no switch ever gets them.
        status = tables.version("switch_status")
        entries = tables.version("switch_entries")
        tables.overwrite("switch_entries", [])
        until(lambda: failures or tables.version("switch_entries") > entries + 1)
        assert deployment.in_sync(BROADCAST) and tables.version("switch_status") == status
        # Entries that another client removed come back.
        deployment.rob(RACK)
        assert not deployment.in_sync(BROADCAST)
        until(lambda: failures or deployment.in_sync(BROADCAST))
    refresher.close()


def test_trees_are_exchanged_so_that_no_stack_ever_names_a_tree_that_is_not_there(
    deployment: Deployment,
) -> None:
    """A new tree is active once all switches have it; an old one goes once no stream uses it."""
    old, new = SMALL, VirtualTree(902, frozenset({("h2", NETWORK.hosts["h2"].switch)}), "t")
    deployment.trees(BROADCAST, old)
    refresher = deployment.refresher()
    with deployment.following(refresher) as failures:
        until(lambda: failures or deployment.ready() == deployment.current())
        until(lambda: deployment.in_sync(BROADCAST, old))
        versions = deployment.ready() | {"subscriptions": 3}
        deployment.batch(versions)
        rows = [tree_to_row(tree) for tree in (BROADCAST, old, new)]
        rows[1]["state"], rows[2]["state"] = "retiring", "installing"
        deployment.tables.overwrite("virtual_trees", rows)
        until(lambda: failures or deployment.states().get(new.id) == "active")
        until(lambda: deployment.ready()["virtual_trees"] > versions["virtual_trees"] + 1)
        # The stream does not use them yet, so the old tree stays.
        wait_for_rounds(refresher, 4)
        assert deployment.states()[old.id] == "retiring"
        assert deployment.in_sync(BROADCAST, old, new)
        deployment.batch(deployment.ready() | {"subscriptions": 3})
        until(lambda: failures or deployment.states()[old.id] == "retired")
        until(lambda: failures or deployment.in_sync(BROADCAST, new))
        # No other tree gets its id while a stream may return to versions before its retirement.
        version = deployment.tables.version("switch_entries")
        rows[1] |= {"state": "installing", "edges": rows[2]["edges"]}
        rows[2]["state"] = "active"
        deployment.tables.overwrite("virtual_trees", rows)
        until(lambda: failures or "TREE_ID_REUSED" in refresher.metrics.refused_why)
        assert deployment.states()[old.id] == "installing"
        assert deployment.tables.version("switch_entries") == version
        assert deployment.in_sync(BROADCAST, new)
    refresher.close()
    deployment.tables.overwrite("egress_ledger", [])
    deployment.reset()


def test_a_refresher_that_does_not_lead_waits_writes_nothing_and_takes_over(
    deployment: Deployment,
) -> None:
    tables = deployment.tables
    leader, waiting = deployment.refresher(RIVAL), deployment.refresher()
    assert leader.once() == {}
    with closing(leader), closing(waiting), deployment.following(waiting) as failures:
        until(lambda: failures or waiting.metrics.leads is not None)
        assert waiting.metrics.leads is False
        versions = {name: tables.version(name) for name in TABLES}
        deployment.trees(BROADCAST, SMALL)
        wait_for_rounds(waiting, 3)
        assert not failures
        versions["virtual_trees"] += 1
        assert {name: tables.version(name) for name in TABLES} == versions
        assert deployment.in_sync(BROADCAST)
        leader.close()
        until(lambda: failures or deployment.in_sync(BROADCAST, SMALL))
        until(lambda: failures or deployment.ready() == deployment.current())
    deployment.reset()


@pytest.mark.long
def test_the_exit_code_of_the_job_says_whether_all_switches_are_in_step(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The session of the tests replaces one of the job, which would take seconds to start.
    monkeypatch.setattr(refresh_switches.session, "start", lambda _: deployment.spark)
    monkeypatch.setattr(Lifecycle, "hold_jvm", lambda *_: None)
    monkeypatch.setattr(Settings, "read", lambda _: settings)
    monkeypatch.setattr(application, "set_up", lambda: None)
    job, settings = refresh_switches.main, deployment.settings
    assert job(["--once"]) == 0
    assert deployment.ready()["virtual_trees"] == deployment.tables.version("virtual_trees")
    assert job(["--dry-run"]) == 0
    capsys.readouterr()
    # A dry run prints the changes of an edit, and changes nothing.
    deployment.trees(BROADCAST, SMALL)
    versions = {name: deployment.tables.version(name) for name in TABLES}
    assert job(["--dry-run"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith(f"+ {RACK} ingress.label_") for line in lines)
    assert "|label=4384 -> ingress.label_1.tree(ports=" in lines[0]
    assert versions == {name: deployment.tables.version(name) for name in TABLES}
    assert deployment.in_sync(BROADCAST)
    # While another refresher leads, --once has to wait, and --reconcile takes over.
    with deployment.led_by_another():
        settings = deployment.impatient
        assert job(["--once"]) == 2
        settings = deployment.settings
        assert deployment.in_sync(BROADCAST)
        assert job(["--reconcile"]) == 0
        assert deployment.in_sync(BROADCAST, SMALL)
    deployment.place({RACK: "127.0.0.1:1"})
    try:
        settings = deployment.impatient
        assert job(["--once"]) == 1
        assert job(["--dry-run"]) == 2
    finally:
        deployment.reset()
    for wrong in (["--twice"], ["--once", "--dry-run"]):
        with pytest.raises(SystemExit) as ended:
            job(wrong)
        assert ended.value.code == 2
