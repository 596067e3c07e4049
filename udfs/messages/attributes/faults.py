"""Names the attribute because of which a record is no event.

These functions read one record at a time in Python, so they are for samples of bad records and for
lines that a command reports, never for all records. They take the reason from the compiled readers
and look only for the attribute that it applies to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined] # typeshed does not list it
from typing import NamedTuple

import numpy as np

from stackcast.udfs.errors import MessageError, printable
from stackcast.udfs.messages.attributes.events import code_of
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.reference import read_event
from stackcast.udfs.messages.attributes.registry import Registry

__all__ = ["header_fault", "json_fault"]

#: Members of an object that are looked position: the limit bounds what a sample costs.
_MOST_MEMBERS = 128
#: Characters of a name that are shown. A name may have as many as a record has room for.
_LONGEST_NAME = 64
_OPENING = ("{", "[")
_BLANKS = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(
    r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9.eE+-])"
    r"|true|false|null|NaN|-?Infinity"
)
#: Reasons that one member of an object is to blame for.
_OF_MEMBERS = frozenset(
    {
        *("nested_json", "malformed_json", "unknown_attribute", "id_twice"),
        *("value_out_of_range", "not_a_number", "not_a_text"),
    }
)


class _Member(NamedTuple):
    """A name and the text of its value.

    Of an object or a list it is the bracket. It is empty if the object breaks off there.
    """

    name: str
    value: str


def json_fault(record: bytes, reason: str, reader: JsonReader) -> str:
    """Return the name because of which a record of JSON is no event; empty if no name is.

    Args:
        record: the record.
        reason: its reason, as ``reader`` finds it.
        reader: reader of the records.
    """
    if reason not in _OF_MEMBERS:
        return ""
    members = list(_members(record.decode("utf-8", "replace")))
    attributes = reader.registry.by_name
    if reason == "nested_json":
        names = [member.name for member in members if member.value in _OPENING]
    elif reason == "malformed_json":
        names = [member.name for member in members if not member.value]
    elif reason == "unknown_attribute":
        names = [m.name for m in members if m.name not in attributes and m.value != "null"]
    elif reason == "id_twice":
        names = _repeated(members)
    else:
        suspects = [m for m in members if m.name in attributes and m.value not in ("", "null")]
        names = _with_reason(suspects, reason, reader)
    return _shown(names[0]) if names else ""


def header_fault(record: bytes, reason: str, encoding: str, registry: Registry) -> str:
    """Return the attribute because of which a header is no event; empty if no attribute is.

    An id that no attribute has is returned as ``id 9``.

    Args:
        record: the record.
        reason: its reason.
        encoding: ``id_pairs`` or ``bitmask``.
        registry: the attributes.
    """
    try:
        read_event(record, encoding, registry.known, len(record), registry.widths)
    except MessageError as error:
        number = error.fields.get("id")
        if number is not None and error.what.lower() == reason:
            names = {attribute.id: attribute.name for attribute in registry.attributes}
            return names.get(number, f"id {number}")
    return ""


def _members(text: str) -> Iterator[_Member]:
    """Yields the members of an object up to the first that is nested, or where it breaks off."""
    position = _after_blanks(text, 0)
    if text[position : position + 1] != "{":
        return
    for _ in range(_MOST_MEMBERS):
        position = _after_blanks(text, position + 1)
        if text[position : position + 1] != '"':
            return
        try:
            name, position = scanstring(text, position + 1, True)
        except ValueError:
            return
        position = _after_blanks(text, position)
        if text[position : position + 1] != ":":
            return
        position = _after_blanks(text, position + 1)
        end = _end_of_value(text, position)
        value, position = text[position:end], _after_blanks(text, end)
        following = text[position : position + 1]
        nested = value in _OPENING
        yield _Member(name, value if nested or following in (",", "}") else "")
        if nested or following != ",":
            return


def _end_of_value(text: str, position: int) -> int:
    """Returns where the value at a place ends: after the bracket of an object or a list, at the
    place itself if there is no value."""
    first = text[position : position + 1]
    if first in _OPENING:
        return position + 1
    if first == '"':
        try:
            return int(scanstring(text, position + 1, True)[1])
        except ValueError:
            return position
    scalar = _SCALAR.match(text, position)
    return scalar.end() if scalar else position


def _after_blanks(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    return blanks.end() if blanks else position


def _repeated(members: list[_Member]) -> list[str]:
    """Returns the names that come again, in the order in which they do."""
    names: set[str] = set()
    repeated = []
    for member in members:
        if member.name in names:
            repeated.append(member.name)
        names.add(member.name)
    return repeated


def _with_reason(members: list[_Member], reason: str, reader: JsonReader) -> list[str]:
    """Returns the names whose values have a reason if they are the only ones of an event."""
    records = [f"{{{json.dumps(m.name)}: {m.value}}}".encode() for m in members]
    borders = np.cumsum([0, *map(len, records)], dtype=np.int64)
    reasons = reader.read(borders, np.frombuffer(b"".join(records), np.uint8)).reason
    return [members[n].name for n in np.flatnonzero(reasons == code_of(reason)).tolist()]


def _shown(name: str) -> str:
    text = printable(name[:_LONGEST_NAME])
    return text if len(name) <= _LONGEST_NAME else f"{text}..."
