"""Plain reader and writer of attribute/value headers: the reference for kernels and proof.

It follows KUNDEL III-B with ``struct``, one event at a time, and shares no code with the kernels.

id pairs: an id (8 bits), then a value (32 bits) and the next id, again and again; a next id of 0
ends the chain, so attribute 0 comes first or not at all. The others have any order, and are written
by ascending id. bitmask: 32 bits, attribute i is bit ``1 << i``, then the values by ascending id.
What follows is payload. All is big-endian.

Where a record has several faults, the first that a reader meets counts. It looks at the size of the
record, then goes from left to right: each id for what it is (unknown, there before), then
for its value and the next id; a bitmask for whether it is whole, says nothing or has an unknown
bit, then for its values.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from udfs.errors import MessageError
from udfs.messages.attributes.events import ATTRIBUTES

__all__ = ["read_event", "write_event"]

_ID = struct.Struct(">B")
_LINK = struct.Struct(">IB")
_MASK = struct.Struct(">I")
_VALUE = struct.Struct(">I")


def read_event(
    record: bytes, encoding: str, known: int, longest: int
) -> tuple[dict[int, int], bytes]:
    """Reads one record as (raw values by id, in the order of the record; payload).

    encoding: ``id_pairs`` or ``bitmask``. known: bitmask of the ids in use. longest: bytes that a
    record has at most.
    Raises MessageError EVENT_TOO_LARGE, EMPTY_EVENT, TRUNCATED_EVENT, UNKNOWN_ATTRIBUTE, ID_TWICE,
    with ``offset``, the byte where it stops making sense.
    """
    reader = {"id_pairs": _read_id_pairs, "bitmask": _read_bitmask}[encoding]
    if len(record) > longest:
        what = f"{len(record)} bytes; an event has {longest} at most"
        raise MessageError("EVENT_TOO_LARGE", what, offset=longest)
    if not record:
        raise MessageError("EMPTY_EVENT", "the record has no bytes", offset=0)
    values, at = reader(record, known)
    return values, record[at:]


def write_event(values: Mapping[int, int], encoding: str, payload: bytes = b"") -> bytes:
    """Writes the record of an event: its header, then the payload. ``values``: raw values by id.

    Raises MessageError EMPTY_EVENT (no value), UNKNOWN_ATTRIBUTE (no id of 0 to 31) or
    VALUE_OUT_OF_RANGE (not 32 bits).
    """
    writer = {"id_pairs": _id_pairs, "bitmask": _bitmask}[encoding]
    if not values:
        raise MessageError("EMPTY_EVENT", "an event has one attribute at least")
    for number, value in values.items():
        if not 0 <= number < ATTRIBUTES:
            raise MessageError("UNKNOWN_ATTRIBUTE", f"id {number} is none of 0 to {ATTRIBUTES - 1}")
        if not 0 <= value < 1 << 32:
            raise MessageError(
                "VALUE_OUT_OF_RANGE", f"{value} of attribute {number} does not fit 32 bits"
            )
    return writer(sorted(values.items())) + payload


def _read_id_pairs(record: bytes, known: int) -> tuple[dict[int, int], int]:
    """(values, bytes of the header)."""
    values: dict[int, int] = {}
    (number,) = _ID.unpack_from(record)
    at = _ID.size
    while True:
        if number >= ATTRIBUTES or not known >> number & 1:
            raise _unknown(number, at - _ID.size)
        if number in values:
            raise MessageError("ID_TWICE", f"id {number} is there twice", offset=at - _ID.size)
        if at + _LINK.size > len(record):
            what = f"value of attribute {number}, or the next id, is cut off"
            raise MessageError("TRUNCATED_EVENT", what, offset=at)
        values[number], number = _LINK.unpack_from(record, at)
        at += _LINK.size
        if number == 0:
            return values, at


def _read_bitmask(record: bytes, known: int) -> tuple[dict[int, int], int]:
    """(values, bytes of the header)."""
    if len(record) < _MASK.size:
        what = f"{len(record)} bytes; the bitmask alone has {_MASK.size}"
        raise MessageError("TRUNCATED_EVENT", what, offset=0)
    (mask,) = _MASK.unpack_from(record)
    if not mask:
        raise MessageError("EMPTY_EVENT", "no bit of the bitmask is set", offset=0)
    ids = [number for number in range(ATTRIBUTES) if mask >> number & 1]
    for number in ids:
        if not known >> number & 1:
            raise _unknown(number, 0)
    values: dict[int, int] = {}
    at = _MASK.size
    for number in ids:
        if at + _VALUE.size > len(record):
            what = f"attribute {number} is in the bitmask, its value is not there"
            raise MessageError("TRUNCATED_EVENT", what, offset=at)
        (values[number],) = _VALUE.unpack_from(record, at)
        at += _VALUE.size
    return values, at


def _unknown(number: int, offset: int) -> MessageError:
    what = f"id {number} is no attribute's; register it first"
    return MessageError("UNKNOWN_ATTRIBUTE", what, offset=offset)


def _id_pairs(pairs: list[tuple[int, int]]) -> bytes:
    following = [number for number, _ in pairs[1:]] + [0]
    links = zip(pairs, following, strict=True)
    return _ID.pack(pairs[0][0]) + b"".join(_LINK.pack(value, then) for (_, value), then in links)


def _bitmask(pairs: list[tuple[int, int]]) -> bytes:
    mask = sum(1 << number for number, _ in pairs)
    return _MASK.pack(mask) + b"".join(_VALUE.pack(value) for _, value in pairs)
