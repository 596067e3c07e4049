"""Entries that a switch loses silently are found and restored, and reported."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from entry_tables import PIPELINE, SOME, group, host_port, tree
from examples import examples
from fault_server import FaultServer, FaultyDevice, wire_key
from hypothesis import example, given
from hypothesis import strategies as st
from rollout_world import InOrder, World, in_order, refresher
from virtual_time import VirtualTime

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches import drops, read_back
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.switches.messages import Names
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.jobs.adapters.switches.results import SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.udfs.network.rows import network_to_rows
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.switches.entry import Difference, SwitchEntry, difference

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
RACK = NETWORK.hosts["h1"].switch


class Deployment:
    """A refresher on switches of a model, under a virtual clock."""

    def __init__(self, settings: Settings) -> None:
        self.clock = VirtualTime()
        self.world = World()
        for name, rows in network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "")).items():
            self.world.tables.overwrite(name, rows)
        self.refresher: Refresher = refresher(
            self.world, settings=settings, threads=InOrder(self.clock)
        )
        self.run(3)
        self.entries = dict(self.world.held[RACK])

    def run(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.refresher.poll()
            self.clock.sleep(0.1)

    def lose_half(self) -> None:
        held = self.world.held[RACK]
        for key in sorted(held)[::2]:
            del held[key]

    def differences(self) -> float:
        value = self.refresher.metrics.registry.get_sample_value(
            "stackcast_switch_read_back_differences_total", {"switch": RACK}
        )
        return value or 0.0

    def status_rows(self) -> int:
        rows = self.world.tables.rows("switch_status")
        return sum(row["switch"] == RACK for row in rows)


def deployment_of(monkeypatch: pytest.MonkeyPatch, seconds: int) -> Deployment:
    in_order(monkeypatch)
    return Deployment(Settings(read_back_seconds=seconds))


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Deployment]:
    return lambda seconds: deployment_of(monkeypatch, seconds)


def test_a_switch_that_silently_loses_half_of_its_entries_has_them_again_within_a_minute(
    deploy: Callable[[int], Deployment], caplog: pytest.LogCaptureFixture
) -> None:
    deployment = deploy(Settings().read_back_seconds)
    deployment.lose_half()
    lost = len(deployment.entries) - len(deployment.world.held[RACK])
    rows = deployment.status_rows()
    with caplog.at_level(logging.WARNING):
        deployment.run(60)
    assert deployment.world.held[RACK] == deployment.entries
    assert 0 < deployment.differences() <= lost
    assert f"switch {RACK} has changed since its last refresh" in caplog.text
    assert deployment.status_rows() > rows


def test_a_switch_with_the_desired_entries_is_not_refreshed(
    deploy: Callable[[int], Deployment],
) -> None:
    deployment = deploy(30)
    rows = deployment.status_rows()
    deployment.run(120)
    assert deployment.status_rows() == rows and not deployment.differences()


def test_with_0_seconds_nothing_is_read_back(deploy: Callable[[int], Deployment]) -> None:
    deployment = deploy(0)
    deployment.lose_half()
    deployment.run(120)
    assert deployment.world.held[RACK] != deployment.entries


def count_drops(deployment: Deployment, reason: str, packets: int, *switches: str) -> None:
    """Set the drop counter of the switches, by default of the rack's."""
    deployment.refresher._sessions._programs.reasons = lambda _: {6: reason}
    deployment.world.drops |= {name: {6: packets} for name in switches or [RACK]}


