"""Odd values in a row of table switches cause errors of that switch, and of no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from examples import examples
from fault_server import FaultServer
from hypothesis import example, given
from hypothesis import strategies as st
from paths import COMPILED_P4
from typer.testing import CliRunner

from stackcast.cli.states import app as states
from stackcast.jobs.adapters.switches import shell
from stackcast.jobs.adapters.switches.client import MAX_DEVICE_ID, MAX_ELECTION_ID, check_target
from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.messages import Names
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.jobs.adapters.switches.program import P4Program, Programs
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.jobs.adapters.switches.sessions import SwitchSessions
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import GROUPS, SwitchEntry

pytestmark = pytest.mark.integration

GOOD = "s1"
ODD = "s2"
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
#: Ids that P4Runtime does not have, and that of the switch.
IDS = st.integers(max_value=-1) | st.integers(min_value=1 << 64) | st.just(2)
#: Ports after the address of this machine, and texts that are no ports.
PLACES = st.integers(-(1 << 17), 1 << 17).map(str) | st.sampled_from(["", "x", "\0", "1\0", "1 2"])
PIPELINES = st.sampled_from(["virtual_trees", "", "\0", "../p4/virtual_trees", "x" * 300])
NAMES = Names(P4Program.read(COMPILED_P4, "virtual_trees").p4info)


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    running = FaultServer([GOOD, ODD])
    yield running
    running.stop()


def row(server: FaultServer, name: str, device_id: int, **columns: Any) -> dict[str, Any]:
    limits = {"max_rules": None, "max_groups": None}
    common = {"address": server.address, "pipeline": "virtual_trees"}
    return {"switch": name, "device_id": device_id, **common, **limits, **columns}


@given(
    device_id=IDS,
    place=st.none() | PLACES,
    pipeline=PIPELINES,
    limits=st.fixed_dictionaries({"max_rules": st.none() | INT32, "max_groups": st.none() | INT32}),
    paths=st.sampled_from(["", "/nowhere/{switch}.pem", "/nowhere/\0"]),
)
@example(-1, None, "virtual_trees", {}, "")
@example(2, "99999", "virtual_trees", {}, "")
@example(2, None, "\0", {}, "")
@example(2, None, "virtual_trees", {}, "/nowhere/\0")
@examples(200)
def test_a_row_with_odd_values_is_an_error_of_that_switch_alone(
    server: FaultServer,
    device_id: int,
    place: str | None,
    pipeline: str,
    limits: dict[str, int | None],
    paths: str,
) -> None:
    odd = row(server, ODD, device_id, pipeline=pipeline, **limits)
    if place is not None:
        odd["address"] = f"127.0.0.1:{place}"
    rows = [row(server, GOOD, 1), odd]
    sessions = SwitchSessions(
        Programs(str(COMPILED_P4)),
        lambda target: SwitchSession(
            target, Credentials(paths) if target.name == ODD else None, election_id=5
        ),
    )
    try:
        sessions.follow(rows)
        assert sessions.leads(connect=True)[GOOD]
        sessions.start({GOOD: [], ODD: []}, 0.0)
        results = sessions.ended([GOOD, ODD], 60.0)
        compared = sessions.compare({})
    finally:
        sessions.close()
    assert results[GOOD].in_sync and not compared[GOOD]
    # Every error has a code, in switch_status and in --dry-run.
    assert results[ODD].in_sync != bool(results[ODD].errors)
    assert all(error.startswith("SWITCH.") for error in results[ODD].errors)
    port = int(place) if place and place.lstrip("-").isdecimal() else 1
    if pipeline == "virtual_trees" and not paths and (device_id != 2 or not 0 < port < 1 << 16):
        assert results[ODD].errors[0].startswith(f"SWITCH.BAD_TARGET: switch {ODD!r}: ")


@pytest.mark.parametrize(
    ("device_id", "election_id"),
    [(-1, 0), (MAX_DEVICE_ID + 1, 0), (1, -1), (1, MAX_ELECTION_ID + 1)],
)
def test_ids_that_p4runtime_does_not_have_are_refused_before_anything_is_sent(
    server: FaultServer, device_id: int, election_id: int
) -> None:
    for connect in (SwitchConnection.connect, check_target):
        with pytest.raises(SwitchError) as refused:
            connect(server.address, device_id, election_id)
        assert refused.value.code == "SWITCH.BAD_TARGET"
    with pytest.raises(SwitchError) as refused:
        shell.open_shell(GOOD, server.address, device_id, Credentials(), election_id)
    assert refused.value.code == "SWITCH.BAD_TARGET"


@pytest.mark.parametrize(
    ("option", "most"), [("--device-id", MAX_DEVICE_ID), ("--election-id", MAX_ELECTION_ID)]
)
def test_the_controller_of_states_names_the_largest_id(option: str, most: int) -> None:
    result = CliRunner().invoke(states, ["switch-controller", "127.0.0.1:1", option, f"{most + 1}"])
    assert result.exit_code == 2 and option in result.output and str(most) in result.output


words = st.sampled_from(["port", "port:", "port:1", "port:x", "port:99999999999", "other"])
values = st.binary(max_size=6)
entries = st.builds(
    SwitchEntry,
    st.just(ODD),
    st.sampled_from([GROUPS, *NAMES.tables]),
    st.lists(st.tuples(words, st.sampled_from(["exact", "lpm", "range"]), values)).map(tuple),
    words,
    st.lists(st.tuples(words, values)).map(tuple),
    INT32,
)


@given(entries)
@examples(400)
def test_an_odd_row_of_switch_entries_is_an_error_with_its_key(entry: SwitchEntry) -> None:
    try:
        NAMES.to_wire(entry)
    except SwitchError as error:
        assert error.code == "SWITCH.WRITE_FAILED"
