"""Compiled loops over attribute/value headers (KUNDEL III-B). Faults as in ``reference``.

Positions in bytes and bits of masks are uint64 here: numba turns a mix of int64 and uint64 into
float64, and asks of each signed index whether it counts from the end.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from stackcast.udfs.messages.attributes.events import ETHERTYPE, FINE, code_of

EMPTY = code_of("empty_event")
TRUNCATED = code_of("truncated_event")
UNKNOWN = code_of("unknown_attribute")
TWICE = code_of("id_twice")
TOO_LARGE = code_of("event_too_large")

# Bytes. Those of an id and of a bitmask are told by callers.
VALUE = 4
ETHERNET = 14
ADDRESS = 6

_LIMIT = np.uint64(64)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_FOUR = np.uint64(4)
_BYTE = np.uint64(8)
_TWO_BYTES = np.uint64(16)
_THREE_BYTES = np.uint64(24)

# A bit's position from the bit: each shift of this number has other top six bits.
_SEQUENCE = np.uint64(0x03F79D71B4CB0A89)
_TOP = np.uint64(58)
_POSITION = np.zeros(64, np.uint64)
for _bit in range(64):
    _POSITION[((int(_SEQUENCE) << _bit) >> 58) & 63] = _bit


@njit(cache=True, nogil=True)
def _number(data, at):  # type: ignore[no-untyped-def]
    """Reads the big-endian number of 32 bits at ``at``."""
    return (
        np.uint64(data[at]) << _THREE_BYTES
        | np.uint64(data[at + _ONE]) << _TWO_BYTES
        | np.uint64(data[at + _TWO]) << _BYTE
        | np.uint64(data[at + _THREE])
    )


@njit(cache=True, nogil=True)
def _put(out, at, value):  # type: ignore[no-untyped-def]
    """Writes a number of 32 bits, big-endian."""
    number = np.uint64(value)
    out[at] = np.uint8(number >> _THREE_BYTES)
    out[at + _ONE] = np.uint8(number >> _TWO_BYTES)
    out[at + _TWO] = np.uint8(number >> _BYTE)
    out[at + _THREE] = np.uint8(number)


@njit(cache=True, nogil=True)
def _position(bit):  # type: ignore[no-untyped-def]
    """Returns i of ``1 << i``, i below 64."""
    return _POSITION[(bit * _SEQUENCE) >> _TOP]


@njit(cache=True, nogil=True)
def _read(data, at, size):  # type: ignore[no-untyped-def]
    """Reads the big-endian number of ``size`` bytes at ``at``."""
    number = _ZERO
    for byte in range(size):
        number = number << _BYTE | np.uint64(data[at + np.uint64(byte)])
    return number


@njit(cache=True, nogil=True)
def _write(out, at, size, number):  # type: ignore[no-untyped-def]
    """Writes a number of ``size`` bytes, big-endian."""
    for byte in range(size):
        out[at + np.uint64(size - 1 - byte)] = np.uint8(number >> np.uint64(8 * byte))


@njit(cache=True, nogil=True)
def _ones(bits):  # type: ignore[no-untyped-def]
    count = np.int64(0)
    while bits != _ZERO:
        bits &= bits - _ONE
        count += 1
    return count


@njit(cache=True, nogil=True)
def read_id_pairs(starts, ends, data, known, longest, size_of_id, values):  # type: ignore[no-untyped-def]
    """Reads the records ``data[starts[i]:ends[i]]`` as ``(mask, reason, payload_start)``.

    values: uint32[n_max, n] of zeros, filled in; ``known`` has no other ids. A record with a reason
    has no payload: it starts where the record ends.
    """
    count = starts.size
    width = np.uint64(size_of_id)
    mask = np.zeros(count, np.uint64)
    reason = np.zeros(count, np.uint8)
    payload = np.empty(count, np.int64)
    registered = np.uint64(known)
    for event in range(count):
        payload[event] = ends[event]
        size = ends[event] - starts[event]
        if size > longest:
            reason[event] = TOO_LARGE
            continue
        if size == 0:
            reason[event] = EMPTY
            continue
        if size < size_of_id:
            reason[event] = TRUNCATED
            continue
        at = np.uint64(starts[event])
        end = np.uint64(ends[event])
        bits = _ZERO
        fault = FINE
        number = _read(data, at, size_of_id)
        while True:
            if number >= _LIMIT or (registered >> number) & _ONE == _ZERO:
                fault = UNKNOWN
                break
            bit = _ONE << number
            if bits & bit != _ZERO:
                fault = TWICE
                break
            following = at + width + _FOUR
            if following + width > end:
                fault = TRUNCATED
                break
            values[number, event] = _number(data, at + width)
            bits |= bit
            at = following
            number = _read(data, at, size_of_id)
            if number == _ZERO:
                break
        if fault == FINE:
            mask[event] = bits
            payload[event] = np.int64(at + width)
            continue
        reason[event] = fault
        while bits != _ZERO:
            rest = bits & (bits - _ONE)
            values[_position(bits ^ rest), event] = 0
            bits = rest
    return mask, reason, payload


@njit(cache=True, nogil=True)
def read_bitmasks(starts, ends, data, known, longest, size_of_mask, values):  # type: ignore[no-untyped-def]
    """Reads records as `read_id_pairs` does."""
    count = starts.size
    mask = np.zeros(count, np.uint64)
    reason = np.zeros(count, np.uint8)
    payload = np.empty(count, np.int64)
    unknown = ~np.uint64(known)
    for event in range(count):
        payload[event] = ends[event]
        size = ends[event] - starts[event]
        if size > longest:
            reason[event] = TOO_LARGE
            continue
        if size < size_of_mask:
            reason[event] = TRUNCATED if size else EMPTY
            continue
        at = np.uint64(starts[event])
        bits = _read(data, at, size_of_mask)
        if bits == _ZERO:
            reason[event] = EMPTY
            continue
        if bits & unknown != _ZERO:
            reason[event] = UNKNOWN
            continue
        if size < size_of_mask + VALUE * _ones(bits):
            reason[event] = TRUNCATED
            continue
        mask[event] = bits
        at += np.uint64(size_of_mask)
        while bits != _ZERO:
            rest = bits & (bits - _ONE)
            values[_position(bits ^ rest), event] = _number(data, at)
            at += _FOUR
            bits = rest
        payload[event] = np.int64(at)
    return mask, reason, payload


@njit(cache=True, nogil=True)
def lay_out(mask, reason, payload_start, payload_end, source, fixed, each):  # type: ignore[no-untyped-def]
    """Lays out records: ``(offsets int64[n + 1], first event whose payload leaves the source or
    -1)``.

    A header has ``fixed`` bytes and ``each`` for an attribute. An event with a reason, or without
    an attribute, takes none at all.
    """
    offsets = np.zeros(mask.size + 1, np.int64)
    for event in range(mask.size):
        size = np.int64(0)
        if reason[event] == FINE and mask[event]:
            begin = payload_start[event]
            end = payload_end[event]
            if begin < 0 or end < begin or end > source:
                return offsets, event
            size = fixed + each * _ones(np.uint64(mask[event])) + end - begin
        offsets[event + 1] = offsets[event] + size
    return offsets, -1


@njit(cache=True, nogil=True)
def write_id_pairs(offsets, mask, values, payload_start, data, size_of_id):  # type: ignore[no-untyped-def]
    """Writes the records as ``offsets`` of `lay_out` has them: uint8[offsets[-1]]."""
    width = np.uint64(size_of_id)
    out = np.empty(offsets[-1], np.uint8)
    for event in range(mask.size):
        if offsets[event] == offsets[event + 1]:
            continue
        at = np.uint64(offsets[event])
        bits = np.uint64(mask[event])
        while bits != _ZERO:
            rest = bits & (bits - _ONE)
            number = _position(bits ^ rest)
            _write(out, at, size_of_id, number)
            _put(out, at + width, values[number, event])
            at += width + _FOUR
            bits = rest
        _write(out, at, size_of_id, _ZERO)
        _copy(data, payload_start[event], out, at + width, offsets[event + 1])
    return out


@njit(cache=True, nogil=True)
def write_bitmasks(offsets, mask, values, payload_start, data, size_of_mask):  # type: ignore[no-untyped-def]
    """Writes records as `write_id_pairs` does."""
    out = np.empty(offsets[-1], np.uint8)
    for event in range(mask.size):
        if offsets[event] == offsets[event + 1]:
            continue
        at = np.uint64(offsets[event])
        bits = np.uint64(mask[event])
        _write(out, at, size_of_mask, bits)
        at += np.uint64(size_of_mask)
        while bits != _ZERO:
            rest = bits & (bits - _ONE)
            _put(out, at, values[_position(bits ^ rest), event])
            at += _FOUR
            bits = rest
        _copy(data, payload_start[event], out, at, offsets[event + 1])
    return out


@njit(cache=True, nogil=True)
def _copy(data, begin, out, at, end):  # type: ignore[no-untyped-def]
    """Fills ``out[at:end]`` with the bytes from ``data[begin]`` on."""
    source = np.uint64(begin)
    last = np.uint64(end)
    while at < last:
        out[at] = data[source]
        at += _ONE
        source += _ONE


@njit(cache=True, nogil=True)
def put_before(offsets, data, head):  # type: ignore[no-untyped-def]
    """Puts each record after ``head``, as ``(offsets, data)``; one of no bytes stays empty."""
    count = offsets.size - 1
    borders = np.zeros(count + 1, np.int64)
    for record in range(count):
        size = offsets[record + 1] - offsets[record]
        borders[record + 1] = borders[record] + (size + head.size if size else 0)
    out = np.empty(borders[-1], np.uint8)
    for record in range(count):
        if borders[record] == borders[record + 1]:
            continue
        at = np.uint64(borders[record])
        for byte in head:
            out[at] = byte
            at += _ONE
        _copy(data, offsets[record], out, at, borders[record + 1])
    return borders, out


@njit(cache=True, nogil=True)
def find_headers(offsets, data, bitmask_group):  # type: ignore[no-untyped-def]
    """Finds frames with our EtherType: ``(frame int64[m], encoding uint8[m])``, 1 for bitmasks.

    bitmask_group: uint8[6], an Ethernet destination.
    """
    count = offsets.size - 1
    frame = np.empty(count, np.int64)
    encoding = np.empty(count, np.uint8)
    found = 0
    for number in range(count):
        begin = offsets[number]
        if offsets[number + 1] - begin < ETHERNET:
            continue
        kind = (np.int64(data[begin + ETHERNET - 2]) << 8) | np.int64(data[begin + ETHERNET - 1])
        if kind != ETHERTYPE:
            continue
        same = True
        for byte in range(ADDRESS):
            same = same and data[begin + byte] == bitmask_group[byte]
        frame[found] = number
        encoding[found] = 1 if same else 0
        found += 1
    return frame[:found].copy(), encoding[:found].copy()
