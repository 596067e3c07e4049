"""Plain reader and writer of attribute/value headers: the reference for kernels and proof.

It follows KUNDEL III-B with ``struct``, one event at a time, and shares no code with the kernels.

id pairs: an id, then a value (32 bits) and the next id, again and again; a next id of 0
ends the chain, so attribute 0 comes first or not at all. The others have any order, and are written
by ascending id. bitmask: attribute i is bit ``1 << i``, then the values by ascending id.
What follows is payload. All is big-endian.

Where a record has several faults, the first that a reader meets counts. It looks at the size of the
record, then goes from left to right: each id for what it is (unknown, there before), then
for its value and the next id; a bitmask for whether it is whole, says nothing or has an unknown
bit, then for its values.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.attributes.events import WIDTHS, Widths

__all__ = ["read_event", "write_event"]

_ID = {8: struct.Struct(">B"), 16: struct.Struct(">H")}
_LINK = {8: struct.Struct(">IB"), 16: struct.Struct(">IH")}
_MASK = {8 * each.size: each for each in map(struct.Struct, (">B", ">H", ">I", ">Q"))}
_VALUE = struct.Struct(">I")


def read_event(
    record: bytes, encoding: str, known: int, longest: int, widths: Widths = WIDTHS
) -> tuple[dict[int, int], bytes]:
    """Reads one record as (raw values by id, in the order of the record; payload).

    encoding: ``id_pairs`` or ``bitmask``. known: bitmask of the ids in use. longest: bytes that a
    record has at most.
    Raises MessageError EVENT_TOO_LARGE, EMPTY_EVENT, TRUNCATED_EVENT, UNKNOWN_ATTRIBUTE, ID_TWICE,
    with ``offset``, the byte where it stops making sense, and ``id``, that of the attribute, if one
    is at fault.
    """
    reader = {"id_pairs": _read_id_pairs, "bitmask": _read_bitmask}[encoding]
    if len(record) > longest:
        what = f"the event has {len(record)} bytes, but at most {longest} are allowed"
        raise MessageError("EVENT_TOO_LARGE", what, offset=longest)
    if not record:
        raise MessageError("EMPTY_EVENT", "the record is empty", offset=0)
    values, at = reader(record, known, widths)
    return values, record[at:]


def write_event(
    values: Mapping[int, int], encoding: str, payload: bytes = b"", widths: Widths = WIDTHS
) -> bytes:
    """Writes the record of an event: its header, then the payload. ``values``: raw values by id.

    Raises MessageError EMPTY_EVENT (no value), UNKNOWN_ATTRIBUTE (an id beyond the bitmask) or
    VALUE_OUT_OF_RANGE (not 32 bits).
    """
    writer = {"id_pairs": _id_pairs, "bitmask": _bitmask}[encoding]
    if not values:
        raise MessageError("EMPTY_EVENT", "an event must have at least one attribute")
    for number, value in values.items():
        if not 0 <= number < widths.bitmask:
            raise MessageError(
                "UNKNOWN_ATTRIBUTE", f"attribute id {number} is outside 0 to {widths.bitmask - 1}"
            )
        if not 0 <= value < 1 << 32:
            raise MessageError(
                "VALUE_OUT_OF_RANGE", f"value {value} of attribute {number} does not fit in 32 bits"
            )
    return writer(sorted(values.items()), widths) + payload


def _read_id_pairs(record: bytes, known: int, widths: Widths) -> tuple[dict[int, int], int]:
    """(values, bytes of the header)."""
    first, link = _ID[widths.id], _LINK[widths.id]
    values: dict[int, int] = {}
    if len(record) < first.size:
        raise MessageError(
            "TRUNCATED_EVENT", "the record ends inside the first attribute id", offset=0
        )
    (number,) = first.unpack_from(record)
    at = first.size
    while True:
        if number >= widths.bitmask or not known >> number & 1:
            raise _unknown(number, at - first.size)
        if number in values:
            what = f"the event contains attribute id {number} twice"
            raise MessageError("ID_TWICE", what, offset=at - first.size, id=number)
        if at + link.size > len(record):
            what = f"the record ends inside the value of attribute {number} or the next id"
            raise MessageError("TRUNCATED_EVENT", what, offset=at, id=number)
        values[number], number = link.unpack_from(record, at)
        at += link.size
        if number == 0:
            return values, at


def _read_bitmask(record: bytes, known: int, widths: Widths) -> tuple[dict[int, int], int]:
    """(values, bytes of the header)."""
    head = _MASK[widths.bitmask]
    if len(record) < head.size:
        what = f"the record has {len(record)} bytes, but the bitmask needs {head.size}"
        raise MessageError("TRUNCATED_EVENT", what, offset=0)
    (mask,) = head.unpack_from(record)
    if not mask:
        raise MessageError("EMPTY_EVENT", "the bitmask of the event has no bit set", offset=0)
    ids = [number for number in range(widths.bitmask) if mask >> number & 1]
    for number in ids:
        if not known >> number & 1:
            raise _unknown(number, 0)
    values: dict[int, int] = {}
    at = head.size
    for number in ids:
        if at + _VALUE.size > len(record):
            what = (
                f"the record ends inside the value of attribute {number}, which the bitmask "
                "announces"
            )
            raise MessageError("TRUNCATED_EVENT", what, offset=at, id=number)
        (values[number],) = _VALUE.unpack_from(record, at)
        at += _VALUE.size
    return values, at


def _unknown(number: int, offset: int) -> MessageError:
    what = f"attribute id {number} is not registered: add it to table attributes"
    return MessageError("UNKNOWN_ATTRIBUTE", what, offset=offset, id=number)


def _id_pairs(pairs: list[tuple[int, int]], widths: Widths) -> bytes:
    following = [number for number, _ in pairs[1:]] + [0]
    first, link = _ID[widths.id], _LINK[widths.id]
    links = zip(pairs, following, strict=True)
    return first.pack(pairs[0][0]) + b"".join(link.pack(value, then) for (_, value), then in links)


def _bitmask(pairs: list[tuple[int, int]], widths: Widths) -> bytes:
    mask = sum(1 << number for number, _ in pairs)
    return _MASK[widths.bitmask].pack(mask) + b"".join(_VALUE.pack(value) for _, value in pairs)
