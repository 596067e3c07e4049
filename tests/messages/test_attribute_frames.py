"""Events in Ethernet frames and back, and what headers cost.

Oracle: scapy, with layers made from the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy_layers import BITMASK_GROUP as BITMASK_ADDRESS
from scapy_layers import EVENT_LAYERS, Bitmask, IdPairs
from scapy_layers import ID_PAIRS_GROUP as ID_PAIRS_ADDRESS

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.attributes.encodings import ENCODINGS, header_bytes, type_bits
from stackcast.udfs.messages.attributes.events import REASONS, Events
from stackcast.udfs.messages.attributes.frames import (
    BITMASK_GROUP,
    ID_PAIRS_GROUP,
    events_of_frames,
    frames,
    headers_of,
)
from stackcast.udfs.messages.attributes.reference import write_event

pytestmark = pytest.mark.unit

ALL = 0xFFFFFFFF
LONGEST = 1000
SOURCE = 0x02_00_00_00_00_07
SOURCE_ADDRESS = "02:00:00:00:00:07"
OTHER = "02:00:00:00:00:09"

VALUES = st.dictionaries(st.integers(0, 31), st.integers(0, ALL), min_size=1)
EVENT = st.tuples(VALUES, st.binary(max_size=40))
BOTH = pytest.mark.parametrize("encoding", ENCODINGS)


def buffer_of(records: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, bytes) of records one after another."""
    offsets = np.cumsum([0, *map(len, records)])
    return offsets, np.frombuffer(b"".join(records), np.uint8)


