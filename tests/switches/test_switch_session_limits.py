"""Sessions: entries beyond the limits of a switch, another leader in between, and dry runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from entry_tables import PIPELINE, SOME, group, tree
from fault_server import RIVAL, FaultServer, FaultyDevice
from waiting import until

from stackcast.jobs.adapters.switches import session as switch_session
from stackcast.jobs.adapters.switches.results import Comparison, RefreshResult, SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.schemas.p4runtime import p4runtime_pb2

pytestmark = pytest.mark.integration

REBUILT = dataclasses.replace(PIPELINE, device_config=PIPELINE.device_config + b" ")
MAX_RULES = 30
TOO_MANY = [tree(n) for n in range(1, MAX_RULES + 2)]


@pytest.fixture(scope="module")
def running() -> Iterator[FaultServer]:
    server = FaultServer(["s1"])
    yield server
    server.stop()


@pytest.fixture
def device(running: FaultServer, monkeypatch: pytest.MonkeyPatch) -> FaultyDevice:
    monkeypatch.setattr(switch_session, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(switch_session, "_STAND_IN_SECONDS", 0.2)
    running.devices["s1"].reset()
    return running.devices["s1"]


@pytest.fixture
def limited(running: FaultServer, device: FaultyDevice) -> Iterator[SwitchSession]:
    with SwitchSession(SwitchTarget("s1", running.address, 1, MAX_RULES), election_id=5) as session:
        yield session


def other_program() -> Any:
    """A program of other tables that is not ours, as a switch runs it."""
    config = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=b"{}")
    config.p4info.CopyFrom(PIPELINE.p4info)
    del config.p4info.tables[1:]
    return config


def restart(device: FaultyDevice) -> None:
    device.faults.forgets = True
    device.die()


def test_a_switch_that_restarts_while_it_is_asked_for_too_much_holds_what_it_held_before(
    limited: SwitchSession, device: FaultyDevice
) -> None:
    assert limited.refresh(SOME, PIPELINE).in_sync
    for lose in (lambda: None, lambda: restart(device), device.held.clear):
        lose()
        outcomes: list[RefreshResult] = []

        def refreshed(outcomes: list[RefreshResult] = outcomes) -> bool:
            # The session is not primary until it notices a restart.
            outcomes.append(limited.refresh(TOO_MANY, PIPELINE))
            return bool(outcomes[-1].primary)

        until(refreshed)
        outcome = outcomes[-1]
        assert not outcome.in_sync and outcome.primary and outcome.installed == len(SOME)
        assert len(outcome.errors) == 1
        assert outcome.errors[0].startswith("SWITCH.LIMIT: switch 's1'")
        assert f"all tables together need {len(TOO_MANY)} entries" in outcome.errors[0]
        assert f"max_rules of the switch allows {MAX_RULES}" in outcome.errors[0]
        assert device.entries() == set(SOME)
        assert device.config.cookie.cookie == PIPELINE.cookie
    assert limited.refresh(SOME[1:], PIPELINE).in_sync


def test_beyond_a_limit_a_switch_without_program_is_given_it_and_another_program_is_left(
    limited: SwitchSession, device: FaultyDevice
) -> None:
    outcome = limited.refresh(TOO_MANY, PIPELINE)
    assert "LIMIT" in outcome.errors[0] and outcome.installed == 0
    assert device.config.cookie.cookie == PIPELINE.cookie and not device.writes
    device.config = other_program()
    actions = list(device.actions)
    outcome = limited.refresh(TOO_MANY, PIPELINE)
    assert "LIMIT" in outcome.errors[0] and outcome.installed is None
    assert device.actions == actions and not device.writes


def test_beyond_a_limit_what_another_wrote_meanwhile_stays(
    limited: SwitchSession, running: FaultServer, device: FaultyDevice
) -> None:
    assert limited.refresh(SOME, PIPELINE).in_sync
    limited.close()
    foreign = [*SOME[1:], tree(60)]
    with SwitchSession(SwitchTarget("s1", running.address, 1), election_id=3) as session:
        assert session.refresh(foreign, PIPELINE).in_sync
    outcome = limited.refresh(TOO_MANY, PIPELINE)
    assert "LIMIT" in outcome.errors[0] and outcome.installed == len(foreign)
    assert device.entries() == set(foreign)


def test_one_that_comes_back_within_a_call_does_not_undo_what_another_led_to_meanwhile(
    running: FaultServer, device: FaultyDevice
) -> None:
    led: list[bool] = []
    newer = [*SOME, tree(99)]

    def other_leads() -> bool:
        """Between two tries, let another session lead, write and end."""
        if not led:
            led.append(True)
            with SwitchSession(SwitchTarget("s1", running.address, 1), election_id=3) as rival:
                assert rival.refresh(newer, PIPELINE).in_sync
        return False

    target = SwitchTarget("s1", running.address, 1)
    with SwitchSession(target, None, 5, other_leads, lambda: bool(led)) as session:
        device.faults.die = {1}
        outcome = session.refresh(SOME[2:], PIPELINE)
        assert led
        assert (outcome.installed, outcome.in_sync, outcome.primary) == (None, False, False)
        assert (
            "another refresher became primary" in outcome.errors[0] and "'s1'" in outcome.errors[0]
        )
        assert device.entries() == set(newer)
        assert session.disturbed()
        led.clear()  # as if it had read the new tables
        assert session.refresh(newer, PIPELINE).in_sync


def test_a_session_that_stays_primary_is_not_asked_whether_it_was_superseded(
    running: FaultServer, device: FaultyDevice
) -> None:
    calls: list[int] = []
    target = SwitchTarget("s1", running.address, 1)
    with SwitchSession(target, superseded=lambda: bool(calls.append(1))) as session:
        for entries in (SOME, SOME[1:], SOME):
            assert session.refresh(entries, PIPELINE).in_sync
        assert len(calls) == 1
        session.close()
        assert session.refresh(SOME, PIPELINE).in_sync and len(calls) == 2


def test_a_foreign_primary_is_reported_with_switch_address_and_election_id(
    limited: SwitchSession, running: FaultServer, device: FaultyDevice
) -> None:
    limited.refresh(SOME, PIPELINE)
    device.faults.rival = {device.number}
    between = limited.refresh([*SOME[1:], tree(50)], PIPELINE)
    later = limited.refresh(SOME, PIPELINE)
    for outcome in (between, later):
        assert not outcome.primary and not outcome.in_sync
        assert all(word in outcome.errors[0] for word in ("'s1'", running.address))
    assert f"election id {RIVAL}; ours is 5" in later.errors[0]


def test_one_that_loses_its_place_with_its_last_write_does_not_take_itself_for_primary(
    limited: SwitchSession, device: FaultyDevice
) -> None:
    limited.refresh(SOME, PIPELINE)
    device.faults.rival = {device.number}
    device.faults.slow = 0.2  # the notification arrives before the answer to a read
    outcome = limited.refresh([*SOME, tree(50)], PIPELINE)
    assert outcome.in_sync and not outcome.primary


def test_a_dry_run_tells_what_becomes_of_the_program(
    limited: SwitchSession, device: FaultyDevice
) -> None:
    empty = limited.compare(SOME, PIPELINE)
    assert empty.program is not None and empty.program.startswith("set")
    assert empty.insert == tuple(SOME)
    limited.refresh(SOME, PIPELINE)
    assert limited.compare(SOME, PIPELINE) == Comparison((), (), (), None)
    assert not limited.compare(SOME, PIPELINE)
    rebuilt = limited.compare(SOME, REBUILT)
    assert rebuilt and rebuilt.program is not None and rebuilt.program.startswith("reconciled")
    assert not (rebuilt.insert or rebuilt.modify or rebuilt.delete)
    config = other_program()
    device.held = {k: e for k, e in device.held.items() if device.decode(e) in {group(1, 1)}}
    device.config = config
    replaced = limited.compare(SOME, PIPELINE)
    assert replaced.program is not None and replaced.program.startswith("replaced")
    assert replaced.insert == tuple(SOME) and replaced.delete == (group(1, 1),)
    assert device.config is config and device.entries() == {group(1, 1)}
    assert limited.refresh(SOME, PIPELINE).in_sync and device.entries() == set(SOME)
