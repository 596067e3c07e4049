"""Record batches as a broker sends them, read as kafka-python reads and writes them."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import calc_crc32c

from stackcast.udfs.errors import KafkaError
from stackcast.udfs.messages import record_kernels
from stackcast.udfs.messages.record_batches import (
    LATEST_MS,
    Aborted,
    Records,
    next_offset,
    read_records,
)

pytestmark = pytest.mark.unit

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]
END = 1 << 60


def batch(base: int, records: Sequence[Record], producer: int = -1, control: bool = False) -> bytes:
    """One batch, records (time, key, value, headers), as kafka-python's producer writes it."""
    transactional = producer >= 0
    builder = DefaultRecordBatchBuilder(2, 0, transactional, producer, 0, 0, 1 << 24)
    for number, (time, key, value, headers) in enumerate(records):
        builder.append(number, time, key, value, headers)
    made = bytearray(builder.build())
    if control:
        made[22] |= 0x20
    return stamped(made, base)


def stamped(made: bytearray, base: int) -> bytes:
    """The batch at an offset, with the checksum of its bytes; the broker gives the offset."""
    made[:8] = base.to_bytes(8)
    made[17:21] = calc_crc32c(bytes(made[21:])).to_bytes(4)
    return bytes(made)


def compressed(made: bytes, codec: int) -> bytes:
    """The same batch compressed by another library than ours, or in Java's blocks of snappy."""
    body = made[61:]
    if codec == 1:
        body = gzip.compress(body)
    elif codec == 2:
        half = len(body) // 2
        parts = [pa.compress(part, "snappy", asbytes=True) for part in (body[:half], body[half:])]
        blocks = b"".join(len(part).to_bytes(4) + part for part in parts)
        body = b"\x82SNAPPY\x00" + (1).to_bytes(4) * 2 + blocks
    else:
        body = pa.compress(body, {3: "lz4", 4: "zstd"}[codec], asbytes=True)
    whole = bytearray(made[:61] + body)
    whole[8:12] = (len(whole) - 12).to_bytes(4)
    whole[22] |= codec
    return stamped(whole, int.from_bytes(made[:8]))


def read(data: bytes, first: int = 0, until: int = END, aborted: Sequence[Aborted] = ()) -> list:
    """(offset, time, value) of each record, and the offset to fetch next."""
    piece = np.frombuffer(data, np.uint8)
    found = read_records(piece, first, until, aborted)
    assert next_offset(piece, first, until) == found.next
    values = [
        found.content[a:b].tobytes()
        for a, b in zip(found.borders[:-1].tolist(), found.borders[1:].tolist(), strict=True)
    ]
    return [*zip(found.offset.tolist(), found.time.tolist(), values, strict=True), found.next]


def oracle(data: bytes, first: int, until: int) -> list:
    """The same by kafka-python."""
    found, end = [], first
    for held in iter(MemoryRecords(data).next_batch, None):
        if held.base_offset >= until:
            break
        for record in held:
            end = record.offset + 1
            if first <= record.offset < until:
                found.append((record.offset, record.timestamp, record.value or b""))
    return [*found, end]


RECORD = st.tuples(
    st.integers(0, 1 << 45),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=80)), max_size=2),
)


@given(
    batches=st.lists(
        st.tuples(st.integers(0, 100), st.lists(RECORD, min_size=1, max_size=20), st.booleans()),
        max_size=5,
    ),
    first=st.integers(0, 150),
    span=st.integers(0, 200),
    codec=st.integers(1, 4),
)
def test_any_batches_are_read_as_the_other_client_reads_them(
    batches: list[tuple[int, list[Record], bool]], first: int, span: int, codec: int
) -> None:
    data, plain, base = b"", b"", 0
    for gap, records, compress in batches:
        made = batch(base + gap, records)
        plain += made
        data += compressed(made, codec) if compress else made
        base += gap + len(records)
    expected = oracle(plain, first, first + span)
    assert read(data, first, first + span) == expected


#: Few names, so that some are there twice.
HEADERS = st.lists(
    st.tuples(st.sampled_from(["from", "frop", "fro", "", "größe"]), st.binary(max_size=70)),
    max_size=4,
)


@given(
    told=st.lists(st.tuples(st.none() | st.binary(max_size=9), HEADERS), min_size=1, max_size=30),
    name=st.sampled_from(["from", "größe"]),
    first=st.integers(0, 9),
    codec=st.integers(0, 4),
)
def test_the_last_header_of_a_name_is_read_as_the_other_client_reads_it(
    told: list[tuple[bytes | None, list[tuple[str, bytes]]]], name: str, first: int, codec: int
) -> None:
    made = batch(0, [(5, None, value, headers) for value, headers in told])
    piece = np.frombuffer(compressed(made, codec) if codec else made, np.uint8)
    found = read_records(piece, first, END, header=name)
    assert found.publisher is not None
    held = MemoryRecords(made).next_batch()
    assert held is not None
    headers = [dict(record.headers) for record in held if record.offset >= first]
    assert found.publisher.to_pylist() == [each.get(name) for each in headers]
    assert read_records(piece, first, END).publisher is None
    # As batches of columns, in pieces, too.
    parts = [part.publisher for part in found.batches(3) if part.publisher is not None]
    assert [one for part in parts for one in part.to_pylist()] == found.publisher.to_pylist()


