"""What is written over P4Runtime is what the software switch does with frames."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from control_plane import (
    CELLS,
    INFO,
    SEEN,
    TABLES,
    Inbox,
    Set,
    config,
    exact,
    group,
    lpm,
    read,
    running,
    session,
    table_entry,
    updates,
    write,
)
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import Device
from stackcast.udfs.errors import SwitchError

pytestmark = pytest.mark.unit

TableEntry = p4runtime_pb2.TableEntry


def frame(tag: int = 0, address: int = 0, wide: int = 0, rest: int = 0) -> bytes:
    """A header of the program, and two bytes after it."""
    return struct.pack(">HIH", tag, address, wide << 4 | rest) + b"xy"


@pytest.fixture
def switch() -> SimpleSwitch:
    return SimpleSwitch()


@pytest.fixture
def device(switch: SimpleSwitch) -> Device:
    return running(switch)


def ports(switch: SimpleSwitch, **fields: int) -> list[int]:
    return sorted(port for port, _ in switch.process(1, frame(**fields)))


def last(device: Device, port: int) -> None:
    """The keyless table comes last: its default action decides where a frame goes."""
    way = table_entry("keyless", {}, "send", [bytes([port])], is_default_action=True)
    assert write(device, "MODIFY", way) == ["OK"]


def test_a_default_action_takes_effect_and_its_reset_too(
    device: Device, switch: SimpleSwitch
) -> None:
    assert ports(switch) == []  # the constant table drops what is left
    last(device, 7)
    assert ports(switch) == [7]
    reset = table_entry("keyless", {}, is_default_action=True)
    assert write(device, "MODIFY", reset) == ["OK"]
    assert ports(switch) == []


def counted(device: Device) -> dict[str, int]:
    """Packets by prefix in the table with a direct counter."""
    table = TableEntry(table_id=TABLES["lpm_table"].preamble.id)
    table.counter_data.SetInParent()
    return {
        f"{wire.match[0].lpm.value.hex()}/{wire.match[0].lpm.prefix_len}" if wire.match else "all":
        wire.counter_data.packet_count
        for wire in read(device, table)
    }  # fmt: skip


def test_direct_counters_count_the_longest_prefix_and_begin_anew(
    device: Device, switch: SimpleSwitch
) -> None:
    entries = [lpm(length=0), lpm(b"\x0a\0\0\0", 8), lpm(b"\x0a\1\0\0", 16)]
    assert write(device, "INSERT", *entries) == ["OK"] * 3
    for address in (0x0A010203, 0x0A010204, 0x0A020304, 0x0B000000):
        switch.process(1, frame(address=address))
    assert counted(device) == {"all": 1, "0a000000/8": 1, "0a010000/16": 2}
    write(device, "MODIFY", lpm(b"\x0a\1\0\0", 16, out=b"\4"))  # counts on
    switch.process(1, frame(address=0x0A010203))
    assert counted(device)["0a010000/16"] == 3
    again = updates("DELETE", entries[2]) + updates("INSERT", entries[2])
    assert device.write(again, 0, 1) == [None, None]
    assert counted(device)["0a010000/16"] == 0
    one = p4runtime_pb2.DirectCounterEntry(
        table_entry=TableEntry(table_id=TABLES["lpm_table"].preamble.id, match=entries[1].match),
        data=p4runtime_pb2.CounterData(packet_count=40, byte_count=7),
    )
    assert write(device, "MODIFY", one) == ["OK"]
    switch.process(1, frame(address=0x0A020304))
    (held,) = read(device, one)
    assert (held.data.packet_count, held.data.byte_count) == (41, 7 + len(frame()))


def seen(device: Device) -> list[int]:
    cells = read(device, p4runtime_pb2.CounterEntry(counter_id=SEEN))
    return [each.data.packet_count for each in cells]


@examples(60)
@given(
    st.lists(
        st.tuples(
            st.tuples(st.integers(0, 4095), st.integers(0, 4095)).map(sorted),
            st.integers(0, 16),
            st.integers(0, 0xFFFF),
            st.integers(1, 100),
        ),
        max_size=7,
        unique_by=lambda each: each[3],
    ),
    st.lists(st.tuples(st.integers(0, 4095), st.integers(0, 0xFFFF)), max_size=12),
)
def test_ranges_and_prefixes_choose_by_priority_as_a_plain_search_does(
    rules: list[Any], frames: list[Any]
) -> None:
    switch = SimpleSwitch()
    device = running(switch)
    plain = []
    for cell, ((low, high), length, tag, priority) in enumerate(rules):
        prefix = tag >> 16 - length << 16 - length if length else 0
        match: dict[int, Any] = {}
        if (low, high) != (0, 4095):
            match[1] = ("range", low.to_bytes(2, "big"), high.to_bytes(2, "big"))
        if length:
            match[2] = ("lpm", prefix.to_bytes(2, "big"), length)
        entry = table_entry("range_table", match, "count", [bytes([cell])], priority)
        assert write(device, "INSERT", entry) == ["OK"]
        plain.append((priority, cell, low, high, length, prefix))
    expected = [0] * 8
    for wide, tag in frames:
        switch.process(1, frame(tag=tag, wide=wide))
        found = [
            (priority, cell)
            for priority, cell, low, high, length, prefix in plain
            if low <= wide <= high and (not length or tag >> 16 - length == prefix >> 16 - length)
        ]
        expected[max(found)[1] if found else 7] += 1  # without a match: the default action's cell
    assert seen(device) == expected


def test_ternary_and_optional_matches_reach_the_switch(
    device: Device, switch: SimpleSwitch
) -> None:
    spread = table_entry(
        "ternary_table",
        {1: ("ternary", b"\x0f\0", b"\xff\0"), 2: ("optional", b"\x07"), 3: ("exact", b"\1")},
        "spread",
        [b"\5"],
        9,
    )
    assert write(device, "INSERT", spread, group(5, (3, 0), (4, 0))) == ["OK"] * 2
    last(device, 7)
    # Frames with rest 1 are those that the constant tables do not drop, group and all.
    assert ports(switch, tag=0x0F12, address=7, rest=1) == [3, 4]
    for others in ((0x0E12, 7, 1), (0x0F12, 8, 1), (0x0F12, 7, 2)):
        assert ports(switch, **dict(zip(("tag", "address", "rest"), others, strict=True))) == [7]
    # A group that goes while an entry names it: its frames go nowhere, others are not touched.
    assert write(device, "DELETE", group(5)) == ["OK"]
    assert ports(switch, tag=0x0F12, address=7, rest=1) == []
    assert ports(switch) == [7]
    assert write(device, "INSERT", group(5, (2, 0))) == ["OK"]
    assert ports(switch, tag=0x0F12, address=7, rest=1) == [2]


def test_clone_sessions_copy_frames_and_cut_them(device: Device, switch: SimpleSwitch) -> None:
    last(device, 7)
    assert write(device, "INSERT", session(5, (6, 0), packet_length_bytes=4)) == ["OK"]
    assert sorted((port, len(copy)) for port, copy in switch.process(1, frame())) == [
        (6, 4),
        (7, len(frame())),
    ]
    assert write(device, "DELETE", session(5)) == ["OK"]
    assert ports(switch) == [7]


def test_registers_are_shared_with_the_program(device: Device, switch: SimpleSwitch) -> None:
    cell = p4runtime_pb2.RegisterEntry(register_id=CELLS)
    cell.index.index = 1
    cell.data.bitstring = b"\x10\0"
    assert write(device, "MODIFY", cell) == ["OK"]
    switch.process(1, frame())
    cells = read(device, p4runtime_pb2.RegisterEntry(register_id=CELLS))
    assert [int.from_bytes(each.data.bitstring, "big") for each in cells[:4]] == [
        0,
        0x1000,
        0x1001,
        0,
    ]


def test_a_program_that_is_saved_forwards_nothing_before_it_is_committed(
    device: Device, switch: SimpleSwitch
) -> None:
    last(device, 7)
    device.set_config(Set.VERIFY_AND_SAVE, config(), 1)
    last(device, 8)
    assert ports(switch) == [7]
    device.set_config(Set.COMMIT, None, 1)
    assert ports(switch) == [8]


def test_reconciling_another_form_of_the_program_keeps_what_frames_see(
    device: Device, switch: SimpleSwitch
) -> None:
    last(device, 7)
    write(device, "INSERT", lpm(b"\x0a\0\0\0", 8), exact(b"\1"), session(5, (6, 0)))
    switch.process(1, frame(address=0x0A000001))
    spaced = config().p4_device_config.replace(b",", b", ")
    device.set_config(Set.RECONCILE_AND_COMMIT, config(program=spaced), 1)
    assert ports(switch, address=0x0A000001) == [6, 7]
    assert counted(device) == {"0a000000/8": 2}
    assert seen(device)[7] == 2


def test_a_switch_without_a_program_takes_nothing_and_a_bad_one_is_refused_in_its_words() -> None:
    switch = SimpleSwitch()
    device = Device("s1", 1, switch)
    device.arbitration.join(Inbox(), 1)
    assert switch.process(1, frame()) == []
    with pytest.raises(SwitchError) as error:
        device.install(str(INFO), b'{"header_types": []}')
    assert error.value.code == "SWITCH.WRONG_PROGRAM"
    assert switch.program is None
