"""Whatever the switches do while they are refreshed: right tables at last, no wrong delivery."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from entry_tables import PIPELINE, tables_by_position
from examples import examples
from fault_server import FaultServer, FaultyDevice
from hypothesis import Phase, given
from hypothesis import strategies as st
from program_switches import group_of

from stackcast.jobs.adapters.switches import session as switch_session
from stackcast.jobs.adapters.switches.results import RefreshResult, SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE, SwitchTables
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import ForwardingModel
from stackcast.udfs.switches.entry import GROUPS, SwitchEntry, group_id
from stackcast.udfs.switches.stack_entries import label_table, switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_session, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(switch_session, "_STAND_IN_SECONDS", 0.2)


NETWORK = fabric(pods=1, racks=2, hosts=2, planes=2, spines=1)
POSITIONS = 2
OLD = broadcast_trees(NETWORK, 2, first_id=1)
NEW = broadcast_trees(NETWORK, 3, first_id=11)


def stacks(network: Network, trees: Collection[VirtualTree]) -> list[tuple[int, ...]]:
    """By tree; by tree with stops; and by hops to a host of the publisher's own switch."""
    to_hosts = [link.id for link in network.links if link.neighbor_port is None]
    first = network.hosts["feed1"].switch
    own = [n for n in to_hosts if network.link_by_id[n].switch == first]
    plain = [(NARROW.label(TREE, each.id),) for each in trees]
    stopped = [
        (*stack, NARROW.label(STOP, to_hosts[-1]), NARROW.label(STOP, own[0])) for stack in plain
    ]
    return [*plain, *stopped, (NARROW.label(HOP, own[0]), NARROW.label(HOP, own[1]))]


class Watch:
    """Delivers every stack anew after every update, by the tables that the servers hold then.

    lossy: a switch begins empty, or may forget its tables and end its connections, so deliveries
    may be missing, but none may be added. Once a switch has emptied its tables without a word,
    nothing can be said until it was read again.
    """

    def __init__(self, devices: dict[str, FaultyDevice], named: Collection[VirtualTree]) -> None:
        self.devices = devices
        self.lossy = False
        self.looks = 0
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        self._tables = {name: tables_by_position(d.entries()) for name, d in devices.items()}
        desired = switch_entries(NETWORK, named, POSITIONS)
        by_switch = {name: [e for e in desired if e.switch == name] for name in devices}
        full = {name: tables_by_position(entries)[0] for name, entries in by_switch.items()}
        self._expected = {
            stack: ForwardingModel(NETWORK, full).deliver("feed1", stack).hosts
            for stack in stacks(NETWORK, named)
        }
        assert all(sum(hosts.values()) >= 2 for hosts in self._expected.values())

    def __call__(self, device: FaultyDevice, entry: SwitchEntry) -> None:
        with self._lock:
            self.looks += 1
            try:
                held = device.entries()
                self._tables[device.name] = tables_by_position(held)
                if any(each.forgot for each in self.devices.values()):
                    return
                self._groups_are_there(device.name, held, self._tables[device.name])
                self._look(f"after {entry.key} of {device.name}", entry)
            except Exception as error:  # the server's thread would keep it to itself
                self.wrong.append(repr(error))

    def _look(self, when: str, entry: SwitchEntry) -> None:
        for position in range(POSITIONS):
            if ".label_" in entry.table and entry.table != label_table(position + 1):
                continue
            here = {
                name: each[position] if position < len(each) else SwitchTables()
                for name, each in self._tables.items()
            }
            for stack, expected in self._expected.items():
                found = ForwardingModel(NETWORK, here).deliver("feed1", stack)
                right = found.hosts <= expected if self.lossy else found.hosts == expected
                if not right or found.loop:
                    self.wrong.append(f"{when}: {stack} -> {found.hosts}, not {expected}")

    def _groups_are_there(
        self, name: str, held: Collection[SwitchEntry], tables: list[SwitchTables]
    ) -> None:
        groups = {group_id(entry) for entry in held if entry.table == GROUPS}
        for each in tables:
            for number, mask in each.trees.items():
                if group_of(mask) not in groups:
                    self.wrong.append(f"{name}: tree {number} points at a group that is not there")


