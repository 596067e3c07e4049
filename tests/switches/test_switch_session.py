"""One switch kept in step by a session, whatever the switch does meanwhile."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest
from entry_tables import PIPELINE, SOME, group, host_port, tree
from fault_server import RIVAL, FaultServer, FaultyDevice, wire_key
from waiting import until

from stackcast.jobs.adapters.switches import session as switch_session
from stackcast.jobs.adapters.switches.messages import Names
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.jobs.adapters.switches.results import RefreshResult, SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import GROUPS, SwitchEntry, group_entry
from stackcast.udfs.switches.routes import ROUTE
from stackcast.udfs.switches.stack_entries import label_table

pytestmark = pytest.mark.integration


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


def test_a_switch_is_given_its_program_and_entries_once_and_then_left_alone(
    session: SwitchSession, device: FaultyDevice
) -> None:
    assert session.disturbed()
    first = session.refresh(SOME, PIPELINE)
    assert first == RefreshResult(len(SOME), True, [], first.seconds, written=len(SOME))
    assert device.entries() == set(SOME)
    assert device.config.p4_device_config == PIPELINE.device_config
    writes = len(device.writes)
    assert not session.disturbed()
    again = session.refresh(SOME, PIPELINE)
    assert again.in_sync and again.written == 0
    assert len(device.writes) == writes
    assert device.actions == ["VERIFY_AND_COMMIT"]


def test_an_edit_writes_the_difference_alone(session: SwitchSession, device: FaultyDevice) -> None:
    session.refresh(SOME, PIPELINE)
    device.writes.clear()
    edited = [*SOME[1:-1], group_entry("s1", 0x1000, [(1, 1), (10, 2)]), tree(77)]
    assert session.compare(edited, PIPELINE).insert == (tree(77),)
    second = session.refresh(edited, PIPELINE)
    assert second.in_sync
    assert second.written == sum(len(write) for write in device.writes)
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
    assert session.refresh(many, PIPELINE).in_sync
    assert [len(write) for write in device.writes] == [500, 500, 200]
    assert device.entries() == set(many)


def test_requests_are_bounded_by_their_bytes_too(
    session: SwitchSession, device: FaultyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stackcast.jobs.adapters.switches.p4runtime._BATCH_BYTES", 200)
    assert session.refresh(SOME, PIPELINE).in_sync
    assert max(len(write) for write in device.writes) < 10


@pytest.mark.parametrize("numbers", [[7], [5, 7]])
def test_updates_that_are_refused_together_are_sent_again_alone_and_a_single_one_is_not(
    session: SwitchSession, device: FaultyDevice, numbers: list[int]
) -> None:
    refused = [tree(number) for number in numbers]
    device.faults.refuse = lambda _, update: (
        "no room in bank 7" if device.decode(update.entity) in refused else None
    )
    outcome = session.refresh(SOME, PIPELINE)
    assert not outcome.in_sync and outcome.installed == len(SOME) - len(refused)
    assert outcome.errors == [f"{entry.key}: INTERNAL: no room in bank 7" for entry in refused]
    assert outcome.left.insert == tuple(refused)
    assert device.entries() == set(SOME) - set(refused)
    requests = Counter(entry for write in device.writes for _, entry in write)
    assert {entry for entry, count in requests.items() if count > 1} == (
        set(refused) if len(refused) > 1 else set()
    )
    assert max(requests.values()) <= 2
    device.faults.refuse = lambda _, __: None
    assert session.refresh(SOME, PIPELINE).in_sync


def test_a_request_refused_without_naming_updates_is_halved_until_the_refused_one_is_alone(
    session: SwitchSession, device: FaultyDevice
) -> None:
    many = [tree(number) for number in range(1, 401)]
    device.faults.vague = True
    device.faults.refuse = lambda _, update: (
        "never" if device.decode(update.entity).key == tree(7).key else None
    )
    outcome = session.refresh(many, PIPELINE)
    assert outcome.errors == [f"{tree(7).key}: INTERNAL: something is wrong"]
    assert device.entries() == set(many) - {tree(7)}
    # Two requests per halving: 400 updates are halved nine times.
    assert len(device.writes) <= 1 + 2 * 9


@pytest.mark.parametrize("details", ["garbage", "extra"])
def test_malformed_details_of_a_refusal_are_treated_as_none(
    session: SwitchSession, device: FaultyDevice, details: str
) -> None:
    device.faults.details = details
    device.faults.refuse = lambda _, update: (
        "never" if device.decode(update.entity).key == tree(7).key else None
    )
    outcome = session.refresh(SOME, PIPELINE)
    assert device.entries() == set(SOME) - {tree(7)}
    (error,) = outcome.errors
    assert error.startswith(f"{tree(7).key}: UNKNOWN: ")


def test_an_entry_with_an_action_that_the_program_does_not_have_is_replaced(
    session: SwitchSession, device: FaultyDevice
) -> None:
    assert session.refresh(SOME, PIPELINE).in_sync
    key = wire_key(Names(PIPELINE.p4info).to_wire(tree(7)))
    with device.lock:
        changed = p4runtime_pb2.Entity()
        changed.CopyFrom(device.held[key])
        changed.table_entry.action.action.action_id = 0x01ABCDEF
        device.held[key] = changed
    assert session.refresh(SOME, PIPELINE).in_sync
    assert device.entries() == set(SOME)


def test_a_switch_that_returns_more_entries_than_its_program_holds_is_an_error(
    session: SwitchSession, device: FaultyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session.refresh(SOME, PIPELINE).in_sync
    spare = 5 - 2 * sum(PIPELINE.sizes.values())
    monkeypatch.setattr("stackcast.jobs.adapters.switches.messages._SPARE_ENTRIES", spare)
    outcome = session.refresh(SOME, PIPELINE)
    (error,) = outcome.errors
    assert error.startswith("SWITCH.READ_FAILED: switch 's1'") and "more than 5 entries" in error


def test_a_switch_that_refuses_everything_is_not_sent_each_update_alone(
    session: SwitchSession, device: FaultyDevice
) -> None:
    many = [tree(number) for number in range(1, 2001)]
    device.faults.vague = True
    device.faults.refuse = lambda *_: "never"
    outcome = session.refresh(many, PIPELINE)
    assert outcome.errors[-1] == f"and {len(many) - 20} more updates" and not device.entries()
    assert len(device.writes) < 50


def test_a_switch_that_is_full_below_its_reported_size_gets_few_single_updates(
    session: SwitchSession, device: FaultyDevice
) -> None:
    space, many = 800, [tree(number) for number in range(1, 2001)]
    device.faults.capacity = space
    outcome = session.refresh(many, PIPELINE)
    assert not outcome.in_sync and outcome.full
    assert (outcome.installed, outcome.written) == (space, space)
    assert len(device.entries()) == space
    *errors, others = outcome.errors
    assert others == f"and {len(many) - space - len(errors)} more updates"
    assert all("RESOURCE_EXHAUSTED: the table is full" in error for error in errors)
    requests = [len(write) for write in device.writes]
    assert requests.count(1) == 10 and len(requests) == 10 + 4
    device.faults.capacity = None
    outcome = session.refresh(many, PIPELINE)
    assert outcome.in_sync and not outcome.full


def test_matches_that_a_switch_returns_although_they_accept_everything_change_nothing(
    session: SwitchSession, device: FaultyDevice
) -> None:
    """As p4lang/PI does (issue 35), against P4Runtime 9.1.1."""
    assert session.refresh(SOME, PIPELINE).in_sync
    # The default route has no match field.
    assert any(not entry.match for entry in SOME if entry.table == ROUTE)
    device.faults.explicit = True
    writes = len(device.writes)
    assert session.refresh(SOME, PIPELINE).in_sync
    assert len(device.writes) == writes


def test_entries_of_tables_that_the_program_does_not_have_are_reported_and_ignored(
    session: SwitchSession, device: FaultyDevice, caplog: pytest.LogCaptureFixture
) -> None:
    session.refresh(SOME, PIPELINE)
    foreign = p4runtime_pb2.Entity()
    foreign.table_entry.table_id = 0x02ABCDEF
    foreign.table_entry.action.action.action_id = 0x01ABCDEF
    with device.lock:
        device.held[b"foreign"] = foreign
    for _ in range(2):
        assert session.refresh(SOME, PIPELINE).in_sync
    (record,) = [record for record in caplog.records if "does not contain" in record.message]
    assert "switch 's1'" in record.message and "has 1 entries" in record.message
    assert str(0x02ABCDEF) in record.message
    assert session.refresh(SOME[1:], PIPELINE).in_sync


def test_names_that_the_program_lacks_are_told_entry_by_entry_and_the_others_are_written(
    session: SwitchSession, device: FaultyDevice
) -> None:
    nowhere = SwitchEntry("s1", "ingress.acl", (), "ingress.drop", ())
    outcome = session.refresh([*SOME, nowhere], PIPELINE)
    assert not outcome.in_sync and len(outcome.errors) == 1
    assert "no table named 'ingress.acl'" in outcome.errors[0]
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
        (too_many, {}, [f"table 'egress.host_port' needs {size + 5} entries", f"{size}"]),
        ([tree(n) for n in range(1, 12)], {"max_rules": 10}, ["11 entries", "allows 10"]),
        ([group(n, n) for n in range(1, 5)], {"max_groups": 3}, ["4 multicast", "allows 3"]),
    ]
    for desired, limits, words in cases:
        with another(running, 1, **limits) as session:
            outcome = session.refresh(desired, PIPELINE)
            assert not outcome.in_sync and not session.disturbed()
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
        assert session.refresh(old, PIPELINE).in_sync
        outcome = session.refresh(new, PIPELINE)
    assert outcome.in_sync and not outcome.errors and device.entries() == set(new)


def test_another_program_of_the_same_tables_keeps_the_entries_where_the_switch_can(
    session: SwitchSession, device: FaultyDevice
) -> None:
    session.refresh(SOME, PIPELINE)
    device.writes.clear()
    newer = dataclasses.replace(PIPELINE, device_config=PIPELINE.device_config + b" ")
    assert session.refresh(SOME, newer).in_sync
    assert device.actions == ["VERIFY_AND_COMMIT", "RECONCILE_AND_COMMIT"]
    assert {entry.table for write in device.writes for _, entry in write} == {GROUPS}
    assert device.entries() == set(SOME)
    assert device.config.p4_device_config == newer.device_config
    device.keeps_entries = False
    assert session.refresh(SOME, PIPELINE).in_sync
    assert device.actions[2:] == ["RECONCILE_AND_COMMIT", "VERIFY_AND_COMMIT"]
    assert device.entries() == set(SOME)
    assert device.config.cookie.cookie == PIPELINE.cookie != newer.cookie


def test_groups_are_deleted_before_a_program_that_cannot_keep_them(
    session: SwitchSession, device: FaultyDevice
) -> None:
    """BMv2 keeps them unseen, and would send each copy twice once they are made again."""
    session.refresh(SOME, PIPELINE)
    groups = {entry.key for entry in SOME if entry.table == GROUPS}
    assert groups
    device.writes.clear()
    device.keeps_entries = False
    newer = dataclasses.replace(PIPELINE, device_config=PIPELINE.device_config + b" ")
    assert session.refresh(SOME, newer).in_sync
    assert {(kind, entry.key) for kind, entry in device.writes[0]} == {
        ("DELETE", key) for key in groups
    }
    assert device.entries() == set(SOME)


@pytest.mark.parametrize("keeps_entries", [True, False])
def test_a_changed_program_leaves_one_copy_for_a_port_however_often_it_changes(
    session: SwitchSession, device: FaultyDevice, keeps_entries: bool
) -> None:
    device.hides_groups, device.keeps_entries = True, keeps_entries
    session.refresh(SOME, PIPELINE)
    once = device.copies()
    assert once and set(once.values()) == {1}
    for times in range(1, 4):
        newer = dataclasses.replace(PIPELINE, device_config=PIPELINE.device_config + b" " * times)
        assert session.refresh(SOME, newer).in_sync
        assert device.copies() == once
    other = dataclasses.replace(
        PIPELINE, p4info_text=PIPELINE.p4info_text.replace("size: 512", "size: 511", 1)
    )
    assert other.p4info != PIPELINE.p4info
    assert session.refresh(SOME, other).in_sync
    assert device.copies() == once


def test_what_reads_a_program_changes_it_for_no_other_switch_that_is_given_it_meanwhile(
    session: SwitchSession,
) -> None:
    read = PIPELINE.p4info
    before = read.SerializeToString(deterministic=True)
    read.tables[0].size += 1
    assert PIPELINE.p4info.SerializeToString(deterministic=True) == before
    assert session.refresh(SOME, PIPELINE).in_sync


def test_a_switch_that_takes_no_new_program_goes_on_copying_by_its_groups(
    session: SwitchSession, device: FaultyDevice
) -> None:
    session.refresh(SOME, PIPELINE)
    once = device.copies()
    device.faults.no_program = True
    newer = dataclasses.replace(PIPELINE, device_config=b"{}")
    assert not session.refresh(SOME, newer).in_sync
    assert device.entries() == set(SOME) and device.copies() == once
    device.faults.no_program = False
    assert session.refresh(SOME, newer).in_sync
    assert device.copies() == once


def test_a_switch_without_cookies_is_not_given_the_same_program_again(
    session: SwitchSession, device: FaultyDevice
) -> None:
    session.refresh(SOME, PIPELINE)
    device.config.ClearField("cookie")
    assert session.refresh(SOME, PIPELINE).in_sync
    assert device.actions == ["VERIFY_AND_COMMIT"]


def test_a_switch_that_restarts_is_noticed_and_mended(
    session: SwitchSession, device: FaultyDevice
) -> None:
    session.refresh(SOME, PIPELINE)
    device.faults.forgets = True
    device.die()
    until(session.disturbed)
    assert device.entries() == set()
    assert session.refresh(SOME, PIPELINE).in_sync
    assert device.entries() == set(SOME) and not session.disturbed()


def test_a_switch_that_is_not_there_is_told_at_once_or_waited_for(
    device: FaultyDevice, running: FaultServer
) -> None:
    away = SwitchSession(SwitchTarget("s1", "127.0.0.1:1", 1))
    outcome = away.refresh(SOME, PIPELINE)
    assert (outcome.installed, outcome.in_sync, outcome.primary) == (None, False, True)
    assert outcome.errors[0].startswith("SWITCH.UNREACHABLE: switch 's1' at 127.0.0.1:1")
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
    assert not outcome.in_sync and "UNREACHABLE" in outcome.errors[0]
    assert len(device.writes) == switch_session._TRIES and not device.entries()
    device.faults.die = set()
    assert session.refresh(SOME, PIPELINE).in_sync


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
    until(session._probe.done)
    assert not session.disturbed()  # that one was answered
    monkeypatch.setattr(SwitchConnection, "probe", lambda _: Unanswered())
    until(session.disturbed)
    assert session.refresh(SOME, PIPELINE).in_sync


def test_the_higher_election_id_writes_and_the_other_waits_and_takes_over(
    running: FaultServer, device: FaultyDevice
) -> None:
    low, high = another(running, 1), another(running, 2)
    assert low.refresh(SOME, PIPELINE).in_sync and not low.disturbed()
    assert high.refresh(SOME[1:], PIPELINE).in_sync
    until(lambda: not low.is_primary)
    assert not low.disturbed()
    writes = len(device.writes)
    outcome = low.refresh(SOME, PIPELINE)
    assert (outcome.primary, outcome.in_sync) == (False, False)
    assert outcome.errors[0].startswith(f"SWITCH.NOT_PRIMARY: switch 's1' at {running.address}")
    assert "another client, with election id 2; ours is 1" in outcome.errors[0]
    assert len(device.writes) == writes and device.entries() == set(SOME[1:])
    # It takes over where the other leaves ...
    high.close()
    until(low.disturbed)
    assert low.refresh(SOME, PIPELINE).in_sync and low.is_primary
    # It yields when the other returns, although it raised its own id.
    assert high.refresh(SOME[2:], PIPELINE).in_sync
    until(lambda: not low.is_primary)
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
        until(lambda: same.refresh([], PIPELINE).in_sync)
    assert device.entries() == set()


def test_one_that_is_no_longer_primary_writes_nothing_more(
    session: SwitchSession, device: FaultyDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The switch itself says no where its notice has not been read yet.
    for deaf in (False, True):
        if deaf:
            monkeypatch.setattr(
                "stackcast.jobs.adapters.switches.client.Client.poll_arbitration",
                lambda client: client.primary,
            )
        session.refresh([], PIPELINE)
        device.writes.clear()
        device.faults.rival = {device.number}
        outcome = session.refresh(SOME, PIPELINE)
        assert not outcome.primary and not outcome.in_sync
        assert len(device.writes) == 1 and device.highest == RIVAL
        monkeypatch.undo()
        device.send_rival_away()
        until(lambda: session.refresh([], PIPELINE).in_sync)
