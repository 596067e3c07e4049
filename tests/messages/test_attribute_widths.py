"""Headers of other widths: ids of 8 and 16 bits, bitmasks of 8 to 64, as plain bytes say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from attribute_records import arrow_of
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.lab.proof import verification
from stackcast.lab.proof.attribute_reader import event_reader, frame_reader
from stackcast.lab.traffic.feed import event_frames
from stackcast.udfs.errors import AttributeTableError, MessageError
from stackcast.udfs.messages.attributes.encodings import ENCODINGS
from stackcast.udfs.messages.attributes.events import REASONS, Widths
from stackcast.udfs.messages.attributes.frames import events_of_frames
from stackcast.udfs.messages.attributes.reference import read_event, write_event
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.readers import AttributeEvents
from stackcast.udfs.network.topology import line
from stackcast.udfs.stacks.dissect import dissect_event

pytestmark = pytest.mark.unit

ALL = [Widths(id, bitmask) for id in (8, 16) for bitmask in (8, 16, 32, 64)]
LONGEST = 1000
widths = st.sampled_from(ALL)


def event_of(data: st.DataObject, of: Widths) -> dict[int, int]:
    ids = st.one_of(st.integers(0, of.bitmask - 1), st.just(of.bitmask - 1))
    return data.draw(st.dictionaries(ids, st.integers(0, (1 << 32) - 1), min_size=1))


def by_hand(event: dict[int, int], encoding: str, of: Widths) -> bytes:
    ids = sorted(event)
    if encoding == "bitmask":
        head = sum(1 << i for i in ids).to_bytes(of.bitmask // 8)
        return head + b"".join(event[i].to_bytes(4) for i in ids)
    following = [*ids[1:], 0]
    head = ids[0].to_bytes(of.id // 8)
    return head + b"".join(
        event[i].to_bytes(4) + after.to_bytes(of.id // 8)
        for i, after in zip(ids, following, strict=True)
    )


def packed(records: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    borders = np.cumsum([0, *map(len, records)], dtype=np.int64)
    return borders, np.frombuffer(b"".join(records), np.uint8)


@examples(100)
@given(st.data(), widths, st.sampled_from(sorted(ENCODINGS)), st.binary(max_size=5))
def test_headers_are_what_they_are_by_hand_and_read_back(data, of, encoding, payload) -> None:
    events = data.draw(st.lists(st.builds(lambda: event_of(data, of)), min_size=1, max_size=4))
    records = [by_hand(event, encoding, of) + payload for event in events]
    assert [write_event(e, encoding, payload, of) for e in events] == records
    codec = ENCODINGS[encoding].of(of)
    borders, content = packed(records)
    read = codec.decode(borders, content, of.ids, LONGEST)
    assert not read.reason.any() and read.values.shape == (of.bitmask, len(events))
    for at, event in enumerate(events):
        assert int(read.mask[at]) == sum(1 << i for i in event)
        assert {i: int(read.values[i, at]) for i in event} == event
    written, out = codec.encode(read, content)
    assert written.tolist() == borders.tolist() and out.tobytes() == b"".join(records)
    assert max(map(len, records)) - len(payload) <= of.longest


@examples(100)
@given(st.data(), widths, st.sampled_from(sorted(ENCODINGS)))
def test_damaged_headers_have_the_reason_that_the_reference_meets_first(data, of, encoding):
    """Cut off, with another byte, or any bytes at all."""
    record = bytearray(by_hand(event_of(data, of), encoding, of))
    if data.draw(st.booleans()):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    record = record[: data.draw(st.integers(0, len(record)))]
    known = data.draw(st.sampled_from([of.ids, of.ids >> 1, 5]))
    read = ENCODINGS[encoding].of(of).decode(*packed([bytes(record)]), known, LONGEST)
    try:
        values, payload = read_event(bytes(record), encoding, known, LONGEST, of)
    except MessageError as error:
        assert REASONS[int(read.reason[0])] == error.what.lower()
        assert not read.values.any() and not read.mask.any()
    else:
        assert not read.reason[0]
        assert {i: int(read.values[i, 0]) for i in values} == values
        assert int(read.payload_end[0] - read.payload_start[0]) == len(payload)


def test_sixteen_attributes_take_bitmasks_of_16_bits_where_ids_have_no_room_for_more() -> None:
    with pytest.raises(AttributeTableError, match="needs an id from 0 to 15"):
        attribute(16, "x", "unsigned", widths=Widths(8, 16))
    full = Registry.from_rows(
        [
            {"id": i, "name": f"a{i}", "type": "unsigned", "scale": 1, "offset": 0}
            for i in range(63)
        ],
        Widths(16, 64),
    )
    assert full.free == [63]
    wider, new = full.with_new({"late": "unsigned", "later": "unsigned"})
    assert [(one.id, one.name) for one in new] == [(63, "late")]
    assert wider.widths == full.widths and wider.known == (1 << 64) - 1


@pytest.mark.parametrize("of", ALL, ids=str)
def test_a_stream_reads_and_writes_them_and_the_proof_reads_what_it_wrote(of) -> None:
    last = of.bitmask - 1
    registry = Registry(
        (attribute(1, "a", "unsigned"), attribute(last, "z", "text", widths=of)), of
    )
    lines = [b'{"a": 7, "z": "ABC"}', b'{"z": "~"}', b'{"a": "x"}', b"{}"]
    raw = [{1: 7, last: int.from_bytes(b"ABC ")}, {last: int.from_bytes(b"~   ")}]
    fields = list(registry.specification().fields.values())
    for encoding in ENCODINGS:
        form = AttributeEvents(registry, "json", encoding, LONGEST)
        read = form.reader(fields, ()).read(Batch.of_arrow(arrow_of(lines)))
        ends = zip(read.messages.start, read.messages.start + read.messages.length, strict=True)
        written = [read.content[start:end].tobytes() for start, end in ends]
        assert written == [by_hand(event, encoding, of) for event in raw]
        assert read.messages.present.T.tolist() == [[True, True], [False, True]]
        codes = [REASONS.get(int(code), "") for code in read.messages.packet_reason]
        assert codes == ["", "", "not_a_number", "empty_event"]
        # What went out comes in again, and goes out in the other encoding.
        again = AttributeEvents(registry, encoding, "id_pairs", LONGEST)
        back = again.reader(fields, ()).read(Batch.of_arrow(arrow_of(written)))
        assert np.array_equal(back.messages.values, read.messages.values)
        plain = event_reader("json", encoding)
        batches = verification.Batch(0, {}, (), registry)
        assert [next(plain(one, batches)).message for one in lines[:2]] == written


@pytest.mark.parametrize("of", ALL, ids=str)
def test_frames_on_a_wire_have_them_too(of) -> None:
    registry = Registry((attribute(0, "a", "unsigned"), attribute(5, "b", "unsigned")), of)
    events = [{0: 1, 5: 2}, {5: 3}, {0: 4}]
    lines = [json.dumps({"ab"[i > 0]: raw for i, raw in e.items()}).encode() for e in events]
    sent = list(event_frames(lines, line(3, 2).host("feed1"), registry))
    borders, content = packed([one.frame for one in sent])
    which, read = events_of_frames(borders, content, of.ids, LONGEST, of)
    assert which.tolist() == [0, 1, 2] and not read.reason.any()
    for at, (one, event) in enumerate(zip(sent, events, strict=True)):
        assert {i: int(read.values[i, at]) for i in event} == event
        assert dissect_event(one.frame, of).values == event
        (found,) = frame_reader()(one.frame, verification.Batch(0, {}, (), registry))
        assert found.event == {"ab"[i > 0]: raw for i, raw in event.items()}
