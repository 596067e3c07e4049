"""Small programs of our own, compiled by p4c: stacks, unions, control flow, hashes, state.

What they should do is said by plain Python beside each test.
"""

from __future__ import annotations

import random
import struct
import zlib
from functools import cache
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import COMPILED_TEST_P4

from stackcast.switch.bmv2 import hashes
from stackcast.switch.bmv2.packet import Packet
from stackcast.switch.bmv2.program import Program, load_program
from stackcast.switch.bmv2.state import SwitchState
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.match import Match

pytestmark = pytest.mark.unit

LARGE = 100
"""A kind of option that is in the value set of large ones."""


@cache
def program_of(name: str) -> Program:
    return load_program((COMPILED_TEST_P4 / f"{name}.json").read_bytes())


def run(program: Program, state: SwitchState, frame: bytes) -> tuple[Packet, bytes]:
    packet = program.packet(frame, 3)
    state.parse(packet)
    state.ingress(packet)
    state.egress(packet)
    return packet, state.deparse(packet)


# -- stacks


def stacks(operation: int, index: int, value: int, items: list[int]) -> bytes:
    """What the program makes of such a frame with payload ``rest``."""
    program = program_of("program_stacks")
    frame = struct.pack(f">BBHBB{len(items)}H", operation, index, value, len(items), 0, *items)
    frame += b"rest"
    _, out = run(program, program.new_state(), frame)
    assert out.endswith(b"rest")
    return out[:-4]


def expected_stacks(operation: int, index: int, value: int, items: list[int]) -> bytes:
    held: list[int | None] = [*items, *[None] * (4 - len(items))]
    spare: list[int | None] = [None] * 4
    after: int = value
    if operation in (1, 2):
        by = 1 if operation == 1 else 3
        held = [*[None] * by, *held][:4]
    elif operation in (3, 4):
        by = 1 if operation == 3 else 3
        held = [*held[by:], *[None] * by]
    elif operation == 5 and index < 4:
        held[index] = None if held[index] is None else value
    elif operation == 6:
        # What is in no header is anything; 0 here.
        after = (held[index] or 0) if index < 4 else 0
    elif operation == 7 and index < 4:
        held[index] = None
    elif operation == 8 and index < 4:
        held[index] = held[index] if held[index] is not None else 0
    elif operation == 9:
        spare = held[:]
    elif operation == 10 and index < 4:
        spare[0] = held[index]
    elif operation == 11:
        after = int(held[0] == held[1])
    elif operation == 12:
        after = sum(item or 0 for item in held) & 0xFFFF
    elif operation == 13:
        after, left = 0, value
        while left > 1:
            left = left - 1 if left % 2 else left // 2
            after += 1
    elif operation == 14:
        held[0] = value
    head = struct.pack(">BBHBB", operation, index, after, len(items), 0)
    return head + b"".join(struct.pack(">H", item) for item in [*held, *spare] if item is not None)


@examples(300)
@given(
    st.integers(1, 14),
    st.integers(0, 6),
    st.integers(0, 0xFFFF),
    st.lists(st.integers(0, 0xFFFF), max_size=4),
)
def test_stacks_are_moved_copied_and_chosen_from(operation, index, value, items):
    held = expected_stacks(operation, index, value, items)
    assert stacks(operation, index, value, items) == held


def test_a_union_has_one_valid_member():
    program = program_of("program_stacks")
    state = program.new_state()
    state.set_parse_vset("read.large_kinds", [LARGE, 101])
    large = bytes([LARGE, 3]) + b"abc"
    for options, count, value in [
        (b"\5\6", 1, 1),
        (large, 1, 3),
        (b"", 0, 0),
        (large + b"\5\6" + large, 3, 3),
    ]:
        head = struct.pack(">BBHBB", 15, 0, 0, 0, count)
        _, out = run(program, state, head + options + b"rest")
        assert out == struct.pack(">BBHBB", 15, 0, value, 0, count) + options + b"rest"
    # Making the small one valid takes the large one away.
    _, out = run(program, state, struct.pack(">BBHBB", 16, 0, 0, 0, 1) + large)
    assert out == struct.pack(">BBHBB", 16, 0, 0, 0, 1) + b"\7\x09"