def cut(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


def event(events: Events, data: np.ndarray, number: int) -> tuple[dict[int, int], bytes] | str:
    """One event as (values, payload), or its reason."""
    if events.reason[number]:
        return REASONS[int(events.reason[number])]
    mask = int(events.mask[number])
    values = {i: int(events.values[i, number]) for i in range(32) if mask >> i & 1}
    begin, end = events.payload_start[number], events.payload_end[number]
    return values, data[begin:end].tobytes()


@BOTH
@given(made=st.lists(EVENT, max_size=6))
def test_scapy_takes_apart_every_frame_that_we_build(encoding: str, made):
    records = [write_event(values, encoding, payload) for values, payload in made]
    built = cut(*frames(*buffer_of(records), encoding, SOURCE))
    address = {"id_pairs": ID_PAIRS_ADDRESS, "bitmask": BITMASK_ADDRESS}[encoding]
    for frame, (values, payload) in zip(built, made, strict=True):
        packet = Ether(frame)
        assert (packet.dst, packet.src, packet.type) == (address, SOURCE_ADDRESS, 0x9001)
        header = packet[EVENT_LAYERS[encoding]]
        assert header.by_id == values
        assert bytes(header.payload) == payload
        # Nothing is put after it, as nothing could tell that from payload.
        assert len(frame) == 14 + len(write_event(values, encoding, payload))


@given(st.lists(st.tuples(EVENT, st.sampled_from([*ENCODINGS, "other"])), max_size=8))
def test_frames_of_scapy_are_read_whatever_else_is_on_the_wire(sent):
    wire, ours = [], []
    for (values, payload), how in sent:
        if how == "other":
            wire.append(bytes(Ether(dst=OTHER, src=SOURCE_ADDRESS) / IP() / UDP() / payload))
            continue
        ours.append((len(wire), values, payload))
        wire.append(bytes(Ether(src=SOURCE_ADDRESS) / EVENT_LAYERS[how].of(values) / payload))
    offsets, data = buffer_of(wire)
    frame, events = events_of_frames(offsets, data, ALL, LONGEST)
    assert len(frame) == len(events) == len(ours)
    for number, (place, values, payload) in enumerate(ours):
        assert frame[number] == place
        assert event(events, data, number) == (values, payload)


def test_the_groups_are_those_of_the_switches():
    assert int(ID_PAIRS_ADDRESS.replace(":", ""), 16) == ID_PAIRS_GROUP
    assert int(BITMASK_ADDRESS.replace(":", ""), 16) == BITMASK_GROUP
    assert {e.name: e.group for e in ENCODINGS.values()} == {
        "id_pairs": ID_PAIRS_GROUP,
        "bitmask": BITMASK_GROUP,
    }


def test_frames_to_any_address_but_the_bitmasks_group_are_read_as_id_pairs():
    values = {2: 5, 7: 9}
    near = [BITMASK_GROUP ^ (1 << bit) for bit in range(48)]
    addresses = [OTHER, "ff:ff:ff:ff:ff:ff", *(one.to_bytes(6).hex(":") for one in near)]
    wire = [
        bytes(Ether(dst=address, src=SOURCE_ADDRESS) / IdPairs.of(values))
        for address in (ID_PAIRS_ADDRESS, *addresses)
    ]
    offsets, data = buffer_of(wire)
    assert headers_of(offsets, data).encoding.tolist() == [0] * len(wire)
    frame, events = events_of_frames(offsets, data, ALL, LONGEST)
    assert frame.tolist() == list(range(len(wire)))
    assert [event(events, data, n) for n in frame] == [(values, b"")] * len(wire)


def test_headers_are_found_where_they_begin():
    pairs, masks = write_event({1: 2}, "id_pairs"), write_event({1: 2}, "bitmask", b"rest")
    ethernet = bytes(Ether(dst=OTHER, src=SOURCE_ADDRESS, type=0x9001))
    wire = [
        bytes(Ether(dst=BITMASK_ADDRESS, src=SOURCE_ADDRESS, type=0x0800)) + masks,
        ethernet[:13],
        ethernet + pairs,
        b"",
        bytes(Ether(dst=BITMASK_ADDRESS, src=OTHER) / Dot1Q(type=0x9001)) + masks,
        bytes(Ether(dst=BITMASK_ADDRESS, src=OTHER, type=0x9001)) + masks,
        ethernet,
    ]
    offsets, data = buffer_of(wire)
    found = headers_of(offsets, data)
    assert found.frame.tolist() == [2, 5, 6]
    assert found.encoding.tolist() == [0, 1, 0]
    spans = zip(found.start, found.end, strict=True)
    assert [data[a:b].tobytes() for a, b in spans] == [pairs, masks, b""]


def test_a_bad_event_between_good_frames_has_its_reason():
    good = ({1: 2, 3: 4}, b"payload")
    wire = [
        bytes(Ether(src=SOURCE_ADDRESS) / Bitmask.of(good[0]) / good[1]),
        bytes(Ether(dst=BITMASK_ADDRESS, src=OTHER, type=0x9001)) + b"\0\0\0\x0f",
        bytes(Ether(dst=ID_PAIRS_ADDRESS, src=OTHER, type=0x9001)),
        bytes(Ether(dst=ID_PAIRS_ADDRESS, src=OTHER, type=0x9001)) + b"\x05" + bytes(1000),
        bytes(Ether(src=SOURCE_ADDRESS) / IdPairs.of(good[0]) / good[1]),
    ]
    offsets, data = buffer_of(wire)
    _, events = events_of_frames(offsets, data, ALL, LONGEST)
    assert [event(events, data, number) for number in range(5)] == [
        good,
        "truncated_event",
        "empty_event",
        "event_too_large",
        good,
    ]


@BOTH
def test_an_event_without_a_header_has_a_frame_of_no_bytes(encoding: str):
    record = write_event({1: 1}, encoding)
    built = cut(*frames(*buffer_of([b"", record, b"", record]), encoding, SOURCE))
    assert [len(frame) for frame in built] == [0, 14 + len(record)] * 2


@BOTH
def test_records_in_a_larger_buffer_are_framed_in_place(encoding: str):
    records = [write_event({number: number}, encoding, b"x" * number) for number in range(6)]
    offsets, data = buffer_of(records)
    part = cut(*frames(offsets[2:5].astype(np.int32), data, encoding, SOURCE))
    assert part == cut(*frames(*buffer_of(records[2:4]), encoding, SOURCE))
    wire, bytes_of_all = frames(offsets, data, encoding, SOURCE)
    frame, events = events_of_frames(wire[2:5], bytes_of_all, ALL, LONGEST)
    assert frame.tolist() == [0, 1]
    assert [event(events, bytes_of_all, n) for n in (0, 1)] == [
        ({2: 2}, b"xx"),
        ({3: 3}, b"xxx"),
    ]


def test_no_frames_are_no_events():
    empty = np.zeros(0, np.uint8)
    for offsets in (np.zeros(0, np.int32), np.zeros(1, np.int64)):
        borders, data = frames(offsets, empty, "bitmask", SOURCE)
        assert borders.tolist() == [0] and data.size == 0
        frame, events = events_of_frames(offsets, empty, ALL, LONGEST)
        assert len(frame) == len(events) == 0


@pytest.mark.parametrize("offsets", [[0, 99], [-1, 2], [0, 40, 20]], ids=str)
def test_offsets_that_leave_the_bytes_or_fall_are_refused(offsets: list[int]):
    data, borders = np.zeros(60, np.uint8), np.array(offsets)
    for call in (
        lambda: frames(borders, data, "bitmask", SOURCE),
        lambda: headers_of(borders, data),
        lambda: events_of_frames(borders, data, ALL, LONGEST),
    ):
        with pytest.raises(MessageError) as caught:
            call()
        assert caught.value.what == "BAD_OFFSETS"


# --- sizes ---------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("count", range(1, 33))
def test_the_figure_counts_the_bytes_that_are_written(encoding: str, count: int):
    values = dict.fromkeys(range(count), 7)
    assert header_bytes(count, encoding) == len(write_event(values, encoding))


@pytest.mark.parametrize(("id_bits", "first"), [(4, 8), (8, 4)])
def test_the_bitmask_is_smaller_from_eight_attributes_on_where_ids_have_four_bits(
    id_bits: int, first: int
):
    for size in (type_bits, header_bytes):
        smaller = [
            n for n in range(1, 33) if size(n, "bitmask") < size(n, "id_pairs", id_bits=id_bits)
        ]
        assert smaller == list(range(first, 33))
