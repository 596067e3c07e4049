"""A switch whose agent hangs delays no other switch, and nothing reaches it out of order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from entry_tables import PIPELINE, SOME, tree
from fault_server import FaultServer
from rollout_world import FakeSession, HastyClock, World, refresher
from waiting import until

from stackcast.jobs.adapters.runtime.threads import SystemThreads
from stackcast.jobs.adapters.switches.results import RefreshResult, SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.jobs.adapters.tables.network_versions import SOURCES, NetworkVersions
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches.entry import canonical

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
HALF_DEAD, OTHER = (NETWORK.hosts[name].switch for name in ("h1", "h2"))


class ShortWaits(SystemThreads):
    """Threads that are awaited for a fifth of a second, whatever their clock says."""

    def wait(self, futures: Sequence[Future[Any]], seconds: float | None = None) -> bool:
        return super().wait(futures, 0.2)


class Session(FakeSession):
    """A session whose switch does not answer while the site hangs."""

    def __init__(self, site: Site, owner: str, target: SwitchTarget) -> None:
        super().__init__(site.world, owner, target, lambda: None)
        self._site, self._interrupted = site, threading.Event()

    def refresh(self, desired, pipeline, patience=0.0):
        if self._name != HALF_DEAD:
            return super().refresh(desired, pipeline, patience)
        with self._site.at_once:
            self._site.begun += 1
            while self._site.hangs and not self._interrupted.wait(0.01):
                pass
            if self._interrupted.is_set():
                return RefreshResult(None, False, ["it was interrupted"])
            return super().refresh(desired, pipeline, patience)

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        self._interrupted.clear()


class AtOnce:
    """A block that fails if two threads are in it at once."""

    def __init__(self) -> None:
        self.inside = False

    def __enter__(self) -> None:
        assert not self.inside
        self.inside = True

    def __exit__(self, *_: object) -> None:
        self.inside = False


class Site:
    """A network of which one switch hangs. begun: the number of its refreshes that have begun."""

    def __init__(self) -> None:
        self.world = World()
        self.tables = self.world.tables
        self.hangs, self.begun, self.at_once = True, 0, AtOnce()
        for name, rows in network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "")).items():
            self.tables.overwrite(name, rows)
        self.job = refresher(
            self.world,
            open_session=lambda target: Session(self, "a", target),
            threads=ShortWaits(HastyClock()),
        )

    def tree(self, number: int, host: str) -> None:
        rows = self.tables.rows("virtual_trees")
        added = VirtualTree(number, frozenset([(host, NETWORK.hosts[host].switch)]), "test")
        self.tables.overwrite("virtual_trees", [*rows, tree_to_row(added)])

    def holds(self, switch: str, number: int) -> bool:
        label = canonical(0x4000 | number)
        entries = list(self.world.held[switch].values())
        return any("label" in e.table and e.match[0][2] == label for e in entries)

    def is_ready(self) -> bool:
        current = {name: self.tables.version(name) for name in SOURCES}
        return NetworkVersions(self.tables).newest(current) == current

    def polls_until(self, condition: Callable[[], bool]) -> None:
        def polled() -> bool:
            self.job.poll()
            return condition()

        until(lambda: condition() or polled())


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.job.close()


def test_edits_reach_all_other_switches_while_one_hangs_and_it_too_once_it_answers(site):
    site.tree(5, "h2")
    site.polls_until(lambda: site.holds(OTHER, 5))
    site.tree(6, "h2")
    site.tree(7, "h1")
    site.polls_until(lambda: site.holds(OTHER, 6))
    checked = {row["switch"] for row in site.tables.rows("switch_status")}
    assert checked == set(NETWORK.switches) - {HALF_DEAD}
    # The refresh that hangs began with old entries, so neither the switch nor the edits are ready.
    assert site.begun == 1 and not site.is_ready()
    assert list(site.job.metrics.out_of_sync) == [HALF_DEAD]
    site.hangs = False
    site.polls_until(site.is_ready)
    assert site.holds(HALF_DEAD, 7) and site.begun == 2


def test_a_switch_that_moves_while_it_hangs_gets_nothing_of_the_old_after_the_new(site):
    site.polls_until(lambda: site.begun == 1)
    rows = site.tables.rows("switches")
    site.tables.overwrite(
        "switches",
        [row | {"address": "new:1"} if row["switch"] == HALF_DEAD else row for row in rows],
    )
    site.polls_until(lambda: site.begun == 2)
    site.hangs = False
    site.polls_until(site.is_ready)


def test_a_new_term_begins_only_when_nothing_of_the_old_is_being_written(site):
    site.polls_until(lambda: site.begun == 1)
    NetworkVersions(site.tables).begin_term()
    site.polls_until(lambda: site.begun == 2)
    site.hangs = False
    site.polls_until(site.is_ready)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    server = FaultServer(["s1"])
    yield server
    server.stop()


def test_a_refresh_that_hangs_ends_when_it_is_interrupted_and_writes_no_more(server):
    device = server.devices["s1"]
    session = SwitchSession(SwitchTarget("s1", server.address, 1))
    assert session.refresh(SOME, PIPELINE).in_sync
    session.close()
    device.faults.slow, writes = 3.0, len(device.writes)
    results = []
    thread = threading.Thread(
        target=lambda: results.append(session.refresh([*SOME, tree(99)], PIPELINE))
    )
    thread.start()
    before = device.reads
    until(lambda: device.reads > before)
    session.interrupt()
    thread.join(600)
    assert not thread.is_alive() and not results[0].in_sync
    assert len(device.writes) == writes
    # The session works again afterwards.
    session.close()
    device.faults.slow = 0.0
    assert session.refresh(SOME, PIPELINE).in_sync
    session.close()


def test_a_session_knows_who_leads_without_a_message_to_the_switch(server):
    """A switch that does not answer must not delay the refresher."""
    device = server.devices["s1"]
    with SwitchSession(SwitchTarget("s1", server.address, 1)) as session:
        assert session.leads(connect=False) is None
        assert session.refresh(SOME, PIPELINE).in_sync
        with device.lock:
            assert session.leads(connect=False)
        device.bring_rival()
        until(lambda: not session.is_primary)
        with device.lock:
            assert session.leads(connect=False) is False and "another client" in session.rival
        device.send_rival_away()
        until(lambda: session.leads(connect=False) is not False)
        # The switch has no primary, and a refresh makes this session primary.
        assert not session.is_primary and session.disturbed()
        assert session.refresh(SOME, PIPELINE).in_sync and session.is_primary