@pytest.mark.parametrize(
    ("frame", "bits"),
    [
        (struct.pack(">BBHBB", 0, 0, 0, 3, 0) + bytes(5), 1),  # cut short
        (struct.pack(">BBHBB", 0, 0, 0, 5, 0) + bytes(20), 2),  # more items than there is room
        (struct.pack(">BBHBB", 0, 0, 0, 0, 4) + bytes(20), 2),  # more options than there is room
        (struct.pack(">BBHBB", 0, 0, 0, 0, 1) + bytes([LARGE, 9]) + bytes(20), 8),  # too long
        (struct.pack(">BBHBB", 0, 0, 0, 0, 1) + bytes([LARGE, 9]) + bytes(2), 1),
        (struct.pack(">BBHBB", 0, 0, 0, 0, 1), 1),  # nothing to look ahead at
    ],
)
def test_errors_of_the_parser_have_their_names(frame: bytes, bits: int):
    program = program_of("program_stacks")
    state = program.new_state()
    state.set_parse_vset("read.large_kinds", [LARGE])
    packet, out = run(program, state, frame)
    assert out[:2] == bytes([0xFF, bits])
    # What was not taken is payload.
    assert out.endswith(frame[packet.payload :])
    assert packet.read_length or bits not in (1,)


def test_a_select_without_a_match_ends_the_parser_as_it_does_in_bmv2():
    program = program_of("program_stacks")
    frame = struct.pack(">BBHBB", 0, 0, 0, 0, 1) + b"\x50\x50"
    packet, out = run(program, program.new_state(), frame)
    assert out == frame
    assert packet.payload == 6


def test_a_value_set_can_change_and_is_empty_after_a_reset():
    program = program_of("program_stacks")
    state = program.new_state()
    frame = struct.pack(">BBHBB", 15, 0, 0, 0, 1) + b"\1\2ab"
    assert run(program, state, frame)[1][2:4] == b"\0\1"
    state.set_parse_vset("read.large_kinds", [1])
    assert run(program, state, frame)[1][2:4] == b"\0\3"
    state.reset()
    assert run(program, state, frame)[1][2:4] == b"\0\1"


# -- control flow


def control(
    operation: int,
    first: int = 0,
    second: int = 0,
    value: int = 0,
    state: SwitchState | None = None,
) -> tuple[Packet, int, int]:
    """The packet, its trace and its value."""
    program = program_of("program_control")
    frame = struct.pack(">BBBBI", operation, first, second, 0, value)
    packet, out = run(program, state or program.new_state(), frame)
    *_, trace, after = struct.unpack(">BBBBI", out)
    return packet, trace, after


def test_exit_leaves_at_once_and_return_leaves_its_control():
    assert control(1)[1] == 1
    assert control(0)[1] == 128
    state = program_of("program_control").new_state()
    match = Match("", "ternary", b"\5", b"\7").joined()
    entry = SwitchEntry(
        *("s", "ingress.known", (("hdr.command.second", "ternary", match),)),
        *("ingress.note", (("place", b"\2"),), 1),
    )
    state.apply({entry.key: entry})
    assert control(4, second=0x0D, state=state)[1] == 2 | 64
    assert control(4, second=0x0C, state=state)[1] == 32 | 128


@given(st.integers(0, 255), st.integers(0, 255))
def test_conditions_within_an_action(first: int, second: int):
    value = 4 if first > second else 3 if first == second else 2 if first else 1
    assert control(2, first, second)[1:] == (2 | 128, value)


