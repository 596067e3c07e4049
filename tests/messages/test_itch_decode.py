"""Packets to columns: right for every message type, and safe and exact on any bytes at all.

Oracles: ``itchfeed`` (Python) and ``itchcpp`` (C++) for layouts, the plain reader for damage.
"""

from __future__ import annotations

import ast
import io
import os
import random
import subprocess
import sys
from collections.abc import Sequence

import itchcpp.messages
import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from stackcast import schemas
from stackcast.udfs.errors import MessageError, SpecificationError
from stackcast.udfs.messages.moldudp64 import END_OF_SESSION, HEARTBEAT, REASONS, Messages, decode
from stackcast.udfs.messages.reference import (
    build_packet,
    read_binary_file,
    read_message,
    read_packet,
)
from stackcast.udfs.messages.sequence import MAX_MESSAGES
from stackcast.udfs.messages.specification import Field, Header, parse_specification

pytestmark = pytest.mark.unit

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
TYPED = {chr(h.message_type): h for h in ITCH.headers if h.message_type is not None}
COLUMNS = tuple(f for header in TYPED.values() for f in header.fields)
SESSION = b"SESSION001"

# Names of fields in other decoders, if they differ from ours.
THEIR_NAMES = {
    "issue_subtype": "issue_sub_type",
    "luld_reference_price_tier": "luld_ref",
    "level_1": "level1_price",
    "level_2": "level2_price",
    "level_3": "level3_price",
    "ipo_quotation_release_time": "ipo_release_time",
    "ipo_quotation_release_qualifier": "ipo_release_qualifier",
    "auction_collar_extension": "auction_collar_extention",
    "buy_sell": "buy_sell_indicator",
    "original_order_reference_number": "order_reference_number",
    "price_variation_indicator": "variation_indicator",
}


