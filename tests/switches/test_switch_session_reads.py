"""What a session reads of a switch, and when: no more than it needs, and never too little."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from entry_tables import PIPELINE, SOME, host_port, tree
from fault_server import FaultServer, FaultyDevice

from stackcast.jobs.adapters.switches import client
from stackcast.jobs.adapters.switches import session as switch_session
from stackcast.jobs.adapters.switches.results import SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.udfs.switches.entry import SwitchEntry

pytestmark = pytest.mark.integration


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setattr(switch_session, "_FIRST_PAUSE", 0.01)
    server = FaultServer(["s1"])
    yield server
    server.stop()


@pytest.fixture
def device(server: FaultServer) -> FaultyDevice:
    return server.devices["s1"]


@pytest.fixture
def session(server: FaultServer) -> Iterator[SwitchSession]:
    with SwitchSession(SwitchTarget("s1", server.address, 1)) as made:
        yield made


def test_an_edit_is_read_back_once_and_a_check_reads_once(
    session: SwitchSession, device: FaultyDevice
) -> None:
    for desired, reads in [(SOME, 2), (SOME, 1), (SOME[1:], 1), (SOME[1:], 1), (SOME, 1)]:
        device.reads = 0
        assert session.refresh(desired, PIPELINE).in_sync
        assert device.reads == reads
        assert device.entries() == set(desired)


def test_a_new_session_reads_a_switch_once_that_is_already_in_step(
    server: FaultServer, session: SwitchSession, device: FaultyDevice
) -> None:
    assert session.refresh(SOME, PIPELINE).in_sync
    session.close()
    device.reads = 0
    with SwitchSession(SwitchTarget("s1", server.address, 1)) as other:
        assert other.refresh(SOME, PIPELINE).in_sync
    assert device.reads == 1


@pytest.mark.parametrize(
    "desired",
    [
        [*SOME, tree(50)],
        [tree(1, ports=5), *SOME[1:]],  # of an entry that is not there
        SOME[1:],
    ],
    ids=["insert", "modify", "delete"],
)
def test_what_was_lost_unnoticed_is_mended_with_the_next_edit(
    session: SwitchSession, device: FaultyDevice, desired: list[SwitchEntry]
) -> None:
    session.refresh(SOME, PIPELINE)
    with device.lock:
        device.held.clear()
    outcome = session.refresh(desired, PIPELINE)
    assert outcome.in_sync and not outcome.errors
    assert device.entries() == set(desired)


def test_what_came_unnoticed_is_no_refusal_of_an_edit(
    session: SwitchSession, device: FaultyDevice
) -> None:
    session.refresh([*SOME, tree(50, ports=1)], PIPELINE)
    with device.lock:
        before = dict(device.held)
    session.refresh(SOME, PIPELINE)
    with device.lock:
        device.held = before
    outcome = session.refresh([*SOME, tree(50)], PIPELINE)
    assert outcome.in_sync and not outcome.errors
    assert device.entries() == {*SOME, tree(50)}


def test_a_refused_update_is_told_after_an_edit_too(
    session: SwitchSession, device: FaultyDevice
) -> None:
    session.refresh(SOME, PIPELINE)
    device.faults.refuse = lambda _, update: (
        "no room" if device.decode(update.entity).key == tree(50).key else None
    )
    outcome = session.refresh([*SOME, tree(50), host_port(9)], PIPELINE)
    assert outcome.errors == [f"{tree(50).key}: INTERNAL: no room"]
    assert outcome.installed == len(SOME) + 1 and outcome.left.insert == (tree(50),)


def test_a_connection_that_broke_is_read_anew(session: SwitchSession, device: FaultyDevice) -> None:
    session.refresh(SOME, PIPELINE)
    session.close()
    device.reads = 0
    assert session.refresh(SOME[1:], PIPELINE).in_sync
    assert device.reads == 2


def test_a_read_may_take_long_while_the_switch_answers(
    session: SwitchSession, device: FaultyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SILENCE_SECONDS", 0.1)
    monkeypatch.setattr("stackcast.jobs.adapters.switches.p4runtime._RPC_SECONDS", 0.5)
    session.refresh(SOME, PIPELINE)
    device.faults.slow = 0.7
    outcome = session.refresh(SOME, PIPELINE)
    assert outcome.in_sync and outcome.seconds > 0.7


def test_a_read_that_stalls_is_given_up_although_the_switch_answers_otherwise(
    session: SwitchSession, device: FaultyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SILENCE_SECONDS", 0.1)
    monkeypatch.setattr(client, "_STALL_SECONDS", 0.5)
    session.refresh(SOME, PIPELINE)
    device.faults.slow = 5
    outcome = session.refresh(SOME, PIPELINE)
    assert not outcome.in_sync
    assert outcome.errors[0].startswith("SWITCH.UNREACHABLE: switch 's1' at 127.0.0.1:")


def test_a_switch_that_goes_silent_while_it_is_read_is_given_up(
    session: SwitchSession, device: FaultyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SILENCE_SECONDS", 0.1)
    session.refresh(SOME, PIPELINE)
    device.faults.slow, device.faults.deaf = 1.5, True
    outcome = session.refresh(SOME, PIPELINE)
    assert not outcome.in_sync and outcome.seconds < 10
    assert outcome.errors[0].startswith("SWITCH.UNREACHABLE: switch 's1' at 127.0.0.1:")
