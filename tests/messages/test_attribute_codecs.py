"""Attribute/value headers to columns and back: exact for every event, safe on any bytes at all.

Oracles: scapy layers made from the text, the plain reader for damage.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from attribute_records import chain
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT
from scapy_layers import EVENT_LAYERS

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.attributes.encodings import ENCODINGS
from stackcast.udfs.messages.attributes.events import REASONS, Events
from stackcast.udfs.messages.attributes.reference import read_event, write_event

pytestmark = pytest.mark.unit

ALL = 0xFFFFFFFF
LONGEST = 1000
NOTHING = np.zeros(0, np.uint8)

Values = dict[int, int]
Made = tuple[Values, bytes]

NUMBERS = st.integers(0, ALL)
VALUES = st.dictionaries(st.integers(0, 31), NUMBERS, min_size=1)
EVENTS = st.lists(st.tuples(VALUES, st.binary(max_size=40)), max_size=8)
BOTH = pytest.mark.parametrize("encoding", ENCODINGS)


def columns(
    records: Sequence[bytes], encoding: str, known: int = ALL, longest: int = LONGEST
) -> tuple[Events, np.ndarray]:
    """(events, the bytes they were read from) of records in one Arrow array, as Spark has them."""
    _, offsets, data = pa.array(records, pa.binary()).buffers()
    starts = np.frombuffer(offsets, np.int32)[: len(records) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else NOTHING
    return ENCODINGS[encoding].decode(starts, content, known, longest), content


def told(events: Events, content: np.ndarray) -> list[str | Made]:
    """Each event as (values, payload), or its reason."""
    said: list[str | Made] = []
    for event, reason in enumerate(events.reason.tolist()):
        there = [i for i in range(32) if int(events.mask[event]) >> i & 1]
        assert not np.delete(events.values[:, event], there).any()
        values = {i: int(events.values[i, event]) for i in there}
        payload = content[events.payload_start[event] : events.payload_end[event]].tobytes()
        assert bool(reason) != bool(values) and not (reason and payload)
        said.append(REASONS[reason] if reason else (values, payload))
    return said


def plainly(record: bytes, encoding: str, known: int = ALL, longest: int = LONGEST) -> str | Made:
    """What the plain reader says of one record, in the form of `told`."""
    try:
        return read_event(record, encoding, known, longest)
    except MessageError as error:
        return error.what.lower()


def table(made: Sequence[Made]) -> tuple[Events, np.ndarray]:
    """Events as columns, and their payloads one after another."""
    count = len(made)
    mask = np.array([sum(1 << i for i in values) for values, _ in made], np.uint64)
    raw = np.zeros((32, count), np.uint32)
    for event, (values, _) in enumerate(made):
        for number, value in values.items():
            raw[number, event] = value
    ends = np.cumsum([0, *(len(payload) for _, payload in made)], dtype=np.int64)
    payloads = np.frombuffer(b"".join(payload for _, payload in made), np.uint8)
    return Events(mask, raw, np.zeros(count, np.uint8), ends[:-1], ends[1:]), payloads


def records_of(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


# --- both ways -----------------------------------------------------------------------------------


@BOTH
@given(made=EVENTS)
def test_what_is_written_is_read_back_and_written_again_the_same(encoding: str, made: list[Made]):
    events, payloads = table(made)
    offsets, data = ENCODINGS[encoding].encode(events, payloads)
    assert (offsets.dtype, data.dtype) == (np.int64, np.uint8)
    assert records_of(offsets, data) == [write_event(v, encoding, p) for v, p in made]
    read = ENCODINGS[encoding].decode(offsets, data, ALL, LONGEST)
    assert told(read, data) == made
    again = ENCODINGS[encoding].encode(read, data)
    assert records_of(*again) == records_of(offsets, data)


@BOTH
@given(made=EVENTS)
def test_scapy_takes_apart_what_we_build_and_we_read_what_it_builds(
    encoding: str, made: list[Made]
):
    offsets, data = ENCODINGS[encoding].encode(*table(made))
    for record, (values, payload) in zip(records_of(offsets, data), made, strict=True):
        packet = EVENT_LAYERS[encoding](record)
        assert packet.by_id == values
        assert bytes(packet.payload) == payload
    theirs = [bytes(EVENT_LAYERS[encoding].of(values) / payload) for values, payload in made]
    assert told(*columns(theirs, encoding)) == made


@BOTH
@given(values=VALUES, payload=st.binary(max_size=40))
def test_the_plain_writer_and_reader_agree_with_scapy(
    encoding: str, values: Values, payload: bytes
):
    record = write_event(values, encoding, payload)
    assert record == bytes(EVENT_LAYERS[encoding].of(values) / payload)
    assert read_event(record, encoding, ALL, LONGEST) == (values, payload)


@given(EVENTS)
def test_an_event_read_in_one_encoding_is_written_in_the_other(made: list[Made]):
    pairs = [write_event(values, "id_pairs", payload) for values, payload in made]
    masks = [write_event(values, "bitmask", payload) for values, payload in made]
    assert records_of(*ENCODINGS["bitmask"].encode(*columns(pairs, "id_pairs"))) == masks
    assert records_of(*ENCODINGS["id_pairs"].encode(*columns(masks, "bitmask"))) == pairs


# Attributes 0, 2 and 6: a timestamp of 1 s, then 0x11223344 and the largest of all.
FIGURES: dict[str, str] = {
    "id_pairs": "00 00000001 02 11223344 06 ffffffff 00",
    "bitmask": "00000045 00000001 11223344 ffffffff",
}


@BOTH
def test_the_figures_of_the_text_come_out_byte_by_byte(encoding: str):
    values = {0: 1, 2: 0x11223344, 6: ALL}
    record = bytes.fromhex(FIGURES[encoding]) + b"payload"
    assert write_event(values, encoding, b"payload") == record
    assert told(*columns([record], encoding)) == [(values, b"payload")]
    assert records_of(*ENCODINGS[encoding].encode(*table([(values, b"payload")]))) == [record]


@BOTH
@pytest.mark.parametrize("number", range(32))
def test_every_attribute_can_be_the_only_one(encoding: str, number: int):
    for value in (0, 1, 1 << 31, ALL):
        record = write_event({number: value}, encoding)
        assert told(*columns([record], encoding, 1 << number)) == [({number: value}, b"")]


@BOTH
def test_all_32_attributes_fit_one_event(encoding: str):
    values = {number: number * 0x01010101 for number in range(32)}
    record = write_event(values, encoding)
    assert told(*columns([record], encoding)) == [(values, b"")]
    assert records_of(*ENCODINGS[encoding].encode(*table([(values, b"")]))) == [record]


def test_a_zero_after_a_value_always_ends_the_chain_so_attribute_0_is_first_or_not_there():
    record = chain([(5, 7)]) + b"\0\0\0\x09\0"
    assert told(*columns([record], "id_pairs")) == [({5: 7}, b"\0\0\0\x09\0")]


@given(EVENTS, st.randoms(use_true_random=False))
def test_pairs_may_come_in_any_order_with_attribute_0_first_or_never(
    made: list[Made], rng: random.Random
):
    records = []
    for values, payload in made:
        pairs = sorted(values.items(), key=lambda pair: (pair[0] > 0, rng.random()))
        records.append(chain(pairs, payload))
    assert told(*columns(records, "id_pairs")) == made
    assert [plainly(record, "id_pairs") for record in records] == made


# --- the shape of the input ----------------------------------------------------------------------


@BOTH
def test_no_records_are_no_events(encoding: str):
    for offsets in (np.zeros(0, np.int32), np.zeros(1, np.int64)):
        events = ENCODINGS[encoding].decode(offsets, NOTHING, ALL, LONGEST)
        assert len(events) == 0 and events.values.shape == (32, 0)
        borders, data = ENCODINGS[encoding].encode(events, NOTHING)
        assert borders.tolist() == [0] and data.size == 0


@BOTH
def test_a_slice_of_an_arrow_array_is_read_in_place_and_with_64_bit_offsets_too(encoding: str):
    made = [({number: number, number + 9: 1 << number}, b"x" * number) for number in range(9)]
    records = [write_event(values, encoding, payload) for values, payload in made]
    for kind, width in ((pa.binary(), np.int32), (pa.large_binary(), np.int64)):
        array = pa.array(records, kind).slice(3, 4)
        _, offsets, data = array.buffers()
        starts = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
        content = np.frombuffer(data, np.uint8)
        assert starts[0] > 0
        events = ENCODINGS[encoding].decode(starts, content, ALL, LONGEST)
        assert told(events, content) == made[3:7]
        assert records_of(*ENCODINGS[encoding].encode(events, content)) == records[3:7]


@BOTH
@pytest.mark.parametrize("offsets", [[0, 9], [-1, 2], [0, 4, 2], [5, 4], [0, 1 << 40]], ids=str)
def test_offsets_that_leave_the_bytes_or_fall_are_refused(encoding: str, offsets: list[int]):
    with pytest.raises(MessageError) as caught:
        ENCODINGS[encoding].decode(np.array(offsets), np.zeros(8, np.uint8), ALL, LONGEST)
    assert caught.value.what == "BAD_OFFSETS"
    with pytest.raises(MessageError) as caught:
        starts, ends = np.array(offsets[:-1]), np.array(offsets[1:])
        ENCODINGS[encoding].decode_between(starts, ends, np.zeros(3, np.uint8), ALL, LONGEST)
    assert caught.value.what == "BAD_OFFSETS"


@BOTH
@pytest.mark.parametrize(("start", "end"), [(-1, 2), (3, 2), (0, 9), (9, 9)])
def test_a_payload_that_is_not_in_the_bytes_is_refused(encoding: str, start: int, end: int):
    good, _ = table([({1: 1}, b""), ({2: 2}, b"")])
    begin, stop = np.array([0, start]), np.array([8, end])
    events = Events(good.mask, good.values, good.reason, begin, stop)
    with pytest.raises(MessageError, match="event 1") as caught:
        ENCODINGS[encoding].encode(events, np.zeros(8, np.uint8))
    assert caught.value.what == "BAD_OFFSETS"


# --- damage --------------------------------------------------------------------------------------

# (encoding, record, reason) where attributes 0 to 9 are known and a record has 99 bytes at most.
KNOWN = 0x3FF
MOST = 99
FAULTS = [
    ("id_pairs", b"", "empty_event"),
    ("id_pairs", b"\0", "truncated_event"),
    ("id_pairs", b"\x01", "truncated_event"),
    ("id_pairs", chain([(1, 5), (2, 6)])[:-1], "truncated_event"),
    ("id_pairs", chain([(1, 5), (2, 6)])[:8], "truncated_event"),
    ("id_pairs", chain([(3, 5), (7, 6), (3, 5)]), "id_twice"),
    ("id_pairs", chain([(3, 5), (3, 5)])[:6], "id_twice"),
    ("id_pairs", chain([(7, 5), (3, 6), (7, 5)]), "id_twice"),
    ("id_pairs", chain([(10, 5)]), "unknown_attribute"),
    ("id_pairs", chain([(1, 5), (31, 5)]), "unknown_attribute"),
    ("id_pairs", chain([(1, 5), (32, 5)]), "unknown_attribute"),
    ("id_pairs", b"\xff", "unknown_attribute"),
    ("id_pairs", chain([(1, 5)], bytes(MOST - 5)), "event_too_large"),
    ("bitmask", b"", "empty_event"),
    ("bitmask", bytes(4), "empty_event"),
    ("bitmask", bytes(20), "empty_event"),
    ("bitmask", b"\0\0\0", "truncated_event"),
    ("bitmask", write_event({2: 2, 5: 5}, "bitmask")[:-1], "truncated_event"),
    ("bitmask", write_event({2: 2, 5: 5}, "bitmask")[:4], "truncated_event"),
    ("bitmask", write_event({2: 2, 10: 5}, "bitmask"), "unknown_attribute"),
    ("bitmask", b"\xff\xff\xff\xff", "unknown_attribute"),
    ("bitmask", write_event({2: 2}, "bitmask", bytes(MOST - 7)), "event_too_large"),
    ("bitmask", bytes(10_000_000), "event_too_large"),
]


@pytest.mark.parametrize(
    ("encoding", "record", "reason"), FAULTS, ids=lambda v: v if isinstance(v, str) else len(v)
)
def test_a_fault_has_its_reason_and_leaves_its_neighbours_alone(
    encoding: str, record: bytes, reason: str
):
    before: Made = ({0: 1, 3: 2}, b"before")
    after: Made = ({4: 3, 9: ALL}, b"after")
    good = [write_event(values, encoding, payload) for values, payload in (before, after)]
    events, content = columns([good[0], record, good[1]], encoding, KNOWN, MOST)
    assert told(events, content) == [before, reason, after]
    assert plainly(record, encoding, KNOWN, MOST) == reason
    # Nor does it take a byte when the events are written.
    assert records_of(*ENCODINGS[encoding].encode(events, content)) == [good[0], b"", good[1]]


@BOTH
def test_an_event_cut_off_anywhere_is_not_read_on_in_the_bytes_after_it(encoding: str):
    record = write_event({0: 1, 1: ALL, 4: 3, 31: 1 << 31}, encoding)
    for cut in range(1, len(record)):
        both = columns([record[:cut], record[cut:]], encoding)
        assert told(*both)[0] == "truncated_event"
        assert records_of(*ENCODINGS[encoding].encode(*both))[0] == b""


@BOTH
def test_the_longest_record_that_is_allowed_is_read(encoding: str):
    record = write_event({1: 1}, encoding, bytes(50))
    assert told(*columns([record], encoding, ALL, len(record))) == [({1: 1}, bytes(50))]
    assert told(*columns([record], encoding, ALL, len(record) - 1)) == ["event_too_large"]


@st.composite
def damaged(draw: st.DrawFn, encoding: str) -> bytes:
    """A record near to a good one: bytes changed, put in or cut off, ids in any order."""
    ids = st.integers(0, 40)
    if encoding == "id_pairs" and draw(st.booleans()):
        record = chain(draw(st.lists(st.tuples(ids, NUMBERS), min_size=1, max_size=6)))
    else:
        record = write_event(draw(VALUES), encoding, draw(st.binary(max_size=5)))
    content = bytearray(record)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        byte = draw(st.one_of(st.integers(0, 40), st.integers(0, 255)))
        content[at : at + draw(st.integers(0, 1))] = bytes([byte])
    return bytes(content[: draw(st.one_of(st.none(), st.integers(0, len(content))))])


@BOTH
@examples(300)
@given(
    data=st.data(),
    known=st.one_of(st.just(ALL), st.just(ALL), NUMBERS),
    longest=st.one_of(st.just(LONGEST), st.integers(0, 60)),
)
def test_of_any_bytes_the_kernels_say_what_the_plain_reader_says(
    encoding: str, data: st.DataObject, known: int, longest: int
):
    any_bytes = st.one_of(damaged(encoding), damaged(encoding), st.binary(max_size=50))
    records = data.draw(st.lists(any_bytes, max_size=8))
    events, content = columns(records, encoding, known, longest)
    said = told(events, content)
    assert said == [plainly(record, encoding, known, longest) for record in records]
    # Id pairs may have come in any order; they are written by ascending id.
    kept = [
        b"" if isinstance(each, str) else write_event(each[0], encoding, each[1]) for each in said
    ]
    assert records_of(*ENCODINGS[encoding].encode(events, content)) == kept


# The same, where every byte outside the records ends the process.
FENCED = """
import ctypes, mmap, sys
import numpy as np
from stackcast.udfs.messages.attributes.encodings import ENCODINGS