@pytest.fixture(scope="module")
def fleet() -> Iterator[FaultServer]:
    server = FaultServer(NETWORK.switches)
    yield server
    server.stop()


def refresh_all(
    sessions: dict[str, SwitchSession], trees: Collection[VirtualTree]
) -> dict[str, RefreshResult]:
    desired = switch_entries(NETWORK, trees, POSITIONS)
    wanted = {name: [e for e in desired if e.switch == name] for name in sessions}
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda name: sessions[name].refresh(wanted[name], PIPELINE), sessions)
        return dict(zip(sessions, found, strict=True))


# An edit is some ten updates a switch, a refill some forty.
numbers = st.sets(st.integers(0, 12), max_size=2)
faults = st.fixed_dictionaries(
    {
        "shuffle": st.integers(0, 1 << 16),
        "refuse": st.sets(st.integers(0, 40), max_size=5),
        "die": numbers,
        "forgets": st.booleans(),
        "forget": st.just(set()) | numbers,
        "rival": numbers,
    }
)


# Shrinking such a plan takes minutes, and a plan is short.
@examples(6, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(plan=st.lists(faults, min_size=len(NETWORK.switches), max_size=len(NETWORK.switches)))
def test_tables_end_right_and_no_delivery_is_wrong_meanwhile(
    fleet: FaultServer, plan: list[dict[str, object]]
) -> None:
    for device in fleet.devices.values():
        device.reset()
    sessions = {
        name: SwitchSession(SwitchTarget(name, fleet.address, device.device_id))
        for name, device in fleet.devices.items()
    }
    try:
        for trees, named in ((OLD, OLD), ([*OLD, *NEW], OLD), (NEW, NEW)):
            watch = Watch(fleet.devices, named)
            watch.lossy = trees is OLD or any(f["forgets"] and f["die"] for f in plan)
            for device, wanted in zip(fleet.devices.values(), plan, strict=True):
                arm(device, wanted)
                device.observer = watch
            for _ in range(10):
                outcomes = refresh_all(sessions, trees)
                for name, device in fleet.devices.items():
                    if not outcomes[name].primary:
                        device.send_rival_away()
                if all(outcome.in_sync for outcome in outcomes.values()):
                    break
            assert not watch.wrong
            assert watch.looks
            assert all(outcome.in_sync for outcome in outcomes.values())
            desired = switch_entries(NETWORK, trees, POSITIONS)
            for name, device in fleet.devices.items():
                assert device.entries() == {e for e in desired if e.switch == name}
                device.forgot = False
    finally:
        for session in sessions.values():
            session.close()


def arm(device: FaultyDevice, wanted: dict[str, object]) -> None:
    """Faults at numbers counted from the next update; a refusal is for one try only."""
    start = device.number

    def numbers(what: str) -> set[int]:
        return {start + number for number in wanted[what]}  # type: ignore[attr-defined]

    refused = numbers("refuse")
    device.faults.shuffle = random.Random(wanted["shuffle"])  # type: ignore[arg-type]
    device.faults.refuse = lambda number, _: "not now" if number in refused else None
    device.faults.die, device.faults.forgets = numbers("die"), bool(wanted["forgets"])
    device.faults.forget, device.faults.rival = numbers("forget"), numbers("rival")


def test_the_watch_sees_a_break_before_make(fleet: FaultServer) -> None:
    """A proof that the proof above can fail."""
    for device in fleet.devices.values():
        device.reset()
    sessions = {
        name: SwitchSession(SwitchTarget(name, fleet.address, device.device_id))
        for name, device in fleet.devices.items()
    }
    refresh_all(sessions, OLD)
    watch = Watch(fleet.devices, OLD)
    for device in fleet.devices.values():
        device.observer = watch
    refresh_all(sessions, NEW)
    assert watch.wrong
    for session in sessions.values():
        session.close()
