"""One switch kept in step by a session, whatever the switch does meanwhile."""

from __future__ import annotations

import dataclasses
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import certificates
import grpc
import pytest
from fault_server import RIVAL, FaultServer, FaultyDevice
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jobs.adapters import switch_session
from jobs.adapters.credentials import Credentials
from jobs.adapters.p4runtime import SwitchConnection
from jobs.adapters.pipeline import Pipeline
from jobs.adapters.switch_session import Outcome, SwitchSession, SwitchTarget
from udfs.errors import SwitchError
from udfs.stacks.entries import label_table, switch_entries, tables_by_position
from udfs.stacks.forwarding import SwitchTables, deliver
from udfs.stacks.labels import HOP, STOP, TREE, label
from udfs.switches.entry import GROUPS, SwitchEntry, canonical, group_entry, group_id
from udfs.switches.match import Match
from udfs.switches.ports import group_of
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.network import Network
from udfs.trees.topology import fabric
from udfs.trees.virtual_tree import VirtualTree

pytestmark = pytest.mark.unit

PIPELINE = Pipeline.read(Path(__file__).parents[2] / "p4", "virtual_trees")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch_session, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(switch_session, "_STAND_IN_SECONDS", 0.2)


@pytest.fixture(scope="module")
def running() -> Iterator[FaultServer]:
    server = FaultServer(["s1"])
    yield server
    server.stop()


@pytest.fixture
def device(running: FaultServer) -> FaultyDevice:
    running.devices["s1"].reset()
    return running.devices["s1"]


@pytest.fixture
def session(running: FaultServer, device: FaultyDevice) -> Iterator[SwitchSession]:
    with SwitchSession(SwitchTarget("s1", running.address, 1), election_id=5) as made:
        yield made


def another(server: FaultServer, election_id: int, **limits: int) -> SwitchSession:
    return SwitchSession(SwitchTarget("s1", server.address, 1, **limits), election_id=election_id)


def tree(number: int, ports: int = 3, position: int = 1) -> SwitchEntry:
    control = f"ingress.label_{position}."
    match = (("label", "exact", canonical(label(TREE, number))),)
    return SwitchEntry(
        "s1", control + "look_up", match, control + "tree", (("ports", canonical(ports)),)
    )


def host_port(port: int) -> SwitchEntry:
    match = (("port", "exact", canonical(port)),)
    return SwitchEntry("s1", "egress.host_port", match, "egress.take_stack_off", ())


def route(address: int, length: int, port: int) -> SwitchEntry:
    match = Match("dst", "lpm", canonical(address), b"", length).joined()
    fields = (("dst", "lpm", match),) if length else ()
    send = "ingress.route.send"
    return SwitchEntry("s1", "ingress.route.ipv4", fields, send, (("port", canonical(port)),))


def group(number: int, *ports: int) -> SwitchEntry:
    return group_entry("s1", number, [(port, 0) for port in ports])


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


SOME = [
    *(tree(n) for n in range(1, 20)),
    *map(host_port, range(1, 5)),
    route(0x0A000000, 8, 1),
    route(0, 0, 2),
    group(1, 1),
    group_entry("s1", 0x1000, [(1, 1), (9, 2)]),
]


def test_a_switch_is_given_its_program_and_entries_once_and_then_left_alone(
    session: SwitchSession, device: FaultyDevice
) -> None:
    assert session.disturbed()
    first = session.refresh(SOME, PIPELINE)
    assert first == Outcome(len(SOME), True, [], first.seconds)
    assert device.entries() == set(SOME)
    assert device.config.p4_device_config == PIPELINE.device_config
    writes = len(device.writes)
    assert not session.disturbed()
    assert session.refresh(SOME, PIPELINE).in_step
    assert len(device.writes) == writes
    assert device.actions == ["VERIFY_AND_COMMIT"]


def test_an_edit_writes_the_difference_alone(session: SwitchSession, device: FaultyDevice) -> None:
    session.refresh(SOME, PIPELINE)
    device.writes.clear()
    edited = [*SOME[1:-1], group_entry("s1", 0x1000, [(1, 1), (10, 2)]), tree(77)]
    assert session.compare(edited, PIPELINE).insert == (tree(77),)
    assert session.refresh(edited, PIPELINE).in_step
    kinds = [(kind, entry.table) for write in device.writes for kind, entry in write]
    tables = label_table(1)
    assert kinds == [("INSERT", tables), ("MODIFY", GROUPS), ("DELETE", tables)]
    assert device.entries() == set(edited)


