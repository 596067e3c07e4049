"""Kafka's record batches, as a broker sends them, to columns: offsets, times and values.

Format 2 (KIP-98), which all topics have that were written since Kafka 0.11. Compressed batches are
decompressed by pyarrow, one call a batch; all else is one compiled pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stackcast.udfs.errors import KafkaError
from stackcast.udfs.messages import record_kernels as kernels
from stackcast.udfs.messages.buffers import Batch, read_only

_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_CODEC, _TRANSACTIONAL, _CONTROL = 0x07, 0x10, 0x20
_XERIAL = b"\x82SNAPPY\x00"
"""Java's snappy writes blocks after this, and two numbers."""
_XERIAL_HEADER = 16
_ABORT = 0
_ROWS = 4096
"""Most records of one batch: more do not stay in a core's caches."""
_LEAST = 7
"""Bytes of the shortest record."""
#: A record's time beyond this many milliseconds from 1970 counts as this one: the year 148,108.
LATEST_MS = ((1 << 62) - 1) // 1000


class Aborted(NamedTuple):
    """An aborted transaction of a producer, and the first offset of it."""

    producer: int
    first: int


class Records(NamedTuple):
    """Holds n records in the order of their offsets.

    offset: int64[n]. time: int64[n], milliseconds since 1970. borders: int64[n + 1], of the values
    in content: uint8[bytes]; a null is an empty value. next: the offset to fetch next, which is
    further than that of the last record where transactions or compaction left gaps, or where a
    batch goes on after the records that were asked for. publisher: large_binary[n], what a header
    says, null without it; None where none was asked for.
    """

    offset: NDArray[np.int64]
    time: NDArray[np.int64]
    borders: NDArray[np.int64]
    content: NDArray[np.uint8]
    next: int
    publisher: pa.Array | None = None

    def batches(self, partition: int) -> Iterator[Batch]:
        """Yields the records by `_ROWS`, as those of a partition; values are not copied."""
        count = self.offset.size
        # Some producers write nanoseconds. Differences of clamped times still fit 64 bits.
        time = np.clip(self.time, -LATEST_MS, LATEST_MS) * 1000
        columns = np.full(count, partition, np.int32), self.offset, self.borders, time
        places, offset, borders, time = (read_only(each, each.dtype.type) for each in columns)
        content = read_only(self.content, np.uint8)
        for first in range(0, count, _ROWS):
            end = first + _ROWS
            part, ends = slice(first, end), slice(first, end + 1)
            told = None if self.publisher is None else self.publisher[part]
            yield Batch(places[part], offset[part], borders[ends], content, time[part], told)