def test_a_switch_goes_by_the_action_that_ran_and_its_entry_is_counted():
    program = program_of("program_control")
    state = program.new_state()
    name = next(form.key[0].name for form in program.tables.values() if "choose" in form.name)
    actions: dict[int, tuple[str, Any]] = {
        1: ("ingress.one", ()),
        2: ("ingress.two", (("value", b"\x2a"),)),
        3: ("ingress.three", ()),
        4: ("NoAction", ()),
    }
    entries = {
        first: SwitchEntry("s", "ingress.choose", ((name, "exact", bytes([first])),), *action)
        for first, action in actions.items()
    }
    state.apply({entry.key: entry for entry in entries.values()})
    seen = {first: control(3, first, state=state)[1:] for first in range(1, 6)}
    assert seen == {1: (136, 0), 2: (144, 42), 3: (148, 0), 4: (160, 0), 5: (160, 0)}
    packet = control(3, 2, state=state)[0]
    assert packet.counted and not packet.impure
    assert state.direct_counter("ingress.choose", entries[2].key) == (2, 16)
    # Another action under the same key: the count goes on. Taken away: it is gone.
    changed = SwitchEntry("s", "ingress.choose", entries[2].match, "ingress.three", ())
    state.apply({changed.key: changed})
    control(3, 2, state=state)
    assert state.direct_counter("ingress.choose", changed.key) == (3, 24)
    state.apply({changed.key: None})
    state.apply({changed.key: changed})
    assert state.direct_counter("ingress.choose", changed.key) == (0, 0)
    state.set_default("ingress.choose", "ingress.two", {"value": 77})
    assert control(3, 99, state=state)[1:] == (144, 77)
    state.reset_default("ingress.choose")
    assert control(3, 99, state=state)[1:] == (160, 0)


@given(st.binary(min_size=2, max_size=2))
def test_hashes_of_fields(data: bytes):
    assert control(5, *data)[2] == zlib.crc32(data) % 0xFFFFFFFF
    assert control(6, *data)[2] == hashes.crc16(data) % 100 + 10
    assert control(12, *data)[2] == int.from_bytes(data, "big")
    assert control(13, *data)[2] == int.from_bytes(data, "big")


def test_chance_stays_within_its_bounds_and_takes_all_of_them():
    random.seed(1)
    assert {control(7)[2] for _ in range(200)} == {5, 6, 7, 8, 9}


def test_a_meter_gives_the_color_of_its_rates():
    state = program_of("program_control").new_state()
    state.meters["ingress.rates"].set_rates(1, [(0.0, 1.0), (0.0, 2.0)])
    assert [control(8, 1, state=state)[2] for _ in range(3)] == [0, 1, 2]
    assert control(8, 0, state=state)[2] == 0


def test_an_assertion_that_fails_is_noted_and_no_end():
    state = program_of("program_control").new_state()
    assert control(9, 7, state=state)[1] == 4 | 128
    assert control(9, 6, state=state)[1] == 4 | 128
    assert state.failed_assertions == 1


def test_a_digest_names_its_fields():
    program = program_of("program_control")
    packet, _, _ = control(10, 5, value=99)
    slots = program.learn_lists[packet.digest]
    assert [packet.fields[slot] for slot in slots] == [5, 99]


def test_a_counter_counts_packets_and_bytes_within_its_size():
    state = program_of("program_control").new_state()
    for index in (0, 7, 7, 8, 255):
        control(11, index, state=state)
    assert [state.counter("ingress.seen", index) for index in (0, 1, 7)] == [
        (1, 8),
        (0, 0),
        (2, 16),
    ]
    assert state.counter_size("ingress.seen") == 8
    state.write_counter("ingress.seen", 1, 5, 6)
    assert state.counter("ingress.seen", 1) == (5, 6)


@pytest.mark.parametrize(
    ("operation", "impure", "by_length"),
    [
        *((operation, False, False) for operation in (0, 1, 2, 3, 4, 5, 6, 9, 11, 12, 13)),
        *((operation, True, False) for operation in (7, 8, 10, 15)),
        (14, False, True),
    ],
)
def test_what_a_run_depended_on_is_said(operation: int, impure: bool, by_length: bool):
    packet = control(operation)[0]
    assert (packet.impure, packet.read_length) == (impure, by_length)
    assert packet.read == 8


def test_a_table_of_the_program_cannot_be_given_another_default_if_it_is_const():
    state = program_of("program_control").new_state()
    with pytest.raises(SwitchError, match="const"):
        state.set_default("ingress.known", "NoAction", {})