def test_a_dry_run_changes_nothing_and_does_not_become_primary(
    session: SwitchSession, device: FaultyDevice
) -> None:
    assert session.compare(SOME, PIPELINE).insert == tuple(SOME)
    assert not device.clients and device.config is None and not device.writes


def test_many_entries_go_in_requests_of_500_at_most(
    session: SwitchSession, device: FaultyDevice
) -> None:
    many = [tree(n, position=p) for p in (1, 2, 3) for n in range(1, 401)]
    assert session.refresh(many, PIPELINE).in_step
    assert [len(write) for write in device.writes] == [500, 500, 200]
    assert device.entries() == set(many)


def test_requests_are_bounded_by_their_bytes_too(
    session: SwitchSession, device: FaultyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.adapters.p4runtime._BATCH_BYTES", 200)
    assert session.refresh(SOME, PIPELINE).in_step
    assert max(len(write) for write in device.writes) < 10


def test_a_refused_update_is_tried_again_alone_then_told_in_the_switchs_words(
    session: SwitchSession, device: FaultyDevice
) -> None:
    device.faults.refuse = lambda _, update: (
        "no room in bank 7" if device.decode(update.entity).key == tree(7).key else None
    )
    outcome = session.refresh(SOME, PIPELINE)
    assert not outcome.in_step and outcome.held == len(SOME) - 1
    assert outcome.errors == [f"{tree(7).key}: INTERNAL: no room in bank 7"]
    assert outcome.left.insert == (tree(7),)
    assert device.entries() == set(SOME) - {tree(7)}
    assert [w for w in device.writes if w == [("INSERT", tree(7))]]
    device.faults.refuse = lambda _, __: None
    assert session.refresh(SOME, PIPELINE).in_step


def test_a_request_refused_without_a_word_on_its_updates_is_sent_one_by_one(
    session: SwitchSession, device: FaultyDevice
) -> None:
    device.faults.vague = True
    device.faults.refuse = lambda _, update: (
        "never" if device.decode(update.entity).key == tree(7).key else None
    )
    outcome = session.refresh(SOME, PIPELINE)
    assert outcome.errors == [f"{tree(7).key}: INTERNAL: something is wrong"]
    assert device.entries() == set(SOME) - {tree(7)}


def test_names_that_the_program_lacks_are_told_entry_by_entry_and_the_others_are_written(
    session: SwitchSession, device: FaultyDevice
) -> None:
    nowhere = SwitchEntry("s1", "ingress.acl", (), "ingress.drop", ())
    outcome = session.refresh([*SOME, nowhere], PIPELINE)
    assert not outcome.in_step and len(outcome.errors) == 1
    assert "no table called 'ingress.acl'" in outcome.errors[0]
    assert device.entries() == set(SOME)


def test_beyond_a_limit_nothing_is_written_and_the_error_names_it(
    running: FaultServer, device: FaultyDevice
) -> None:
    with another(running, 1) as session:
        session.refresh(SOME, PIPELINE)
    writes = len(device.writes)
    size = PIPELINE.sizes["egress.host_port"]
    too_many = [*SOME[1:], *map(host_port, range(10, 11 + size))]
    cases = [
        (too_many, {}, [f"table 'egress.host_port' should hold {size + 5} entries", f"{size}"]),
        ([tree(n) for n in range(1, 12)], {"max_rules": 10}, ["11 entries", "allows 10"]),
        ([group(n, n) for n in range(1, 5)], {"max_groups": 3}, ["4 multicast", "allows 3"]),
    ]
    for desired, limits, words in cases:
        with another(running, 1, **limits) as session:
            outcome = session.refresh(desired, PIPELINE)
            assert not outcome.in_step and not session.disturbed()
            (error,) = outcome.errors
            assert error.startswith("SWITCH.LIMIT: switch 's1'")
            assert all(each in error for each in words)
            with pytest.raises(SwitchError, match="LIMIT"):
                session.compare(desired, PIPELINE)
    assert len(device.writes) == writes and device.entries() == set(SOME)


def test_a_full_switch_is_cleared_of_the_old_before_the_new_comes(
    running: FaultServer, device: FaultyDevice
) -> None:
    size = PIPELINE.sizes["egress.host_port"]
    old = [host_port(port) for port in range(1, size + 1)]
    new = [host_port(port) for port in range(100, 100 + size)]
    with another(running, 1) as session:
        assert session.refresh(old, PIPELINE).in_step
        outcome = session.refresh(new, PIPELINE)
    assert outcome.in_step and not outcome.errors and device.entries() == set(new)


def test_another_program_of_the_same_tables_keeps_the_entries_where_the_switch_can(
    session: SwitchSession, device: FaultyDevice
) -> None:
    session.refresh(SOME, PIPELINE)
    device.writes.clear()
    newer = dataclasses.replace(PIPELINE, device_config=PIPELINE.device_config + b" ")
    assert session.refresh(SOME, newer).in_step
    assert device.actions == ["VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"]
    assert not device.writes and device.config.p4_device_config == newer.device_config
    device.keeps_entries = False
    assert session.refresh(SOME, PIPELINE).in_step
    assert device.actions[2:] == ["RECONCILE_AND_COMMIT", "VERIFY_AND_COMMIT"]
    assert device.entries() == set(SOME)
    assert device.config.cookie.cookie == PIPELINE.cookie != newer.cookie


def test_a_switch_without_cookies_is_not_given_the_same_program_again(
    session: SwitchSession, device: FaultyDevice
) -> None:
    session.refresh(SOME, PIPELINE)
    device.config.ClearField("cookie")
    assert session.refresh(SOME, PIPELINE).in_step
    assert device.actions == ["VERIFY_AND_COMMIT"]


def test_a_switch_that_restarts_is_noticed_and_mended(
    session: SwitchSession, device: FaultyDevice
) -> None:
    session.refresh(SOME, PIPELINE)
    device.faults.forgets = True
    device.die()
    eventually(session.disturbed)
    assert device.entries() == set()
    assert session.refresh(SOME, PIPELINE).in_step
    assert device.entries() == set(SOME) and not session.disturbed()


def test_a_switch_that_is_not_there_is_told_at_once_or_waited_for(
    device: FaultyDevice, running: FaultServer
) -> None:
    away = SwitchSession(SwitchTarget("s1", "127.0.0.1:1", 1))
    outcome = away.refresh(SOME, PIPELINE)
    assert (outcome.held, outcome.in_step, outcome.primary) == (None, False, True)
    assert outcome.errors[0].startswith("SWITCH.UNREACHABLE: switch at 127.0.0.1:1")
    assert outcome.seconds < 2 and away.disturbed()
    with pytest.raises(SwitchError, match="UNREACHABLE"):
        away.compare(SOME, PIPELINE)
    assert away.refresh(SOME, PIPELINE, patience=0.5).seconds >= 0.5


def test_a_switch_that_dies_over_and_over_is_given_up_after_a_few_tries(
    session: SwitchSession, device: FaultyDevice
) -> None:
    class Endless(set[int]):
        def discard(self, _: int) -> None:
            pass

    device.faults.die = Endless([0])
    outcome = session.refresh(SOME, PIPELINE)
    assert not outcome.in_step and "UNREACHABLE" in outcome.errors[0]
    assert len(device.writes) == switch_session._TRIES and not device.entries()
    device.faults.die = set()
    assert session.refresh(SOME, PIPELINE).in_step


def test_a_switch_that_does_not_answer_a_probe_is_disturbed(
    session: SwitchSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unanswered:
        def done(self) -> bool:
            return True

        def code(self) -> object:
            return grpc.StatusCode.DEADLINE_EXCEEDED

    session.refresh(SOME, PIPELINE)
    monkeypatch.setattr(switch_session, "_PROBE_SECONDS", 0.0)
    assert not session.disturbed()
    eventually(session._probe.done)
    assert not session.disturbed()  # that one was answered
    monkeypatch.setattr(SwitchConnection, "probe", lambda _: Unanswered())
    eventually(session.disturbed)
    assert session.refresh(SOME, PIPELINE).in_step


def test_the_higher_election_id_writes_and_the_other_waits_and_takes_over(
    running: FaultServer, device: FaultyDevice
) -> None:
    low, high = another(running, 1), another(running, 2)
    assert low.refresh(SOME, PIPELINE).in_step and not low.disturbed()
    assert high.refresh(SOME[1:], PIPELINE).in_step
    eventually(lambda: not low.is_primary)
    assert not low.disturbed()
    writes = len(device.writes)
    outcome = low.refresh(SOME, PIPELINE)
    assert (outcome.primary, outcome.in_step) == (False, False)
    assert "election id 2 is not below ours, 1" in outcome.errors[0]
    assert len(device.writes) == writes and device.entries() == set(SOME[1:])
    # It takes over where the other leaves ...
    high.close()
    eventually(low.disturbed)
    assert low.refresh(SOME, PIPELINE).in_step and low.is_primary
    # ... and stands back when it returns, though it had to raise its id.
    assert high.refresh(SOME[2:], PIPELINE).in_step
    eventually(lambda: not low.is_primary)
    assert not low.refresh(SOME, PIPELINE).primary
    assert device.entries() == set(SOME[2:])
    low.close()
    high.close()


def test_the_same_election_id_as_anothers_waits_until_it_is_gone(
    session: SwitchSession, running: FaultServer, device: FaultyDevice
) -> None:
    session.refresh(SOME, PIPELINE)
    with another(running, 5) as same:
        outcome = same.refresh([], PIPELINE)
        assert not outcome.primary and outcome.errors[0].startswith("SWITCH.NOT_PRIMARY")
        assert same.disturbed() and device.entries() == set(SOME) and session.is_primary
        session.close()
        eventually(lambda: same.refresh([], PIPELINE).in_step)
    assert device.entries() == set()


def test_one_that_is_no_longer_primary_writes_nothing_more(
    session: SwitchSession, device: FaultyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The switch itself says no where its notice has not been read yet.
    for deaf in (False, True):
        if deaf:
            monkeypatch.setattr(
                "jobs.adapters.p4runtime_client.Client.heed_notices", lambda client: client.primary
            )
        session.refresh([], PIPELINE)
        device.writes.clear()
        device.faults.rival = {device.number}
        outcome = session.refresh(SOME, PIPELINE)
        assert not outcome.primary and not outcome.in_step
        assert len(device.writes) == 1 and device.highest == RIVAL
        monkeypatch.undo()
        device.send_rival_away()
        eventually(lambda: session.refresh([], PIPELINE).in_step)


# What no delivery may be wrong amid: a network, trees before and after, stacks that name them.

NETWORK = fabric(pods=1, racks=2, hosts=2, planes=2, spines=1)
POSITIONS = 2
OLD = broadcast_trees(NETWORK, 2, first_id=1)
NEW = broadcast_trees(NETWORK, 3, first_id=11)


def stacks(network: Network, trees: Collection[VirtualTree]) -> list[tuple[int, ...]]:
    """By tree; by tree with stops; and by hops to a host of the publisher's own switch."""
    to_hosts = [link.id for link in network.links if link.neighbor_port is None]
    first = network.hosts["feed1"].switch
    own = [n for n in to_hosts if network.link_by_id[n].switch == first]
    plain = [(label(TREE, each.id),) for each in trees]
    stopped = [(*stack, label(STOP, to_hosts[-1]), label(STOP, own[0])) for stack in plain]
    return [*plain, *stopped, (label(HOP, own[0]), label(HOP, own[1]))]


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
        self._held = {name: {e.key: e for e in d.entries()} for name, d in devices.items()}
        desired = switch_entries(NETWORK, named, POSITIONS)
        by_switch = {name: [e for e in desired if e.switch == name] for name in devices}
        full = {name: tables_by_position(entries)[0] for name, entries in by_switch.items()}
        self._expected = {
            stack: deliver(NETWORK, full, "feed1", stack).hosts for stack in stacks(NETWORK, named)
        }
        assert all(sum(hosts.values()) >= 2 for hosts in self._expected.values())

    def __call__(self, device: FaultyDevice, entry: SwitchEntry) -> None:
        with self._lock:
            self.looks += 1
            self._held[device.name] = {e.key: e for e in device.entries()}
            if any(each.forgot for each in self.devices.values()):
                return
            try:
                self._look(f"after {entry.key} of {device.name}")
            except Exception as error:  # the server's thread would keep it to itself
                self.wrong.append(repr(error))

    def _look(self, when: str) -> None:
        tables = {name: tables_by_position(held.values()) for name, held in self._held.items()}
        for name, held in self._held.items():
            self._groups_are_there(name, held.values(), tables[name])
        for position in range(POSITIONS):
            here = {
                name: each[position] if position < len(each) else SwitchTables()
                for name, each in tables.items()
            }
            for stack, expected in self._expected.items():
                found = deliver(NETWORK, here, "feed1", stack)
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
) -> dict[str, Outcome]:
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
@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
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
                if all(outcome.in_step for outcome in outcomes.values()):
                    break
            assert not watch.wrong
            assert watch.looks
            assert all(outcome.in_step for outcome in outcomes.values())
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


# TLS


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates.make(tmp_path_factory.mktemp("tls"), "s1", "s2")


@pytest.fixture(scope="module")
def secure(pems: Path) -> Iterator[FaultServer]:
    key, certificate, ca = (
        (pems / name).read_bytes() for name in ("server.key", "server.pem", "ca.pem")
    )
    server = FaultServer(["s1", "s2"], (key, certificate, ca))
    yield server
    server.stop()


def test_each_switch_is_met_with_credentials_of_its_own(
    secure: FaultServer, pems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = Credentials(*(f"{pems}/{name}" for name in ("ca.pem", "{switch}.pem", "{switch}.key")))
    for name, device in secure.devices.items():
        target = SwitchTarget(name, secure.address, device.device_id)
        with SwitchSession(target, shown) as session:
            wanted = [dataclasses.replace(each, switch=name) for each in SOME]
            assert session.refresh(wanted, PIPELINE).in_step
            assert not session.compare(wanted, PIPELINE)
    assert "BEGIN" not in caplog.text and ".key" not in repr(shown)


@pytest.mark.parametrize(
    ("ca", "certificate", "key", "code", "words"),
    [
        ("other.pem", "s1.pem", "s1.key", "BAD_TLS", "refused"),
        ("", "s1.pem", "s1.key", "BAD_TLS", "refused"),
        ("ca.pem", "s1.pem", "s2.key", "BAD_TLS", "belongs to"),
        ("ca.pem", "s1.pem", "", "BAD_TLS", "set both"),
        ("ca.pem", "", "s1.key", "BAD_TLS", "set both"),
        ("names", "s1.pem", "s1.key", "BAD_TLS", "holds no certificate"),
        ("ca.pem", "s1.pem", "names", "BAD_TLS", "no private key"),
        ("ca.pem", "server.pem", "locked.key", "BAD_TLS", "without password"),
        ("ca.pem", "s1.pem", "gone.key", "BAD_TLS", "No such file"),
        ("ca.pem", "", "", "UNREACHABLE", ""),
        ("ca.pem", "stranger.pem", "stranger.key", "UNREACHABLE", ""),
        ("", "", "", "UNREACHABLE", ""),
    ],
)
def test_credentials_that_do_not_fit_are_refused_and_no_key_is_told(
    secure: FaultServer,
    pems: Path,
    caplog: pytest.LogCaptureFixture,
    ca: str,
    certificate: str,
    key: str,
    code: str,
    words: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = Credentials(*(name and f"{pems}/{name}" for name in (ca, certificate, key)))
    with SwitchSession(SwitchTarget("s1", secure.address, 1), shown) as session:
        (error,) = session.refresh(SOME, PIPELINE).errors
    assert error.startswith(f"SWITCH.{code}: ") and words in error
    for name in ("s1.key", "s2.key", "stranger.key"):
        for line in (pems / name).read_text().splitlines()[1:-1]:
            assert line not in error and line not in caplog.text


def test_a_name_that_would_lead_out_of_its_folder_is_no_part_of_a_path() -> None:
    shown = Credentials("ca.pem", "{switch}.pem", "{switch}.key")
    assert shown.for_switch("s1") == Credentials("ca.pem", "s1.pem", "s1.key")
    for name in ("../s1", "a/b", "."):
        with pytest.raises(SwitchError, match="BAD_TLS"):
            shown.for_switch(name)
    assert Credentials("ca.pem").for_switch("../s1") == Credentials("ca.pem")