def read_records(
    data: NDArray[np.uint8],
    first: int,
    until: int,
    aborted: Sequence[Aborted] = (),
    header: str = "",
) -> Records:
    """Returns the records of whole batches whose offsets are ``first`` up to ``until``.

    data: uint8[n], contiguous, as a broker fetched it; it may begin before ``first`` and end in the
    middle of a batch; what begins at ``until`` or later is not looked at. aborted: transactions
    whose records are left out. header: the name of that which tells a record's publisher, if one
    does; of several the last counts. Raises KafkaError RECORDS_DAMAGED where a checksum is wrong or
    a batch cannot be read, OLD_RECORD_FORMAT for a format before 2.
    """
    table, fault, at = kernels.scan(data, until)
    if fault == kernels.OLD:
        raise KafkaError(
            "OLD_RECORD_FORMAT",
            f"records after offset {_end(table, first) - 1} use message format "
            f"{int(data[at + 16])} from before Kafka 0.11, which the direct fetcher cannot read: "
            "set spark.stackcast.fetch to connector",
        )
    if fault == kernels.DAMAGED:
        raise _damaged(_end(table, first))
    end = _end(table, first)
    flags = table[:, kernels.FLAGS]
    wanted = (flags & _CONTROL == 0) & (table[:, kernels.LAST] >= first)
    if aborted:
        wanted &= _committed(data, table, aborted)
    table = table[wanted]
    if (table[:, kernels.FLAGS] & _CODEC).any():
        data, table = _decompressed(data, table)
    room = table[:, kernels.END] - table[:, kernels.START]
    counts = table[:, kernels.COUNT]
    if (wrong := (counts < 0) | (counts > room // _LEAST)).any():
        raise _damaged(int(table[int(np.argmax(wrong)), kernels.BASE]))
    count = int(counts.sum())
    offset, time = np.empty(count, np.int64), np.empty(count, np.int64)
    borders = np.empty(count + 1, np.int64)
    content = np.empty(int(room.sum()), np.uint8)
    headers = np.empty((count if header else 0, 3), np.int64)
    columns = offset, time, borders, content
    found, faulty = kernels.read(data, table, first, until, *columns, headers)
    publisher = None
    if header and faulty < 0:
        publisher, faulty = _named_header(data, headers[:found], header)
    if faulty >= 0:
        raise _damaged(int(table[faulty, kernels.BASE]))
    borders = borders[: found + 1]
    values = content[: int(borders[-1])]
    return Records(offset[:found], time[:found], borders, values, end, publisher)


def _named_header(
    data: NDArray[np.uint8], headers: NDArray[np.int64], name: str
) -> tuple[pa.Array, int]:
    """Returns what `Records.publisher` has, and the row of a damaged batch, or -1."""
    count = len(headers)
    borders, there = np.zeros(count + 1, np.int64), np.zeros(count, np.bool_)
    content = np.empty(int((headers[:, 1] - headers[:, 0]).sum()), np.uint8)
    key = np.frombuffer(name.encode(), np.uint8)
    faulty = int(kernels.named_header(data, headers, key, borders, there, content))
    valid = np.packbits(there, bitorder="little")
    buffers = [pa.py_buffer(each) for each in (valid, borders, content)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers), faulty


def next_offset(data: NDArray[np.uint8], first: int, until: int) -> int:
    """Returns `Records.next` of what `read_records` makes of the same bytes.

    It reads only the headers of batches, so that the next piece is requested before this one is
    read.
    """
    return int(kernels.end(data, first, until))


def _end(table: NDArray[np.int64], first: int) -> int:
    return int(table[-1, kernels.LAST]) + 1 if len(table) else first


def _damaged(offset: int) -> KafkaError:
    return KafkaError(
        "RECORDS_DAMAGED",
        f"the record batch at offset {offset} is damaged, because its checksum or its lengths are "
        "wrong: check the disk and the network of the broker",
        offset=offset,
    )


def _committed(
    data: NDArray[np.uint8], table: NDArray[np.int64], aborted: Sequence[Aborted]
) -> NDArray[np.bool_]:
    """Returns which batches are of no aborted transaction: bool[batches]."""
    waiting = sorted(aborted, key=lambda each: each.first, reverse=True)
    aborting: set[int] = set()
    kept = np.ones(len(table), np.bool_)
    for number in range(len(table)):
        row = table[number]
        while waiting and waiting[-1].first <= row[kernels.LAST]:
            aborting.add(waiting.pop().producer)
        producer, flags = int(row[kernels.PRODUCER]), int(row[kernels.FLAGS])
        if flags & _CONTROL:
            # Its one record has a key of two numbers, version and kind, after five short numbers.
            start = int(row[kernels.START])
            if data[start + 5 : start + 9].view(">u2")[1] == _ABORT:
                aborting.discard(producer)
        elif flags & _TRANSACTIONAL and producer in aborting:
            kept[number] = False
    return kept


def _decompressed(
    data: NDArray[np.uint8], table: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the records of all batches, one after the other, and the table of where they are."""
    parts = []
    for start, end, base, flags in table[
        :, [kernels.START, kernels.END, kernels.BASE, kernels.FLAGS]
    ].tolist():
        part = data[start:end]
        if codec := flags & _CODEC:
            part = _decompress(part, codec, base)
        parts.append(part)
    ends = np.cumsum([part.size for part in parts])
    table = table.copy()
    table[:, kernels.END] = ends
    table[:, kernels.START] = ends - [part.size for part in parts]
    return np.concatenate(parts), table


def _decompress(part: NDArray[np.uint8], codec: int, offset: int) -> NDArray[np.uint8]:
    try:
        if codec not in _CODECS:
            raise _damaged(offset)
        if _CODECS[codec] == "snappy":
            return _snappy(part.tobytes())
        stream: Any = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(part)), _CODECS[codec])
        with stream:
            return np.frombuffer(stream.read(), np.uint8)
    except (OSError, ValueError, IndexError) as error:
        raise _damaged(offset) from error


def _snappy(part: bytes) -> NDArray[np.uint8]:
    """Decompresses one block, or the blocks of Java's snappy, each after its length."""
    blocks = [part]
    if part.startswith(_XERIAL):
        blocks, at = [], _XERIAL_HEADER
        while at < len(part):
            size = int.from_bytes(part[at : at + 4])
            blocks.append(part[at + 4 : at + 4 + size])
            at += 4 + size
    codec: Any = pa.Codec("snappy")
    found = [codec.decompress(block, _snappy_size(block), asbytes=True) for block in blocks]
    return np.frombuffer(b"".join(found), np.uint8)


def _snappy_size(block: bytes) -> int:
    """Returns how long a block is decompressed, which its first bytes say."""
    size = 0
    for k in range(5):
        size |= (block[k] & 0x7F) << 7 * k
        if block[k] < 0x80:
            break
    return size
