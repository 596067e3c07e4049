"""Compiled loops over Kafka's record batches, format 2 (KIP-98): borders, checksums, records.

Numbers of the format are big-endian. CRC-32C goes by the processor's instruction where it has one,
else by eight tables (Kounavis and Berry, 2005).
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

HEADER = 61
"""Bytes of a batch before its records."""
CHECKED = 21
"""The checksum is over all bytes from here on."""
#: Columns of the table of batches.
START, END, BASE, LAST, COUNT, FLAGS, PRODUCER, FIRST_TIME, LAST_TIME = range(9)
COLUMNS = 9
#: Faults of a batch.
SOUND, OLD, DAMAGED = range(3)

_POLYNOMIAL = 0x82F63B78


def _tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for k in range(1, 8):
        tables[k] = tables[k - 1] >> 8 ^ tables[0, tables[k - 1] & 0xFF]
    return tables


TABLES = _tables()
_WORDS = 64
"""Words of eight bytes that each of three checksums has at a time: the next step of one begins only
when that before has ended, so a core takes three at once."""


def _advances() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Returns what `_WORDS` of zeros make of a checksum, by each of its bytes: uint32[4, 256]."""
    crc = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32)[:, np.newaxis])
    for _ in range(8 * _WORDS):
        crc = crc >> 8 ^ TABLES[0, crc & 0xFF]
    return crc


ADVANCES = _advances()


