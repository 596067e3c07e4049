"""A refresher under a role of P4Runtime on the lab's switch: one that the program gives a table,
and one that the owner of the switch configured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from entry_tables import PIPELINE
from paths import COMPILED_P4
from state_cases import TABLE, entries_of
from switch_model import Port, SwitchModel

from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.jobs.adapters.switches.results import RefreshResult, SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.refusal import Refusal
from stackcast.switch.p4runtime.roles import ANYBODY, Roles, read_roles
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.errors import LabError
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.state_entries import STATES_ROLE, state_row

pytestmark = pytest.mark.integration

STATES = P4Program.read(COMPILED_P4, TABLE)
OURS = entries_of(SwitchModel({1: Port(0x0A000001, True), 2: Port()}, 0b10, 20), 3)
ROW = state_row("s", 9, 0b1)


@pytest.fixture
def address() -> Iterator[str]:
    """A switch that the default role has given program and entries."""
    server = P4RuntimeServer([Device("s", 1, SimpleSwitch())]).start()
    assert refresh(server.address, "", OURS).in_sync
    yield server.address
    server.stop()


def refresh(
    address: str, role: str, entries: list[SwitchEntry], program: P4Program = STATES
) -> RefreshResult:
    with SwitchSession(SwitchTarget("s", address, 1), Credentials(role=role)) as session:
        return session.refresh(entries, program)


def test_what_a_role_writes_the_default_one_neither_reads_nor_takes_back(address: str) -> None:
    assert refresh(address, STATES_ROLE, [*OURS, ROW]).in_sync
    for role in ("", STATES_ROLE):
        result = refresh(address, role, [*OURS, ROW] if role else OURS)
        assert (result.in_sync, result.written) == (True, 0)


def test_what_a_role_may_not_write_is_told_update_by_update(address: str) -> None:
    result = refresh(address, STATES_ROLE, [*OURS[1:], ROW])
    assert (result.in_sync, result.written) == (False, 1)
    (error,) = result.errors
    assert OURS[0].key in error
    assert f"role '{STATES_ROLE}' may not write this" in error


@pytest.mark.parametrize(
    ("role", "code"), [(STATES_ROLE, "SWITCH.NOT_ALLOWED"), ("unheard", "SWITCH.NO_ROLE")]
)
def test_a_role_that_is_not_there_or_may_not_set_the_program_has_a_code(
    address: str, role: str, code: str
) -> None:
    (error,) = refresh(address, role, [], PIPELINE).errors
    assert error.startswith(f"{code}: ")
    assert f"'{role}'" in error


def test_a_role_that_is_configured_has_all_but_the_tables_of_others() -> None:
    device = Device("s", 1, SimpleSwitch(), roles=Roles({"refresher": [ANYBODY]}))
    server = P4RuntimeServer([device]).start()
    try:
        # Program, entries and groups; then the program's own role beside it.
        assert refresh(server.address, "refresher", OURS).in_sync
        assert refresh(server.address, STATES_ROLE, [*OURS, ROW]).in_sync
        result = refresh(server.address, "refresher", OURS)
        assert (result.in_sync, result.written) == (True, 0)
        assert refresh(server.address, "refresher", [], PIPELINE).in_sync
    finally:
        server.stop()


def test_who_may_take_a_role_is_read_from_a_command_line() -> None:
    roles = read_roles(["refresher=a,b", "=c", "anyone=*"])
    for role, client, fine in [
        ("refresher", {"b"}, True),
        ("refresher", {"c"}, False),
        ("refresher", set(), False),
        ("", {"c", "d"}, True),
        ("", {"a"}, False),
        ("anyone", set(), True),
        ("states", set(), True),
    ]:
        try:
            roles.check(role, client)
            assert fine, (role, client)
        except Refusal as refusal:
            assert not fine and role in refusal.message, (role, client)


@pytest.mark.parametrize("words", [["refresher"], ["refresher="], ["a=b", "a=c"], ["a=,"]])
def test_a_role_that_cannot_be_read_is_told(words: list[str]) -> None:
    with pytest.raises(LabError, match=r"BAD_SWITCH.*--role"):
        read_roles(words)
