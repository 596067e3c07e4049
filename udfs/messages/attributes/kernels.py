"""Compiled loops over attribute/value headers (KUNDEL III-B). Faults as in ``reference``.

Positions in bytes and bits of masks are uint64 here: numba turns a mix of int64 and uint64 into
float64, and asks of each signed index whether it counts from the end.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from udfs.messages.attributes.events import ATTRIBUTES, ETHERTYPE, FINE, code_of

EMPTY = code_of("empty_event")
TRUNCATED = code_of("truncated_event")
UNKNOWN = code_of("unknown_attribute")
TWICE = code_of("id_twice")
TOO_LARGE = code_of("event_too_large")

# Bytes. An id pair is a value and the next id; a first id stands before them.
ID = 1
PAIR = 5
MASK = 4
VALUE = 4
ETHERNET = 14
ADDRESS = 6

_LIMIT = np.uint64(ATTRIBUTES)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_FOUR = np.uint64(4)
_FIVE = np.uint64(5)
_BYTE = np.uint64(8)
_TWO_BYTES = np.uint64(16)
_THREE_BYTES = np.uint64(24)

# A bit's position from the bit: each shift of this number has other top five bits.
_SEQUENCE = np.uint64(0x077CB531)
_TOP = np.uint64(27)
_FIVE_BITS = np.uint64(31)
_POSITION = np.zeros(32, np.uint64)
for _bit in range(32):
    _POSITION[((int(_SEQUENCE) << _bit) >> 27) & 31] = _bit


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
    """Returns i of ``1 << i``, i below 32."""
    return _POSITION[((bit * _SEQUENCE) >> _TOP) & _FIVE_BITS]


@njit(cache=True, nogil=True)
def _ones(bits):  # type: ignore[no-untyped-def]
    count = np.int64(0)
    while bits != _ZERO:
        bits &= bits - _ONE
        count += 1
    return count


@njit(cache=True, nogil=True)
def read_id_pairs(starts, ends, data, known, longest, values):  # type: ignore[no-untyped-def]
    """Reads the records ``data[starts[i]:ends[i]]`` as ``(mask, reason, payload_start)``.

    values: uint32[ATTRIBUTES, n] of zeros, filled in. A record with a reason has no payload: it
    starts where the record ends.
    """
    count = starts.size
    mask = np.zeros(count, np.uint32)
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
        at = np.uint64(starts[event])
        end = np.uint64(ends[event])
        bits = _ZERO
        fault = FINE
        number = np.uint64(data[at])
        while True:
            if number >= _LIMIT or (registered >> number) & _ONE == _ZERO:
                fault = UNKNOWN
                break
            bit = _ONE << number
            if bits & bit != _ZERO:
                fault = TWICE
                break
            following = at + _FIVE
            if following >= end:
                fault = TRUNCATED
                break
            values[number, event] = _number(data, at + _ONE)
            bits |= bit
            at = following
            number = np.uint64(data[at])
            if number == _ZERO:
                break
        if fault == FINE:
            mask[event] = bits
            payload[event] = np.int64(at + _ONE)
            continue
        reason[event] = fault
        while bits != _ZERO:
            rest = bits & (bits - _ONE)
            values[_position(bits ^ rest), event] = 0
            bits = rest
    return mask, reason, payload


@njit(cache=True, nogil=True)
def read_bitmasks(starts, ends, data, known, longest, values):  # type: ignore[no-untyped-def]
    """Reads records as `read_id_pairs` does."""
    count = starts.size
    mask = np.zeros(count, np.uint32)
    reason = np.zeros(count, np.uint8)
    payload = np.empty(count, np.int64)
    unknown = ~np.uint64(known)
    for event in range(count):
        payload[event] = ends[event]
        size = ends[event] - starts[event]
        if size > longest:
            reason[event] = TOO_LARGE
            continue
        if size < MASK:
            reason[event] = TRUNCATED if size else EMPTY
            continue
        at = np.uint64(starts[event])
        bits = _number(data, at)
        if bits == _ZERO:
            reason[event] = EMPTY
            continue
        if bits & unknown != _ZERO:
            reason[event] = UNKNOWN
            continue
        if size < MASK + VALUE * _ones(bits):
            reason[event] = TRUNCATED
            continue
        mask[event] = bits
        while bits != _ZERO:
            at += _FOUR
            rest = bits & (bits - _ONE)
            values[_position(bits ^ rest), event] = _number(data, at)
            bits = rest
        payload[event] = np.int64(at + _FOUR)
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
def write_id_pairs(offsets, mask, values, payload_start, data):  # type: ignore[no-untyped-def]
    """Writes the records as ``offsets`` of `lay_out` has them: uint8[offsets[-1]]."""
    out = np.empty(offsets[-1], np.uint8)
    for event in range(mask.size):
        if offsets[event] == offsets[event + 1]:
            continue
        at = np.uint64(offsets[event])
        bits = np.uint64(mask[event])
        while bits != _ZERO:
            rest = bits & (bits - _ONE)
            number = _position(bits ^ rest)
            out[at] = np.uint8(number)
            _put(out, at + _ONE, values[number, event])
            at += _FIVE
            bits = rest
        out[at] = 0
        _copy(data, payload_start[event], out, at + _ONE, offsets[event + 1])
    return out


@njit(cache=True, nogil=True)
def write_bitmasks(offsets, mask, values, payload_start, data):  # type: ignore[no-untyped-def]
    """Writes records as `write_id_pairs` does."""
    out = np.empty(offsets[-1], np.uint8)
    for event in range(mask.size):
        if offsets[event] == offsets[event + 1]:
            continue
        at = np.uint64(offsets[event])
        bits = np.uint64(mask[event])
        _put(out, at, bits)
        at += _FOUR
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