@intrinsic
def _instruction(_: Any, crc: Any, word: Any) -> Any:
    """SSE 4.2's CRC-32C of eight bytes: uint64, uint64 -> uint64."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * 2)
        name = "llvm.x86.sse42.crc32.64.64"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return types.uint64(types.uint64, types.uint64), generate


@njit(cache=True, nogil=True)
def _by_table(data, begin, end, crc):  # type: ignore[no-untyped-def]
    """Goes on with a checksum, uint32, over the bytes ``data[begin:end]``."""
    at = begin
    while at + 8 <= end:
        low = crc ^ np.uint32(
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        crc = (
            TABLES[7, low & np.uint32(0xFF)]
            ^ TABLES[6, low >> np.uint32(8) & np.uint32(0xFF)]
            ^ TABLES[5, low >> np.uint32(16) & np.uint32(0xFF)]
            ^ TABLES[4, low >> np.uint32(24)]
            ^ TABLES[3, data[at + 4]]
            ^ TABLES[2, data[at + 5]]
            ^ TABLES[1, data[at + 6]]
            ^ TABLES[0, data[at + 7]]
        )
        at += 8
    while at < end:
        crc = crc >> np.uint32(8) ^ TABLES[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)]
        at += 1
    return crc


@njit(cache=True, nogil=True)
def _advanced(crc):  # type: ignore[no-untyped-def]
    """Returns a checksum, uint64, after `_WORDS` of zeros."""
    low = np.uint32(crc)
    return np.uint64(
        ADVANCES[0, low & np.uint32(0xFF)]
        ^ ADVANCES[1, low >> np.uint32(8) & np.uint32(0xFF)]
        ^ ADVANCES[2, low >> np.uint32(16) & np.uint32(0xFF)]
        ^ ADVANCES[3, low >> np.uint32(24)]
    )


@njit(cache=True, nogil=True)
def _by_instruction(data, begin, end, crc):  # type: ignore[no-untyped-def]
    """As `_by_table`."""
    words = (end - begin) // 8
    eight = data[begin : begin + 8 * words].view(np.uint64)
    state = np.uint64(crc)
    done = 0
    while done + 3 * _WORDS <= words:
        second = third = np.uint64(0)
        for k in range(done, done + _WORDS):
            state = _instruction(state, eight[k])
            second = _instruction(second, eight[k + _WORDS])
            third = _instruction(third, eight[k + 2 * _WORDS])
        # A checksum of two parts is that of the first before zeros, and of the second behind none.
        state = _advanced(_advanced(state) ^ second) ^ third
        done += 3 * _WORDS
    for k in range(done, words):
        state = _instruction(state, eight[k])
    return _by_table(data, begin + 8 * words, end, np.uint32(state))


def _has_instruction() -> bool:
    features = binding.get_host_cpu_features()
    return platform.machine() in ("x86_64", "AMD64") and bool(features.get("sse4.2"))


_continued = _by_instruction if _has_instruction() else _by_table


@njit(cache=True, nogil=True)
def crc32c(data, begin, end):  # type: ignore[no-untyped-def]
    """Returns the CRC-32C of ``data[begin:end]``: uint8[:] contiguous -> uint32."""
    return _continued(data, begin, end, np.uint32(0xFFFFFFFF)) ^ np.uint32(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _number(data, at, size):  # type: ignore[no-untyped-def]
    """Returns a signed number of ``size`` bytes."""
    value = np.int64(np.int8(data[at]))
    for k in range(1, size):
        value = value << 8 | np.int64(data[at + k])
    return value


@njit(cache=True, nogil=True)
def end(data, first, until):  # type: ignore[no-untyped-def]
    """Returns the offset after the batches that `scan` finds if all are sound, by their lengths
    alone, ``first`` where there is none."""
    at = 0
    while at + HEADER <= data.size:
        size = _number(data, at + 8, 4)
        base = _number(data, at, 8)
        if size < HEADER - 12 or at + 12 + size > data.size or base >= until:
            break
        first = base + _number(data, at + 23, 4) + 1
        at += 12 + size
    return first


@njit(cache=True, nogil=True)
def scan(data, until):  # type: ignore[no-untyped-def]
    """Finds the whole batches of a fetched piece of a partition, uint8[n], before the first that
    begins at ``until`` or later.

    Returns int64[batches, COLUMNS], a fault and the byte where the faulty batch begins. A last
    batch that is cut off is left out, as the next fetch brings it.
    """
    found = 0
    at = 0
    table = np.empty((16, COLUMNS), np.int64)
    while at + HEADER <= data.size:
        size = _number(data, at + 8, 4)
        if data[at + 16] != 2:
            return table[:found], OLD, at
        end = at + 12 + size
        if size < HEADER - 12:
            return table[:found], DAMAGED, at
        if end > data.size or _number(data, at, 8) >= until:
            break
        told = np.uint32(_number(data, at + 17, 4) & 0xFFFFFFFF)
        if crc32c(data, at + CHECKED, end) != told:
            return table[:found], DAMAGED, at
        if found == len(table):
            table = np.concatenate((table, np.empty_like(table)))
        row = table[found]
        row[START], row[END] = at + HEADER, end
        row[BASE] = _number(data, at, 8)
        row[LAST] = row[BASE] + _number(data, at + 23, 4)
        row[COUNT] = _number(data, at + 57, 4)
        row[FLAGS] = _number(data, at + 21, 2)
        row[PRODUCER] = _number(data, at + 43, 8)
        row[FIRST_TIME] = _number(data, at + 27, 8)
        row[LAST_TIME] = _number(data, at + 35, 8)
        found += 1
        at = end
    return table[:found], SOUND, at


@njit(cache=True, nogil=True)
def _varint(data, at, end):  # type: ignore[no-untyped-def]
    """Returns a zigzag number and the byte after it; -1 for this where there is none."""
    value = np.uint64(0)
    for k in range(10):
        if at + k >= end:
            break
        byte = np.uint64(data[at + k])
        value |= (byte & np.uint64(0x7F)) << np.uint64(7 * k)
        if byte < np.uint64(0x80):
            half = np.int64(value >> np.uint64(1))
            return (~half if value & np.uint64(1) else half), at + k + 1
    return np.int64(0), -1


@njit(cache=True, nogil=True)
def read(data, table, first, until, offsets, times, borders, content, headers):  # type: ignore[no-untyped-def]
    """Reads the records of batches with offsets from ``first`` up to ``until``.

    data: uint8[n], records that are not compressed, between START and END of each row of ``table``.
    Fills offsets and times (ms): int64[records]; borders: int64[records + 1], of the values in
    content: uint8[n]; headers: int64[records, 3], where those of each record begin and end in
    ``data``, and the row of its batch; of none where it is empty. Returns the number of records,
    and the row of a damaged batch, or -1.
    """
    records = 0
    size = 0
    borders[0] = 0
    for batch in range(len(table)):
        row = table[batch]
        at, end = row[START], row[END]
        appended = row[FLAGS] & 8 != 0
        for _ in range(row[COUNT]):
            length, at = _varint(data, at, end)
            after = at + length
            if at < 0 or length < 0 or after > end:
                return records, batch
            # One byte of attributes, which means nothing yet.
            delay, at = _varint(data, at + 1, after)
            if at < 0:
                return records, batch
            delta, at = _varint(data, at, after)
            if at < 0:
                return records, batch
            key, at = _varint(data, at, after)
            if at < 0 or key > after - at:
                return records, batch
            length, at = _varint(data, at + max(key, 0), after)
            if at < 0 or length > after - at:
                return records, batch
            offset = row[BASE] + delta
            if first <= offset < until:
                length = max(length, 0)
                # Unsigned, so that no index could be one from the end: the loop becomes a copy.
                for k in range(np.uint64(length)):
                    content[np.uint64(size) + k] = data[np.uint64(at) + k]
                size += length
                if len(headers):
                    headers[records, 0], headers[records, 1] = at + length, after
                    headers[records, 2] = batch
                offsets[records] = offset
                times[records] = row[LAST_TIME] if appended else row[FIRST_TIME] + delay
                records += 1
                borders[records] = size
            at = after
    return records, -1


@njit(cache=True, nogil=True)
def named_header(data, headers, name, borders, there, content):  # type: ignore[no-untyped-def]
    """Reads what the last header of a name says, record by record.

    headers: int64[records, 3], as of `read`. name: uint8[k]. Fills borders: int64[records + 1], of
    the values in content: uint8[n]; there: bool[records], False where there is no such header, or
    null in it. Returns the row of a damaged batch, or -1.
    """
    size = 0
    borders[0] = 0
    for record in range(len(headers)):
        at, end = headers[record, 0], headers[record, 1]
        start, length = 0, -1
        count, at = _varint(data, at, end)
        if at < 0 or count < 0:
            return headers[record, 2]
        for _ in range(count):
            key, at = _varint(data, at, end)
            if at < 0 or key < 0 or key > end - at:
                return headers[record, 2]
            same = key == name.size
            for k in range(key if same else 0):
                same &= data[at + k] == name[k]
            value, at = _varint(data, at + key, end)
            if at < 0 or value > end - at:
                return headers[record, 2]
            if same:
                start, length = at, value
            at += max(value, 0)
        there[record] = length >= 0
        for k in range(max(length, 0)):
            content[size + k] = data[start + k]
        size += max(length, 0)
        borders[record + 1] = size
    return -1