class Reads:
    """Records which switches are read back, and when.

    Attributes:
        looks: time, names of the switches, and number of parts of which one is read.
    """

    def __init__(self, deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks: list[tuple[float, set[str], int]] = []
        sessions = deployment.refresher._sessions
        read_backs = sessions.read_backs

        def record(names: Collection[str], part: int = 0, parts: int = 1) -> Any:
            self.looks.append((deployment.clock.monotonic(), set(names), parts))
            return read_backs(names, part, parts)

        monkeypatch.setattr(sessions, "read_backs", record)


@pytest.mark.parametrize(("reason", "restored"), [("UNKNOWN_PORT", True), ("CUT_SHORT", False)])
def test_drops_for_which_an_entry_may_be_missing_make_the_switch_read_at_once(
    deploy: Callable[[int], Deployment], reason: str, restored: bool
) -> None:
    deployment = deploy(3600)
    deployment.lose_half()
    count_drops(deployment, reason, 1)
    deployment.run(drops.LOOK_SECONDS + 2)
    assert (deployment.world.held[RACK] == deployment.entries) == restored


def test_drops_that_continue_make_the_switch_read_completely_once_per_pass(
    deploy: Callable[[int], Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(60)
    reads = Reads(deployment, monkeypatch)
    for packets in range(1, 13):
        count_drops(deployment, "UNKNOWN_PORT", packets)
        deployment.run(10)
    assert [names for _, names, parts in reads.looks if parts == 1].count({RACK}) == 2


@examples(20)
@given(st.tuples(*[st.integers(0, 400_000)] * len(NETWORK.switches)))
@example((400_000,) * len(NETWORK.switches))
def test_if_all_switches_drop_packets_entries_are_still_read_at_a_limited_rate(
    entries: tuple[int, ...],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        deployment = deployment_of(monkeypatch, 30)
        counts = dict(zip(NETWORK.switches, entries, strict=True))
        monkeypatch.setattr(deployment.refresher._sessions, "entry_count", counts.__getitem__)
        reads = Reads(deployment, monkeypatch)
        count_drops(deployment, "UNKNOWN_PORT", 1, *NETWORK.switches)
        deployment.run(60 + 3 * sum(entries) / read_back.ENTRIES_PER_SECOND)
    whole = [name for _, names, parts in reads.looks if parts == 1 for name in names]
    assert sorted(whole) == sorted(NETWORK.switches)
    read = [(when, sum(map(counts.get, names)) / parts) for when, names, parts in reads.looks]
    largest = read_back.ENTRIES_PER_SECOND + max(entries) + sum(counts.values()) / read_back.PARTS
    for first, (start, _) in enumerate(read):
        total = 0.0
        for end, count in read[first:]:
            total += count
            assert total <= largest + read_back.ENTRIES_PER_SECOND * (end - start)


class HangingWorker(InOrder):
    """Runs each call when it is submitted, except that those of some switches never end.

    Args:
        clock: clock of the deployment.
        hanging: names of these switches.
    """

    def __init__(self, clock: VirtualTime, hanging: set[str]) -> None:
        super().__init__(clock)
        self._hanging = hanging

    def submit(self, call: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        owner = getattr(getattr(call, "func", None), "__self__", None)
        names = {getattr(value, "_name", "") for value in (owner, *getattr(call, "args", ()))}
        return Future() if names & self._hanging else super().submit(call, *args, **kwargs)


def test_a_switch_whose_reads_hang_does_not_delay_the_others(
    deploy: Callable[[int], Deployment],
) -> None:
    """Neither reading back nor reading counters."""
    deployment = deploy(30)
    worker = HangingWorker(deployment.clock, {name for name in NETWORK.switches if name != RACK})
    for reader in (deployment.refresher._read_back, deployment.refresher._drops):
        reader._reads._worker = worker
    deployment.lose_half()
    count_drops(deployment, "CUT_SHORT", 5)
    deployment.run(60)
    assert deployment.world.held[RACK] == deployment.entries
    (row,) = deployment.world.tables.rows("switch_drops")
    assert (row["switch"], row["packets"]) == (RACK, 5)


def test_a_switch_that_answers_differently_to_each_kind_of_read_is_refreshed_less_and_less(
    deploy: Callable[[int], Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(30)
    _, session = deployment.refresher._sessions._standing[RACK]
    (entry, *_) = deployment.world.held[RACK].values()

    def odd_read(*_: int) -> Difference:
        session._read_in_term = None
        return difference([entry], [])

    monkeypatch.setattr(session, "read_back", odd_read)
    rows = deployment.status_rows()
    deployment.run(1800)
    assert 0 < deployment.status_rows() - rows <= 10


class TestSession:
    """A session with a switch over P4Runtime."""

    pytestmark = pytest.mark.integration

    @pytest.fixture
    def server(self) -> Iterator[FaultServer]:
        server = FaultServer(["s1"])
        yield server
        server.stop()

    @pytest.fixture
    def device(self, server: FaultServer) -> FaultyDevice:
        return server.devices["s1"]

    @pytest.fixture
    def session(self, server: FaultServer) -> Iterator[SwitchSession]:
        with SwitchSession(SwitchTarget("s1", server.address, 1)) as session:
            assert session.read_back() is None and session.entry_count == 0
            assert session.refresh(SOME, PIPELINE).in_sync
            assert session.entry_count == len(SOME)
            yield session

    def test_parts_together_read_every_entry_once(
        self, session: SwitchSession, device: FaultyDevice
    ) -> None:
        assert [session.read_back(part, 20) for part in range(20)] == [difference([], [])] * 20
        assert not session.disturbed()
        with device.lock:
            device.held.clear()
        lost = [session.read_back(part, 20) for part in range(20)]
        assert Counter(entry for change in lost if change for entry in change.insert) == Counter(
            SOME
        )

    @pytest.mark.parametrize(
        "change",
        [
            [tree(5), group(1, 1)],
            [host_port(1)],
            [tree(99)],
            [tree(5, ports=9)],
        ],
        ids=["lost", "lost in another table", "foreign", "changed"],
    )
    def test_a_difference_is_reported_and_the_next_refresh_mends_it(
        self, session: SwitchSession, device: FaultyDevice, change: list[SwitchEntry]
    ) -> None:
        names = Names(PIPELINE.p4info)
        with device.lock:
            for entry in change:
                message = names.to_wire(entry)
                if entry in SOME:
                    del device.held[wire_key(message)]
                else:
                    device.held[wire_key(message)] = message
        repair = session.read_back()
        assert repair and repair == difference(SOME, device.entries())
        assert session.disturbed()
        assert session.refresh(SOME, PIPELINE).in_sync
        assert device.entries() == set(SOME)
        assert not session.disturbed()

    def test_what_is_read_while_a_refresh_runs_is_ignored(
        self, session: SwitchSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = SwitchConnection.read_entries

        def read_before_a_refresh(
            connection: SwitchConnection, name: str, *tables: str
        ) -> set[SwitchEntry]:
            entries = read(connection, name, *tables)
            monkeypatch.setattr(SwitchConnection, "read_entries", read)
            assert session.refresh(SOME[1:], PIPELINE).in_sync
            return entries

        monkeypatch.setattr(SwitchConnection, "read_entries", read_before_a_refresh)
        assert session.read_back() is None
        assert not session.disturbed()