def test_a_header_of_null_says_nothing_though_one_before_it_does() -> None:
    made = bytearray(batch(0, [(5, None, b"v", [("from", b"a"), ("from", b"")])]))
    assert made[-1] == 0
    # The length of the last value, 0, becomes that of null.
    made[-1] = 1
    found = read_records(np.frombuffer(stamped(made, 0), np.uint8), 0, END, header="from")
    assert found.publisher is not None and found.publisher.to_pylist() == [None]


@given(noise=st.binary(max_size=60), count=st.integers(-2, 100))
def test_headers_of_noise_are_damaged_or_read_and_never_more(noise: bytes, count: int) -> None:
    plain = batch(0, [(5, None, b"v", [])])
    # A record: length, attributes, two numbers, no key, a value, and then how many headers.
    record = bytearray(plain[62:-1]) + varint(count) + noise
    made = bytearray(plain[:61] + varint(len(record)) + record)
    made[8:12] = (len(made) - 12).to_bytes(4)
    piece = np.frombuffer(stamped(made, 0), np.uint8)
    try:
        found = read_records(piece, 0, END, header="from")
    except KafkaError as error:
        assert error.code == "KAFKA.RECORDS_DAMAGED"
    else:
        assert found.publisher is not None and len(found.publisher) == 1
        assert len(found.publisher[0].as_py() or b"") <= len(noise)


def varint(number: int) -> bytes:
    """A small zigzag number."""
    value = number << 1 if number >= 0 else -2 * number - 1
    return bytes([value & 0x7F | 0x80, value >> 7])


RECORDS: list[Record] = [(1_000 + k, b"k", b"value %d" % k, []) for k in range(5)]


def test_a_batch_that_is_cut_off_waits_for_the_next_fetch() -> None:
    whole = batch(10, RECORDS)
    for cut in (1, 60, 61, len(whole) - 1):
        assert read(whole + batch(15, RECORDS)[:cut], 12) == oracle(whole, 12, END)


def test_times_of_the_log_are_those_of_the_batch() -> None:
    made = bytearray(batch(0, RECORDS))
    made[22] |= 8
    made[35:43] = (77_777).to_bytes(8)
    assert {time for _, time, _ in read(stamped(made, 0))[:-1]} == {77_777}


def test_marks_of_transactions_are_nobodys_records_and_move_the_offset() -> None:
    abort = [(1_000, b"\0\0\0\0", b"\0" * 6, [])]
    data = batch(0, RECORDS, producer=7) + batch(5, abort, producer=7, control=True)
    assert read(data) == [*oracle(batch(0, RECORDS), 0, END)[:-1], 6]


def test_records_of_an_aborted_transaction_are_left_out_and_no_others() -> None:
    abort = [(1_000, b"\0\0\0\0", b"\0" * 6, [])]
    commit = [(1_000, b"\0\0\0\1", b"\0" * 6, [])]
    data = (
        batch(0, RECORDS, producer=7)
        + batch(5, RECORDS, producer=8)
        + batch(10, RECORDS)
        + batch(15, abort, producer=7, control=True)
        + batch(16, RECORDS, producer=7)
        + batch(21, commit, producer=7, control=True)
        + batch(22, commit, producer=8, control=True)
    )
    found = read(data, aborted=[Aborted(7, 0)])
    assert [offset for offset, _, _ in found[:-1]] == [*range(5, 15), *range(16, 21)]
    assert found[-1] == 23


@given(data=st.data())
def test_no_damage_passes_the_checksum(data: st.DataObject) -> None:
    made = bytearray(batch(0, RECORDS))
    at = data.draw(st.integers(17, len(made) - 1))
    made[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(KafkaError, match=r"KAFKA.RECORDS_DAMAGED: .* at offset 0"):
        read(bytes(made))


@given(noise=st.binary(min_size=0, max_size=120), count=st.integers(-2, 100))
def test_noise_with_a_right_checksum_is_damaged_or_read_and_never_more(
    noise: bytes, count: int
) -> None:
    head = bytearray(batch(3, RECORDS)[:61])
    head[8:12] = (61 - 12 + len(noise)).to_bytes(4)
    head[57:61] = count.to_bytes(4, signed=True)
    made = stamped(bytearray(head + noise), 3)
    try:
        found = read(made)
    except KafkaError as error:
        assert error.code == "KAFKA.RECORDS_DAMAGED"
    else:
        assert len(found) == count + 1


def test_old_formats_are_refused_by_name() -> None:
    made = bytearray(batch(0, RECORDS))
    made[16] = 1
    with pytest.raises(KafkaError, match=r"KAFKA.OLD_RECORD_FORMAT: .* message format 1"):
        read(bytes(made))


@given(st.binary(max_size=300), st.integers(1, 30), st.integers(0, 20))
def test_checksums_are_those_of_the_other_client(part: bytes, times: int, begin: int) -> None:
    content = part * times
    data = np.frombuffer(content, np.uint8)
    begin = min(begin, len(content))
    expected = calc_crc32c(content[begin:])
    assert record_kernels.crc32c(data, begin, len(content)) == expected
    start = np.uint32(0xFFFFFFFF)
    assert record_kernels._by_table(data, begin, len(content), start) ^ 0xFFFFFFFF == expected


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=20))
def test_any_time_of_a_record_keeps_its_order_and_differences_fit(times: list[int]) -> None:
    count = len(times)
    columns = np.arange(count), np.array(times), np.zeros(count + 1, np.int64)
    (batch_,) = Records(*columns, np.zeros(0, np.uint8), count).batches(0)
    found = batch_.time.tolist()
    for time, microseconds in zip(times, found, strict=True):
        assert microseconds == max(-LATEST_MS, min(LATEST_MS, time)) * 1000
    assert max(found) - min(found) < 1 << 63