def random_message(header: Header, seed: random.Random) -> bytes:
    """Right type and length; every other byte at random, text in printable ASCII."""
    body = b"".join(
        bytes(seed.randrange(33, 127) for _ in range(f.bits // 8))
        if f.kind == "string"
        else seed.randbytes(f.bits // 8)
        for f in header.fields[1:]
    )
    return bytes([header.message_type or 0]) + body


def columns(records: Sequence[bytes], fields: Sequence[Field] = COLUMNS) -> Messages:
    """Decode records that lie in one Arrow array, as Spark hands them over."""
    _, offsets, data = pa.array(records, pa.binary()).buffers()
    starts = np.frombuffer(offsets, np.int32)[: len(records) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return decode(ITCH, starts, content, fields)


def expected(records: Sequence[bytes]) -> tuple[list[str], list[tuple[object, ...]]]:
    """Reason of each record, and (record, index, message, reason, fields) of each message."""
    reasons, rows = [], []
    for record, payload in enumerate(records):
        try:
            messages = read_packet(payload)[2]
        except MessageError as error:
            reasons.append(error.what.lower())
            assert 0 <= error.offset <= len(payload)
            continue
        empty = {0: "heartbeat", 0xFFFF: "end_of_session"}
        reasons.append(empty.get(int.from_bytes(payload[18:20], "big"), "fine"))
        for index, message in enumerate(messages):
            try:
                rows.append((record, index, message, "fine", read_message(ITCH, message)))
            except MessageError as error:
                rows.append((record, index, message, error.what.lower(), {}))
    return reasons, rows


NAMES = REASONS | {0: "fine", HEARTBEAT: "heartbeat", END_OF_SESSION: "end_of_session"}


def assert_same(records: Sequence[bytes]) -> Messages:
    """The compiled decoder says of these records what the plain reader says."""
    got = columns(records)
    reasons, rows = expected(records)
    assert [NAMES[r] for r in got.packet_reason.tolist()] == reasons
    assert len(got.packet) == len(rows)
    whole = b"".join(records)
    for m, (record, index, message, reason, values) in enumerate(rows):
        start, length = int(got.start[m]), int(got.length[m])
        assert (int(got.packet[m]), int(got.index[m])) == (record, index)
        assert whole[start : start + length] == message
        assert NAMES[int(got.message_reason[m])] == reason
        assert int(got.message_type[m]) == (message[0] if reason == "fine" else 0)
        assert got.values[:, m].tolist() == [values.get(f.qualified, 0) for f in COLUMNS]
    return got


# --- every message type, as others read it -------------------------------------------------------


def test_every_message_type_is_read_as_itchcpp_reads_it():
    seed = random.Random(5)
    sent = [random_message(header, seed) for header in TYPED.values() for _ in range(20)]
    assert_fields_agree(sent, {m: itchcpp.messages.messages[m[:1]](m) for m in sent})


@pytest.mark.integration
def test_every_message_type_is_read_as_itchfeed_reads_it():
    # In a process of its own: beside itchcpp, itchfeed hands everything over to that.
    seed = random.Random(6)
    sent = [random_message(header, seed) for header in TYPED.values() for _ in range(20)]
    program = (
        "import sys, itch, itch.messages as m\n"
        "assert not itch.USING_CPP_BACKEND\n"
        "for line in sys.stdin:\n"
        "    raw = bytes.fromhex(line)\n"
        "    read = m.messages[raw[:1]](raw)\n"
        "    names = vars(read)\n"
        "    print({k: v for k, v in names.items() if isinstance(v, (int, bytes))})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="\n".join(m.hex() for m in sent),
        env=os.environ | {"ITCH_NO_CPP": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    read = [Read(line) for line in done.stdout.splitlines()]
    assert_fields_agree(sent, dict(zip(sent, read, strict=True)))


class Read:
    """Attributes printed by the other process."""

    def __init__(self, printed: str) -> None:
        self.__dict__.update(ast.literal_eval(printed))


def assert_fields_agree(sent: Sequence[bytes], theirs: dict[bytes, object]) -> None:
    got = columns([build_packet(SESSION, 1, sent)])
    row = {f.qualified: n for n, f in enumerate(COLUMNS)}
    assert not got.message_reason.any() and len(got.packet) == len(sent)
    for m, message in enumerate(sent):
        for f in TYPED[chr(message[0])].fields[1:]:
            value = getattr(theirs[message], THEIR_NAMES.get(f.name, f.name))
            raw = int.from_bytes(value, "big") if isinstance(value, bytes) else value
            assert int(got.values[row[f.qualified], m]) == raw, f.qualified


# --- damage --------------------------------------------------------------------------------------


@st.composite
def packets(draw: st.DrawFn) -> bytes:
    """A sound packet, with now and then a message of a wrong length or type."""
    seed = random.Random(draw(st.integers(0, 1 << 30)))
    messages = [
        random_message(TYPED[kind], seed)
        for kind in draw(st.lists(st.sampled_from("".join(TYPED)), max_size=6))
    ]
    strange = draw(st.lists(st.binary(max_size=40), max_size=2))
    return build_packet(SESSION, draw(st.integers(0, (1 << 64) - 1)), messages + strange)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A packet with some bytes changed, cut off, put in or put at its end."""
    packet = bytearray(draw(packets()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(packet)))
        match draw(st.sampled_from(["change", "count", "cut", "insert", "append"])):
            case "change" if at < len(packet):
                packet[at] = draw(st.integers(0, 255))
            case "count":
                packet[18:20] = draw(
                    st.sampled_from([0, 1, 2, 7, 8191, 8192, 65534, 65535])
                ).to_bytes(2)
            case "cut":
                del packet[at:]
            case "insert":
                packet[at:at] = draw(st.binary(max_size=4))
            case _:
                packet += draw(st.binary(max_size=40))
    return bytes(packet)


@examples(150)
@given(st.lists(st.one_of(packets(), damaged(), st.binary(max_size=64)), max_size=6))
def test_any_bytes_are_read_as_the_plain_reader_reads_them(records: list[bytes]):
    assert_same(records)


def test_damage_is_named_and_leaves_the_neighbours_alone():
    seed = random.Random(1)
    add = random_message(TYPED["A"], seed)
    good = build_packet(SESSION, 1, [add, random_message(TYPED["P"], seed)])
    header = SESSION + bytes(8)
    records = {
        b"": "empty_record",
        good[:19]: "truncated_header",
        good[:-1]: "truncated_message",
        good[:21]: "truncated_message",
        good + b"x": "trailing_bytes",
        header + b"\x00\x00x": "trailing_bytes",
        header + b"\xff\xffx": "trailing_bytes",
        header + b"\x20\x00" + bytes(2 * 8192): "too_many_messages",
        seed.randbytes(1 << 20): "record_too_large",
        header + b"\x00\x00": "heartbeat",
        header + b"\xff\xff": "end_of_session",
    }
    mixed = [record for bad in records for record in (good, bad)] + [good]
    got = assert_same(mixed)
    assert [NAMES[r] for r in got.packet_reason[1::2].tolist()] == list(records.values())
    assert not got.packet_reason[::2].any()
    assert got.packet.tolist() == [p for p in range(0, len(mixed), 2) for _ in range(2)]


def test_a_message_that_cannot_be_read_harms_only_itself():
    add = random_message(TYPED["A"], random.Random(2))
    got = assert_same([build_packet(SESSION, 1, [add, b"?" + add, add[:-1], b"", add + b"x", add])])
    assert not got.packet_reason.any()
    assert [NAMES[r] for r in got.message_reason.tolist()] == [
        "fine",
        "unknown_message_type",
        "wrong_message_length",
        "unknown_message_type",
        "wrong_message_length",
        "fine",
    ]
    assert not got.values[:, 1:5].any() and not got.message_type[1:5].any()


def test_the_largest_packet_is_read_whole():
    messages = [b""] * MAX_MESSAGES
    assert len(assert_same([build_packet(SESSION, 1, messages)]).packet) == MAX_MESSAGES
    full = [random_message(TYPED["S"], random.Random(3))] * (65_487 // 14)
    padded = [*full[:-1], bytes(65_487 - 14 * len(full) + 12)]
    packet = build_packet(SESSION, 1, padded)
    assert len(packet) == 65_507
    assert_same([packet, packet + b"x"])


# The same, where every byte outside the records ends the process.
FENCED = """
import ctypes, mmap, sys
import numpy as np
from stackcast import schemas
from stackcast.udfs.messages.moldudp64 import decode
from stackcast.udfs.messages.specification import parse_specification

specification = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
fields = [f for h in specification.headers if h.message_type is not None for f in h.fields]
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
        read = decode(specification, offsets, content, fields)
        print(len(read.packet), *read.packet_reason)
"""


@pytest.mark.integration
def test_no_byte_outside_the_records_is_read():
    seed = random.Random(8)
    batches = []
    for _ in range(150):
        good = build_packet(
            SESSION, 1, [random_message(TYPED[k], seed) for k in seed.sample("".join(TYPED), 3)]
        )
        count = seed.choice([0, 1, 2, 4, 8191, 8192, 0xFFFF]).to_bytes(2)
        size = seed.choice([0, 1, 36, 0xFFFF]).to_bytes(2)
        damaged = [
            good[: seed.randrange(len(good) + 1)],
            good[:18] + count + good[20:],
            good[:20] + size + good[22:],
            seed.randbytes(seed.randrange(65)),
        ]
        batches.append([*damaged, good, seed.choice(damaged)])
    done = subprocess.run(
        [sys.executable, "-c", FENCED],
        input="\n".join(",".join(r.hex() for r in records) for records in batches),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    for records, at_begin, at_end in zip(batches, said[::2], said[1::2], strict=True):
        plain = columns(records)
        assert at_begin == at_end == " ".join(map(str, [len(plain.packet), *plain.packet_reason]))


# --- the shape of the input ----------------------------------------------------------------------


def test_a_slice_of_an_arrow_array_is_read_in_place_and_with_64_bit_offsets_too():
    seed = random.Random(4)
    records = [build_packet(SESSION, n, [random_message(TYPED["A"], seed)]) for n in range(9)]
    for kind, width in ((pa.binary(), np.int32), (pa.large_binary(), np.int64)):
        array = pa.array(records, kind).slice(3, 4)
        _, offsets, data = array.buffers()
        starts = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
        content = np.frombuffer(data, np.uint8)
        got = decode(ITCH, starts, content, [ITCH.field("price")])
        assert got.values.tolist() == [
            [read_message(ITCH, r[22:])["add_order.price"] for r in records[3:7]]
        ]


@pytest.mark.parametrize("offsets", [[], [0]])
def test_no_records_are_no_messages(offsets: list[int]):
    got = decode(ITCH, np.array(offsets, np.int32), np.zeros(0, np.uint8), COLUMNS)
    assert len(got.packet) == len(got.packet_reason) == 0
    assert got.values.shape == (len(COLUMNS), 0)


def test_records_can_be_read_without_any_column():
    got = columns([build_packet(SESSION, 1, [random_message(TYPED["D"], random.Random(0))])], ())
    assert got.values.shape == (0, 1) and got.message_type.tolist() == [ord("D")]


@pytest.mark.parametrize("offsets", [[0, 11], [-1, 4], [4, 2], [0, 8, 4, 10]])
def test_offsets_outside_the_bytes_are_refused(offsets: list[int]):
    with pytest.raises(MessageError, match="BAD_OFFSETS"):
        decode(ITCH, np.array(offsets, np.int32), np.zeros(10, np.uint8), COLUMNS)


def test_a_field_that_has_no_column_is_refused():
    text = 'header_type t { fields { k: 8; a: 4; b: 4; c: 80; } } @message_type("T") header t h;'
    specification = parse_specification(text, "odd")
    for name, what in (("a", "FIELD_NOT_ALIGNED"), ("c", "FIELD_TOO_WIDE")):
        with pytest.raises(SpecificationError, match=what):
            field = specification.field(name)
            decode(specification, np.zeros(1, np.int32), np.zeros(0, np.uint8), [field])


# --- the plain reader's own promises -------------------------------------------------------------


@examples(60)
@given(
    st.binary(min_size=10, max_size=10),
    st.integers(0, (1 << 64) - 1),
    st.lists(st.binary(max_size=60), max_size=20),
)
def test_what_is_built_is_read_back(session: bytes, sequence: int, messages: list[bytes]):
    assert read_packet(build_packet(session, sequence, messages)) == (session, sequence, messages)


@pytest.mark.parametrize(
    ("session", "sequence", "messages", "what"),
    [
        (b"short", 1, [], "BAD_SESSION"),
        (SESSION, 1 << 64, [], "BAD_SEQUENCE"),
        (SESSION, -1, [], "BAD_SEQUENCE"),
        (SESSION, 1, [b""] * (MAX_MESSAGES + 1), "TOO_MANY_MESSAGES"),
        (SESSION, 1, [bytes(65_486)], "RECORD_TOO_LARGE"),
    ],
)
def test_a_packet_that_nobody_could_read_is_not_built(
    session: bytes, sequence: int, messages: list[bytes], what: str
):
    with pytest.raises(MessageError, match=what):
        build_packet(session, sequence, messages)


def test_a_binary_file_is_read_to_its_last_byte():
    assert list(read_binary_file(io.BytesIO(b"\0\1a\0\2bc"))) == [b"a", b"bc"]
    assert list(read_binary_file(io.BytesIO(b""))) == []
    sessions = b"\0\0\0\1a\0\0\0\1b\0\0"
    assert list(read_binary_file(io.BytesIO(sessions))) == [b"a", b"b"]
    records = list(read_binary_file(io.BytesIO(sessions), with_ends=True))
    assert records == [b"", b"a", b"", b"b", b""]


def slowly_read(content: bytes) -> tuple[list[bytes], int | None]:
    """Read a BinaryFILE a byte at a time.

    Returns:
        All records, and the offset of the one that is cut off, or None.
    """
    records, record, left, offset, head = [], bytearray(), 0, 0, bytearray()
    for at, byte in enumerate(content):
        if left:
            record.append(byte)
            left -= 1
        else:
            if not head:
                offset = at
            head.append(byte)
            if len(head) < 2:
                continue
            left = 256 * head[0] + head[1]
        if not left:
            records.append(bytes(record))
            record.clear()
            head.clear()
    return records, offset if head else None


@given(st.lists(st.binary(max_size=5)), st.binary(max_size=300), st.integers(0, 40))
def test_every_byte_of_a_binary_file_is_a_record_or_reported(records, junk, cut):
    content = b"".join(len(record).to_bytes(2) + record for record in records) + junk
    content = content[: max(len(content) - cut, 0)]
    expected, fault = slowly_read(content)
    found = []
    try:
        for record in read_binary_file(io.BytesIO(content), with_ends=True):
            found.append(record)
        assert fault is None
    except MessageError as error:
        assert error.what == "TRUNCATED_FILE"
        assert error.fields["offset"] == fault
    assert found == expected
    assert sum(2 + len(record) for record in found) == (len(content) if fault is None else fault)