page, pages = mmap.PAGESIZE, 4
memory = mmap.mmap(-1, (pages + 2) * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
for fence in (0, pages + 1):  # 0: no access
    assert libc.mprotect(address + fence * page, page, 0) == 0
inside = np.frombuffer(memory, np.uint8)[page : (pages + 1) * page]
for line in sys.stdin:
    records = [bytes.fromhex(word) for word in line.strip().split(",")]
    offsets = np.cumsum([0] + [len(r) for r in records]).astype(np.int32)
    size = int(offsets[-1])
    for content in (inside[:size], inside[inside.size - size :]):
        content[:] = np.frombuffer(b"".join(records), np.uint8)
        for encoding in ENCODINGS.values():
            events = encoding.decode(offsets, content, 0xFFFFFFFF, 1000)
            written, _ = encoding.encode(events, content)
            print(written[-1], *events.reason)
"""


@pytest.mark.integration
def test_no_byte_outside_the_records_is_read():
    seed = random.Random(9)
    batches = []
    for _ in range(150):
        values = {seed.randrange(32): seed.getrandbits(32) for _ in range(5)}
        good = [write_event(values, encoding, seed.randbytes(3)) for encoding in ENCODINGS]
        cut = [record[: seed.randrange(1, len(record))] for record in good]
        batches.append(seed.sample([*good, *cut, seed.randbytes(seed.randrange(9))], 4))
    done = subprocess.run(
        [sys.executable, "-c", FENCED],
        input="\n".join(",".join(r.hex() for r in records) for records in batches),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = []
    for records in batches:
        lines = []
        for name in ENCODINGS:
            events, content = columns(records, name)
            offsets, _ = ENCODINGS[name].encode(events, content)
            lines.append(" ".join(map(str, [offsets[-1], *events.reason])))
        expected += lines * 2
    assert done.stdout.splitlines() == expected


# --- what the plain writer refuses ---------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({}, "EMPTY_EVENT"),
        ({32: 1}, "UNKNOWN_ATTRIBUTE"),
        ({-1: 1}, "UNKNOWN_ATTRIBUTE"),
        ({1: 1 << 32}, "VALUE_OUT_OF_RANGE"),
        ({1: -1}, "VALUE_OUT_OF_RANGE"),
    ],
)
def test_what_has_no_header_is_not_written(encoding: str, values: Mapping[int, int], what: str):
    with pytest.raises(MessageError) as caught:
        write_event(values, encoding)
    assert caught.value.what == what
