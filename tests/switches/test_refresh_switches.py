"""Switches follow the tables: real Delta, real P4Runtime, the lab's network as its own process."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from paths import P4, ROOT
from polling import polled
from pyspark.sql import SparkSession
from stopping_job import StoppingJob
from waiting import until

from jobs import refresh_switches
from jobs.adapters.app import application
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.switches import leader_watch
from jobs.adapters.switches.apply import Applier
from jobs.adapters.switches.derive import Derived
from jobs.adapters.switches.lead import Refresher
from jobs.adapters.switches.metrics import SwitchMetrics
from jobs.adapters.switches.p4runtime import SwitchConnection
from jobs.adapters.switches.program import Programs
from jobs.adapters.switches.session import SwitchSession, SwitchTarget
from jobs.adapters.switches.sessions import SwitchSessions
from jobs.adapters.tables.network_versions import SOURCES, TABLE, NetworkVersions
from jobs.adapters.tables.tables import Tables
from lab.up.process import Child
from udfs.errors import NetworkError
from udfs.network.rows import network_to_rows, tree_to_row
from udfs.network.topology import fabric
from udfs.network.virtual_tree import VirtualTree
from udfs.switches.entry import Difference, SwitchEntry, entry_to_row
from udfs.switches.stack_entries import switch_entries
from udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
(BROADCAST,) = broadcast_trees(NETWORK)
#: A tree inside the first rack: it concerns that switch and no other.
RACK = NETWORK.hosts["h1"].switch
SMALL = VirtualTree(900, frozenset({("h1", RACK)}), "test", "active")
TABLES = (*SOURCES, "switch_entries", "switch_status", TABLE, "egress_ledger")
#: Above that of the settings, below that of --reconcile.
RIVAL = 7


class Deployment:
    def __init__(self, spark: SparkSession, folder: Path, p4runtime: str, ingress: str) -> None:
        """folder: empty tables are in it."""
        self._ready: tuple[dict[str, int], dict[str, int] | None] | None = None
        self.spark, self.p4runtime, self.ingress = spark, p4runtime, ingress
        self.tables = Tables(spark, str(folder / "tables"))
        self.settings = Settings(tables=self.tables.location, wait_seconds=1, p4_folder=str(P4))
        self.reset()

    def reset(self) -> None:
        self.place({})
        self.trees(BROADCAST)

    def place(self, elsewhere: dict[str, str]) -> None:
        """Write the network; all switches are where they are but those that are elsewhere."""
        addresses = dict.fromkeys(NETWORK.switches, self.p4runtime) | elsewhere
        rows = network_to_rows(NETWORK, addresses)
        # Versions that are in use by now say the same of hosts and links.
        for name in rows if not self.tables.rows("hosts") else ["switches"]:
            self.tables.overwrite(name, rows[name])

    def trees(self, *trees: VirtualTree) -> None:
        self.tables.overwrite("virtual_trees", [tree_to_row(tree) for tree in trees])

    def refresher(self, election_id: int = 1) -> Refresher:
        return Refresher(self.tables, self.settings, election_id=election_id)

    def states(self) -> dict[int, str]:
        return {row["tree_id"]: row["state"] for row in polled(self.tables, "virtual_trees")}

    def batch(self, versions: dict[str, int]) -> None:
        """A stream's batch of these versions is on record."""
        row = dict.fromkeys(self.tables.read("egress_ledger").columns, 0)
        now = dt.datetime.now(dt.UTC)
        row |= {
            "topic": "t",
            "partitions": [],
            "versions": versions,
            "started_at": now,
            "settings": None,
        }
        self.tables.append("egress_ledger", [row | {"seconds": 0.0}])

    def current(self) -> dict[str, int]:
        return {name: self.tables.version(name) for name in SOURCES}

    def ready(self) -> dict[str, int] | None:
        current = {name: self.tables.version(name) for name in (*SOURCES, TABLE)}
        # A look at the table takes half a second.
        if self._ready is None or self._ready[0] != current:
            newest = NetworkVersions(self.tables).newest({name: current[name] for name in SOURCES})
            self._ready = current, None if newest is None else dict(newest)
        return self._ready[1]

    def held(self, switch: str) -> set[SwitchEntry]:
        """What a client of its own reads from the switch."""
        device = NETWORK.switches[switch].device_id
        with SwitchConnection.connect(self.p4runtime, device, 0) as connection:
            return connection.read_entries(switch)

    def in_step(self, *trees: VirtualTree) -> bool:
        wanted = switch_entries(NETWORK, trees)
        return all(
            self.held(name) == {entry for entry in wanted if entry.switch == name}
            for name in NETWORK.switches
        )

    @contextmanager
    def led_by_another(self) -> Iterator[None]:
        """Another refresher goes before those of the settings, and writes nothing."""
        with ExitStack() as stack:
            for name, switch in NETWORK.switches.items():
                target = SwitchTarget(name, self.p4runtime, switch.device_id)
                assert stack.enter_context(SwitchSession(target, election_id=RIVAL)).leads()
            yield

    def rob(self, switch: str) -> None:
        """Somebody else takes the lead of a switch, removes half of what it holds, and leaves."""
        device = NETWORK.switches[switch].device_id
        with SwitchConnection.connect(self.p4runtime, device, 1 << 62) as connection:
            highest, _ = connection.rivals
            assert connection.ask_again(highest + 1)
            entries = sorted(connection.read_entries(switch), key=lambda entry: entry.key)
            labels = tuple(entry for entry in entries if "label" in entry.table)
            assert connection.write(Difference((), (), labels[::2])) == []

    def status(self, since: int) -> list[dict]:
        """Rows of switch_status that came after a version of it."""
        old = len(self.tables.rows("switch_status", since))
        rows = self.tables.rows("switch_status")
        return sorted(rows, key=lambda row: row["checked_at"])[old:]

    @contextmanager
    def following(self, refresher: Refresher) -> Iterator[list[BaseException]]:
        """The job follows, on a thread of its own; what it fails with is in the list."""
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
            thread.join(60)
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
    line = [sys.executable, "-m", "lab.fabric.network", "--description", folder / "network.json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Child("network", [*line, "--out", folder], folder / "log", environment) as child:
        where = json.loads(child.start(60))
        yield Deployment(spark, folder, where["p4runtime"], where["ingress"]["feed1"])


#: A write of a switch, or a commit of `switch_entries`, of which nothing is left but to do it.
STEPS = {
    "switch": "jobs.adapters.switches.p4runtime:SwitchConnection._sign",
    "table": "jobs.adapters.tables.local:merge",
}


@contextmanager
def in_a_process(deployment: Deployment, folder: Path, step: str) -> Iterator[StoppingJob]:
    """A refresher of election id 2, which leads."""
    since = deployment.tables.version("network_versions")
    conf = {
        "spark.stackcast.tables": deployment.tables.location,
        "spark.stackcast.p4runtime.electionId": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
    }
    job = StoppingJob(folder, STEPS[step], "refresh_switches.py", conf=conf)
    ends = job.program.process.poll
    try:
        until(lambda: deployment.tables.version("network_versions") > since or ends() is not None)
        until(lambda: deployment.ready() == deployment.current() or ends() is not None)
        assert ends() is None, job.program.output[-4000:]
        yield job
    finally:
        job.program.kill()


# The first, as later ones put batches on record, for which switches keep trees that were there.
@pytest.mark.parametrize("step", STEPS)
def test_a_leader_that_stood_still_and_goes_on_writes_over_nothing_of_who_led_meanwhile(
    deployment: Deployment, tmp_path: Path, step: str
) -> None:
    tables = deployment.tables
    other = VirtualTree(903, frozenset({("h3", NETWORK.hosts["h3"].switch)}), "test", "active")
    with in_a_process(deployment, tmp_path, step) as job:
        job.stop_at_step()
        deployment.trees(BROADCAST, SMALL)
        job.wait_until_stopped()
        deployment.trees(BROADCAST, other)
        with closing(deployment.refresher(RIVAL)) as rival:
            assert rival.once() == {}
            assert deployment.in_step(BROADCAST, other)
            written = {name: tables.version(name) for name in TABLES}
            job.go_on()
            until(lambda: "another refresher writes the switches" in job.program.output)
            for _ in range(10):
                assert deployment.in_step(BROADCAST, other)
                time.sleep(0.1)
            assert {name: tables.version(name) for name in TABLES} == written
        # Once that one is gone it leads again, by the tables of now.
        deployment.trees(BROADCAST)
        until(lambda: deployment.in_step(BROADCAST))
        assert job.program.process.poll() is None
    deployment.reset()


def test_a_standby_of_a_lower_id_does_the_edits_of_a_leader_that_stands_still(
    deployment: Deployment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Less than the lab's switches need to find out that nobody is behind a connection.
    monkeypatch.setattr(leader_watch, "QUIET_SECONDS", 1.0)
    standby = deployment.refresher(1)
    with (
        in_a_process(deployment, tmp_path, "switch") as job,
        deployment.following(standby) as failures,
    ):
        until(lambda: bool(failures) or "another refresher writes" in caplog.text)
        job.program.process.send_signal(signal.SIGSTOP)
        job.wait_until_stopped()
        deployment.trees(BROADCAST, SMALL)
        until(lambda: bool(failures) or deployment.in_step(BROADCAST, SMALL))
        until(lambda: bool(failures) or deployment.ready() == deployment.current())
        assert "election id 2 leads and does not answer" in caplog.text and standby.metrics.leads
        # It goes on: it takes its place again, and writes nothing of what it knew before.
        job.go_on()
        until(lambda: bool(failures) or not standby.metrics.leads)
        for _ in range(10):
            assert deployment.in_step(BROADCAST, SMALL)
            time.sleep(0.1)
        deployment.trees(BROADCAST)
        until(lambda: bool(failures) or deployment.in_step(BROADCAST))
        assert job.program.process.poll() is None and not standby.metrics.leads
    deployment.reset()


def test_what_a_switch_drops_is_in_a_table_by_the_reason_of_its_program(
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
        wanted = {("EMPTY_STACK", 3), ("NOT_IPV4", 2)}

        def told() -> bool:
            rows = polled(deployment.tables, "switch_drops")
            return wanted <= {(r["reason"], r["packets"]) for r in rows if r["switch"] == home}

        until(told)


def test_a_refresh_brings_every_switch_in_step_and_says_so(deployment: Deployment) -> None:
    before = deployment.tables.version("switch_status")
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
    version = deployment.tables.version("switch_entries")
    assert deployment.in_step(BROADCAST)
    rows = deployment.status(before)
    assert sorted(row["switch"] for row in rows) == sorted(NETWORK.switches)
    for row in rows:
        assert row["in_step"] and row["errors"] == [] and row["entries_version"] == version
        assert row["held"] == row["desired"] == len(deployment.held(row["switch"]))
        assert 0 < row["seconds"] < 60
    # The versions are ready, and it is on record how long that took.
    current = deployment.current()
    assert deployment.ready() == current
    (ready,) = [r for r in deployment.tables.rows("network_versions") if r["versions"] == current]
    assert ready["entries_version"] == version and ready["topic"] is None
    assert ready["seconds"] == (ready["ready_at"] - ready["committed_at"]).total_seconds()
    assert 0 < ready["seconds"] < 600


def test_a_switch_that_forgot_entries_is_repaired(deployment: Deployment) -> None:
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
        deployment.rob(RACK)
        assert not deployment.in_step(BROADCAST)
        assert refresher.once() == {}
        assert deployment.in_step(BROADCAST)


def test_a_switch_that_is_away_is_told_and_the_others_are_in_step(
    deployment: Deployment,
) -> None:
    deployment.place({RACK: "127.0.0.1:1"})
    try:
        before = deployment.tables.version("switch_status")
        with deployment.refresher() as refresher:
            assert refresher.once().keys() == {RACK}
        rows = {row["switch"]: row for row in deployment.status(before)}
        away = rows.pop(RACK)
        assert not away["in_step"] and away["held"] is None
        (error,) = away["errors"]
        assert "SWITCH.UNREACHABLE" in error and "127.0.0.1:1" in error
        assert rows.keys() == NETWORK.switches.keys() - {RACK}
        assert all(row["in_step"] for row in rows.values())
        # Nothing is ready that one of them may lack.
        assert deployment.ready()["switches"] < deployment.tables.version("switches")
    finally:
        deployment.reset()


def test_odd_values_of_one_switch_cost_no_other_its_status(deployment: Deployment) -> None:
    tables = deployment.tables
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
    version, before = tables.version("switch_entries"), tables.version("switch_status")
    other = NETWORK.hosts["h3"].switch
    row = entry_to_row(next(e for e in switch_entries(NETWORK, []) if e.switch == RACK))
    odd = {**row, "entry_key": "odd", "match": [{"field": "port", "kind": "exact", "value": None}]}
    switches = [
        row | {"pipeline": "unheard"} if row["switch"] == other else row
        for row in tables.rows("switches")
    ]
    rows = [*tables.rows("switch_entries"), odd]
    derived = Derived(1, deployment.current(), None, version, rows, switches, {})
    programs = Programs(deployment.settings.p4_folder)
    with closing(SwitchSessions(programs, SwitchSession)) as sessions:
        applied = Applier(tables, sessions, SwitchMetrics(), lambda: True).apply(derived, 60.0)
    assert applied.behind.keys() == {RACK, other} and not applied.ready
    told = {row["switch"]: row for row in deployment.status(before)}
    assert told.keys() == NETWORK.switches.keys()
    assert {name for name, row in told.items() if not row["in_step"]} == {RACK, other}
    assert "TypeError" in told[RACK]["errors"][0]
    assert "SWITCH.NO_P4INFO" in told[other]["errors"][0]


def test_what_somebody_wrote_by_hand_is_taken_back(deployment: Deployment) -> None:
    row = entry_to_row(next(e for e in switch_entries(NETWORK, []) if e.switch == RACK))
    deployment.tables.append("switch_entries", [row | {"entry_key": "odd"}])
    with deployment.refresher() as refresher:
        assert refresher.once() == {}
    assert "odd" not in {row["entry_key"] for row in deployment.tables.rows("switch_entries")}
    assert deployment.in_step(BROADCAST)


def test_deriving_again_what_is_there_makes_no_version(deployment: Deployment) -> None:
    with deployment.refresher() as one:
        assert one.once() == {}
    version = deployment.tables.version("switch_entries")
    with deployment.refresher() as other:
        assert other.once() == {}
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
            # It is not tried again until somebody edits the tables.
            for _ in range(3):
                refresher.wake.set()
                refresher.poll()
            assert caplog.text.count("the tables cannot be used") == 1
            assert deployment.tables.version("switch_entries") == version
            assert deployment.in_step(BROADCAST)
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
        until(lambda: bool(failures) or deployment.in_step(BROADCAST, SMALL))
        until(lambda: bool(failures) or deployment.ready() == deployment.current())
        added = tables.version("switch_status")
        assert added > begun
        # A tree that makes no sense harms nobody; one that is removed disappears.
        deployment.trees(BROADCAST, VirtualTree(901, frozenset({("h1", "h2")}), "x", "active"))
        time.sleep(3)
        assert deployment.in_step(BROADCAST, SMALL)
        deployment.trees(BROADCAST)
        until(lambda: bool(failures) or deployment.in_step(BROADCAST))
        assert {row["switch"] for row in deployment.status(added)} == {RACK}
        # Somebody writes the table by hand: that is taken back, and no switch ever sees it.
        seen = tables.version("switch_status")
        entries = tables.version("switch_entries")
        tables.overwrite("switch_entries", [])
        until(lambda: bool(failures) or tables.version("switch_entries") > entries + 1)
        assert deployment.in_step(BROADCAST) and tables.version("switch_status") == seen
        # One that somebody robbed is mended within seconds.
        deployment.rob(RACK)
        assert not deployment.in_step(BROADCAST)
        until(lambda: bool(failures) or deployment.in_step(BROADCAST), seconds=10)
    refresher.close()


def test_trees_are_exchanged_without_a_moment_in_which_a_stack_names_what_is_not_there(
    deployment: Deployment,
) -> None:
    """New ones become active when all switches hold them, old ones go when streams went on."""
    old, new = SMALL, VirtualTree(902, frozenset({("h2", NETWORK.hosts["h2"].switch)}), "t")
    deployment.trees(BROADCAST, old)
    refresher = deployment.refresher()
    with deployment.following(refresher) as failures:
        until(lambda: bool(failures) or deployment.ready() == deployment.current())
        until(lambda: deployment.in_step(BROADCAST, old))
        used = deployment.ready() | {"subscriptions": 3}
        deployment.batch(used)
        rows = [tree_to_row(tree) for tree in (BROADCAST, old, new)]
        rows[1]["state"], rows[2]["state"] = "retiring", "installing"
        deployment.tables.overwrite("virtual_trees", rows)
        until(lambda: bool(failures) or deployment.states().get(new.id) == "active")
        until(lambda: deployment.ready()["virtual_trees"] > used["virtual_trees"] + 1)
        # The stream has not taken them up yet: the old tree stays.
        time.sleep(3)
        assert deployment.states()[old.id] == "retiring"
        assert deployment.in_step(BROADCAST, old, new)
        deployment.batch(deployment.ready() | {"subscriptions": 3})
        until(lambda: bool(failures) or deployment.states()[old.id] == "retired")
        until(lambda: bool(failures) or deployment.in_step(BROADCAST, new))
        # No other tree gets its id while a stream may go back to versions before it was retired.
        held = deployment.tables.version("switch_entries")
        rows[1] |= {"state": "installing", "edges": rows[2]["edges"]}
        rows[2]["state"] = "active"
        deployment.tables.overwrite("virtual_trees", rows)
        until(lambda: bool(failures) or "TREE_ID_REUSED" in refresher.metrics.refused_why)
        assert deployment.states()[old.id] == "installing"
        assert deployment.tables.version("switch_entries") == held
        assert deployment.in_step(BROADCAST, new)
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
        until(lambda: bool(failures) or waiting.metrics.leads is not None)
        assert waiting.metrics.leads is False
        written = {name: tables.version(name) for name in TABLES}
        deployment.trees(BROADCAST, SMALL)
        time.sleep(4)
        assert not failures
        now = {name: tables.version(name) for name in TABLES}
        assert now == written | {"virtual_trees": written["virtual_trees"] + 1}
        assert deployment.in_step(BROADCAST)
        leader.close()
        until(lambda: bool(failures) or deployment.in_step(BROADCAST, SMALL))
        until(lambda: bool(failures) or deployment.ready() == deployment.current())
    deployment.reset()


def test_a_job_tells_by_its_exit_code_whether_all_are_in_step(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The session of the tests stands in for one of the job's own, which would take seconds.
    monkeypatch.setattr(refresh_switches.session, "start", lambda _: deployment.spark)
    monkeypatch.setattr(Lifecycle, "hold_jvm", lambda *_: None)
    monkeypatch.setattr(Settings, "read", lambda _: deployment.settings)
    monkeypatch.setattr(application, "set_up", lambda: None)
    job = refresh_switches.main
    assert job(["--once"]) == 0
    assert deployment.ready()["virtual_trees"] == deployment.tables.version("virtual_trees")
    assert job(["--dry-run"]) == 0
    capsys.readouterr()
    # A dry run says what an edit would change, and changes nothing.
    deployment.trees(BROADCAST, SMALL)
    versions = {name: deployment.tables.version(name) for name in TABLES}
    assert job(["--dry-run"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith(f"+ {RACK} ingress.label_") for line in lines)
    assert "|label=4384 -> ingress.label_1.tree(ports=" in lines[0]
    assert versions == {name: deployment.tables.version(name) for name in TABLES}
    assert deployment.in_step(BROADCAST)
    # While another leads, a first pass has to wait; what mends takes over.
    with deployment.led_by_another():
        assert job(["--once"]) == 2
        assert deployment.in_step(BROADCAST)
        assert job(["--reconcile"]) == 0
        assert deployment.in_step(BROADCAST, SMALL)
    deployment.place({RACK: "127.0.0.1:1"})
    try:
        assert job(["--once"]) == 1
        assert job(["--dry-run"]) == 2
    finally:
        deployment.reset()
    assert job(["--twice"]) == job(["--once", "--dry-run"]) == 2
