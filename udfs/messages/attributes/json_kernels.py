"""Events in JSON in compiled loops: objects, names and raw values in one pass over the bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stackcast.udfs.messages.attributes.events import FINE, code_of
from stackcast.udfs.messages.attributes.json_value_kernels import (
    BAD,
    BASIS,
    CLOSE,
    COLON,
    COMMA,
    FACTOR,
    HARD,
    NESTED,
    NULL,
    NUMBER,
    OPEN,
    OTHER,
    PRIME,
    QUOTE,
    QUOTED,
    START,
    characters,
    helper,
    next_character,
    pass_text,
    pass_value,
    skip,
    unescape,
)
from stackcast.udfs.messages.attributes.ordered_fields import CHARACTERS
from stackcast.udfs.messages.attributes.time_kernels import time_at

MALFORMED = code_of("malformed_json")
NESTED_JSON = code_of("nested_json")
TOO_LARGE = code_of("event_too_large")
UNKNOWN = code_of("unknown_attribute")
TWICE = code_of("id_twice")
OUT_OF_RANGE = code_of("value_out_of_range")
NO_NUMBER = code_of("not_a_number")
NO_TEXT = code_of("not_a_text")
NO_FAULT = 255
"""Above all codes: of the faults of values the lowest code is told."""

LONGEST_NUMBER, LONGEST_NAME = 1000, 50_000
"""Characters of a number and of a name; a record with longer ones is malformed."""

LINEAR, TIME, FLOAT, TEXT = range(4)
"""How values become raw ones."""

NUMBER_OF_NONE, TIME_OF_NONE, NULL_OF_NONE, _NOTHING = -1, -2, -3, -4
"""In place of an id: a number, a time or null under a name that no attribute has."""

_SHORTEST = 5
"""Bytes of the shortest member and its comma: ``"":0,``."""

_MOST = float((1 << 32) - 1)
_SIGN, _BELOW_SIGN = np.uint32(1 << 31), np.uint32((1 << 31) - 1)
_SLOTS = 256
_SCRATCH = 64
"""Characters of the longest name, or time, and more."""


class Names(NamedTuple):
    """The attributes as the kernel looks them up, columns by id.

    slots: int8[256], ids by the hash of their names, -1 where there is none; a name whose slot is
    taken has the next. text: uint8[ids, 63], size: int64[ids], 0 where there is no attribute.
    kind: uint8[ids], LINEAR and so on. offset, scale: float64[ids].
    """

    slots: NDArray[np.int8]
    text: NDArray[np.uint8]
    size: NDArray[np.int64]
    kind: NDArray[np.uint8]
    offset: NDArray[np.float64]
    scale: NDArray[np.float64]


def slots_of(names: dict[int, bytes]) -> NDArray[np.int8]:
    """Returns `Names.slots` of the names by id."""
    slots = np.full(_SLOTS, -1, np.int8)
    for id, name in names.items():
        hash = BASIS
        for byte in name:
            hash = (hash ^ byte) * PRIME % (1 << 64)
        at = hash % _SLOTS
        while slots[at] >= 0:
            at = (at + 1) % _SLOTS
        slots[at] = id
    return slots


@njit(cache=True, nogil=True)
def read_objects(starts, ends, data, longest, names, collects, values):  # type: ignore[no-untyped-def]
    """Reads the records ``data[starts[i]:ends[i]]`` as ``(mask, fault, rest)``.

    values: uint32[n_max, n] of zeros, filled in, also of attributes whose event has a fault. mask:
    uint64[n], of the attributes given. fault: uint8[n], `NO_FAULT` or a reason's code.
    rest: int64[m, 6], what is still to be read of records that are right by their grammar: record,
    id, borders of the value, borders of the name. These are numbers that are no exact arithmetic
    here, nulls under names that no attribute has and, if ``collects``, numbers and times under such
    names.
    """
    count = starts.size
    mask = np.zeros(count, np.uint64)
    fault = np.empty(count, np.uint8)
    rest = np.empty((1024, 6), np.int64)
    scratch = np.empty(_SCRATCH, np.uint8)
    held = 0
    for event in range(count):
        size = ends[event] - starts[event]
        if size > longest:
            fault[event] = TOO_LARGE
            continue
        room = held + size // _SHORTEST + 1
        if room > rest.shape[0]:
            larger = np.empty((2 * room, 6), np.int64)
            larger[:held] = rest[:held]
            rest = larger
        found = _read_object(
            data, starts[event], ends[event], event, names, collects, values, scratch, rest, held
        )
        fault[event], mask[event], held = found
    return mask, fault, rest[:held].copy()


@helper
def _read_object(data, at, end, event, names, collects, values, scratch, rest, held):  # type: ignore[no-untyped-def]
    """Reads one record: ``(fault, mask, rows of rest)``."""
    before = held
    mask = seen = np.uint64(0)
    fault = NO_FAULT
    too_long = False
    at = skip(data, at, end)
    if at >= end or data[at] != OPEN:
        return MALFORMED, mask, before
    at = skip(data, at + 1, end)
    more = at >= end or data[at] != CLOSE
    while more:
        if at >= end or data[at] != QUOTE:
            return MALFORMED, mask, before
        name = at + 1
        name_end, hash, escaped = pass_text(data, name, end)
        if name_end < 0:
            return MALFORMED, mask, before
        at = skip(data, name_end + 1, end)
        if at >= end or data[at] != COLON:
            return MALFORMED, mask, before
        value = skip(data, at + 1, end)
        at, kind, number = pass_value(data, value, end)
        if kind in (BAD, NESTED):
            return MALFORMED if kind == BAD else NESTED_JSON, mask, before
        if kind >= NUMBER and at - value > LONGEST_NUMBER:
            too_long = True
        if name_end - name > LONGEST_NAME and characters(data, name, name_end) > LONGEST_NAME:
            too_long = True
        if escaped:
            id = _find_escaped(data, name, name_end, names, scratch)
        else:
            id = _find(data, name, name_end, hash, names)
        left = _NOTHING
        if id < 0:
            if kind != NULL:
                fault = min(fault, UNKNOWN)
            left = _left_of_none(data, value, at, kind, collects, scratch)
        else:
            bit = np.uint64(1) << np.uint64(id)
            if seen & bit:
                fault = min(fault, TWICE)
            seen |= bit
            if kind == HARD and names.kind[id] != TEXT:
                mask |= bit
                left = id
            elif kind != NULL:
                mask |= bit
                values[id, event], why = _raw(data, value, at, kind, number, id, names, scratch)
                if why != FINE:
                    fault = min(fault, why)
        if left != _NOTHING:
            for column, border in enumerate((event, left, value, at, name, name_end)):
                rest[held, column] = border
            held += 1
        at = skip(data, at, end)
        if at >= end or (data[at] != COMMA and data[at] != CLOSE):
            return MALFORMED, mask, before
        more = data[at] == COMMA
        if more:
            at = skip(data, at + 1, end)
    if too_long or skip(data, at + 1, end) != end:
        return MALFORMED, mask, before
    return fault, mask, held


@helper
def _left_of_none(data, at, end, kind, collects, scratch):  # type: ignore[no-untyped-def]
    """Says what a value under a name that no attribute has leaves to be read."""
    if kind == NULL:
        return NULL_OF_NONE
    if collects and kind >= NUMBER:
        return NUMBER_OF_NONE
    if collects and kind == QUOTED and _read_time(data, at + 1, end - 1, scratch)[0]:
        return TIME_OF_NONE
    return _NOTHING


@helper
def _find(data, at, end, hash, names):  # type: ignore[no-untyped-def]
    """Returns the id of a name without escapes, or -1."""
    slot = np.int64(hash % np.uint64(_SLOTS))
    while names.slots[slot] >= 0:
        id = np.int64(names.slots[slot])
        if names.size[id] == end - at:
            same = True
            for place in range(end - at):
                same = same and names.text[id, place] == data[at + place]
            if same:
                return id
        slot = (slot + 1) % _SLOTS
    return -1


@helper
def _find_escaped(data, at, end, names, scratch):  # type: ignore[no-untyped-def]
    """Returns the id of a name with escapes, or -1."""
    size = unescape(data, at, end, scratch)
    if size < 0:
        return -1
    hash = START
    for place in range(size):
        hash = (hash ^ np.uint64(scratch[place])) * FACTOR
    return _find(scratch, 0, size, hash, names)


@helper
def _read_time(data, at, end, scratch):  # type: ignore[no-untyped-def]
    """Reads a text as `time_at`, one with escapes too."""
    valid, seconds = time_at(data, at, end)
    if not valid:
        size = unescape(data, at, end, scratch)
        if 0 <= size < end - at:
            valid, seconds = time_at(scratch, 0, size)
    return valid, seconds


@helper
def _raw(data, at, end, kind, number, id, names, scratch):  # type: ignore[no-untyped-def]
    """Converts a value to ``(raw value, reason)``."""
    wanted = names.kind[id]
    if wanted == TEXT:
        if kind != QUOTED:
            return np.uint32(0), NO_TEXT
        return _raw_text(data, at + 1, end - 1)
    if kind == QUOTED and wanted == TIME:
        valid, number = _read_time(data, at + 1, end - 1, scratch)
        kind = NUMBER if valid else OTHER
    if kind != NUMBER:
        return np.uint32(0), NO_NUMBER
    return _raw_number(number, wanted, names.offset[id], names.scale[id])


@njit(cache=True, nogil=True)
def raw_numbers(numbers, kind, offset, scale):  # type: ignore[no-untyped-def]
    """Converts doubles, float64[n], to ``(raw values uint32[n], reasons uint8[n])``."""
    raw = np.zeros(numbers.size, np.uint32)
    reason = np.full(numbers.size, NO_NUMBER, np.uint8)
    for at in range(numbers.size):
        if np.isfinite(numbers[at]):
            raw[at], reason[at] = _raw_number(numbers[at], kind, offset, scale)
    return raw, reason


@helper
def _raw_number(number, kind, offset, scale):  # type: ignore[no-untyped-def]
    """Converts a finite double, of an attribute of any kind but TEXT."""
    if kind == FLOAT:
        nearest = np.float32(number)
        if not np.isfinite(nearest):
            return np.uint32(0), OUT_OF_RANGE
        bits = nearest.view(np.uint32)
        below = bits & _BELOW_SIGN
        return np.uint32(_SIGN - below if bits & _SIGN else _SIGN + below), FINE
    raw = np.rint((number - offset) / scale)
    if 0 <= raw <= _MOST:
        return np.uint32(raw), FINE
    return np.uint32(0), OUT_OF_RANGE


@helper
def _raw_text(data, at, end):  # type: ignore[no-untyped-def]
    """Reads a text: its characters, the first most significant, padded with blanks."""
    raw = 0
    count = 0
    while at < end:
        code, at = next_character(data, at)
        if not 0x20 <= code < 0x7F:
            return np.uint32(0), NO_TEXT
        if count < CHARACTERS:
            raw = raw << 8 | code
        count += 1
    for _ in range(count, CHARACTERS):
        raw = raw << 8 | 0x20
    return np.uint32(raw), FINE if count <= CHARACTERS else OUT_OF_RANGE


@njit(cache=True, nogil=True)
def gather(starts, ends, data):  # type: ignore[no-untyped-def]
    """Puts texts one behind the other: ``(offsets int64[n + 1], bytes)``."""
    offsets = np.zeros(starts.size + 1, np.int64)
    for row in range(starts.size):
        offsets[row + 1] = offsets[row] + ends[row] - starts[row]
    out = np.empty(offsets[-1], np.uint8)
    for row in range(starts.size):
        for place in range(ends[row] - starts[row]):
            out[offsets[row] + place] = data[starts[row] + place]
    return offsets, out
