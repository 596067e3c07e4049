"""Attribute/value events read the plain way, for the proof: from Kafka's records and from frames.

JSON is read by Python's own parser, and values become raw ones by the rule of the registry alone
(``value = offset + raw * scale``); nothing here shares code with what the stream reads JSON with.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from stackcast.lab.proof.verification import Batch, FoundMessage, Framing, RecordReader
from stackcast.udfs.errors import MessageError
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.nodes import Node
from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP
from stackcast.udfs.messages.attributes.events import ETHERTYPE, LONGEST_JSON
from stackcast.udfs.messages.attributes.reference import read_event, write_event
from stackcast.udfs.messages.attributes.registry import Attribute, Registry

LONGEST = 1 << 20
"""Bytes of a record, where nobody says otherwise."""

FRAMES = Framing(14 + 18, 0)
"""A frame of EtherType 0x9001 beside its header: Ethernet, and the key that is its payload."""

_ETHERNET = 14
_LONGEST_NUMBER = 1000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Pairs = list[tuple[str, Any]]


def event_reader(
    source: str, encoding: str, longest: int = LONGEST, advertised: Node | None = None
) -> RecordReader:
    """Reads records of one event each, which hosts receive in ``encoding``.

    source: ``json``, ``id_pairs`` or ``bitmask``. longest: bytes of what goes
    out, and of a binary record.
    advertised: the condition that the publisher's events fulfil; others are dead letters.
    Batches must have a registry.
    """

    def read(record: bytes, batch: Batch) -> Iterator[FoundMessage]:
        registry = _registry(batch)
        if source == "json":
            values, payload = read_json(record, registry, LONGEST_JSON), b""
        else:
            values, payload = read_event(record, source, registry.known, longest, registry.widths)
        message = write_event(values, encoding, payload, registry.widths)
        if len(message) > longest:
            raise MessageError(
                "EVENT_TOO_LARGE", f"{len(message)} bytes, but the limit is {longest}"
            )
        event = _named(values, registry)
        outside = advertised is not None and not matches(advertised, event)
        return iter((FoundMessage(message, event, "outside_advertisement" if outside else ""),))

    return read


def frame_reader(longest: int = LONGEST) -> RecordReader:
    """Reads whole Ethernet frames as a publisher sent them: the header is the message.

    Frames to the bitmasks' group hold bitmasks, all others id pairs. A frame of another EtherType
    is the dead letter ``not_an_event``. Batches must have a registry.
    """

    def read(record: bytes, batch: Batch) -> Iterator[FoundMessage]:
        if record[12:_ETHERNET] != ETHERTYPE.to_bytes(2):
            return iter((FoundMessage(record, {}, "not_an_event"),))
        registry = _registry(batch)
        encoding = "bitmask" if record[:6] == BITMASK_GROUP.to_bytes(6) else "id_pairs"
        content = record[_ETHERNET:]
        values, payload = read_event(content, encoding, registry.known, longest, registry.widths)
        header = content[: len(content) - len(payload)]
        return iter((FoundMessage(header, _named(values, registry)),))

    return read


def read_json(record: bytes, registry: Registry, longest: int = LONGEST) -> dict[int, int]:
    """Raw values by id of an event that is a JSON object.

    A value is a number, or, of a timestamp, a number or ISO 8601 text; null says that the attribute
    is absent. Of several faults the first of this list counts.

    Raises MessageError EVENT_TOO_LARGE, MALFORMED_JSON, NESTED_JSON, UNKNOWN_ATTRIBUTE, ID_TWICE,
    VALUE_OUT_OF_RANGE, NOT_A_NUMBER, NOT_A_TEXT, EMPTY_EVENT.
    """
    if len(record) > longest:
        raise MessageError("EVENT_TOO_LARGE", f"{len(record)} bytes, but the limit is {longest}")
    pairs = _pairs(record)
    if any(isinstance(value, _Object | list) for _, value in pairs):
        raise MessageError("NESTED_JSON", "a value is an object or a list")
    for name, value in pairs:
        if value is not None and name not in registry.by_name:
            raise MessageError("UNKNOWN_ATTRIBUTE", f"{name!r} is not an attribute")
    if len(dict(pairs)) < len(pairs):
        raise MessageError("ID_TWICE", "a name occurs twice")
    given = {registry.by_name[name]: value for name, value in pairs if value is not None}
    texts = {one: value for one, value in given.items() if one.type == "text"}
    numbers = {one: _number(one, value) for one, value in given.items() if one not in texts}
    values: dict[int, int] = {}
    for one, number in numbers.items():
        if number is None:
            continue
        if one.type == "float":
            values[one.id] = _raw_float(one, number)
            continue
        # Half to even, as Python rounds.
        scaled = (number - float(one.offset)) / float(one.scale)
        raw = round(scaled) if math.isfinite(scaled) else -1
        if not 0 <= raw < 1 << 32:
            raise MessageError("VALUE_OUT_OF_RANGE", f"{one.name} is {number}")
        values[one.id] = raw
    for one, text in texts.items():
        if isinstance(text, str) and len(text) > 4 and text.isascii() and text.isprintable():
            raise MessageError("VALUE_OUT_OF_RANGE", f"{one.name} is {text!r}")
    for one, number in numbers.items():
        if number is None:
            raise MessageError("NOT_A_NUMBER", f"{one.name} is {given[one]!r}")
    for one, text in texts.items():
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise MessageError("NOT_A_TEXT", f"{one.name} is {text!r}")
        values[one.id] = int.from_bytes(f"{text:4}".encode())
    if not values:
        raise MessageError("EMPTY_EVENT", "the event has no attributes")
    return values


def _raw_float(one: Attribute, number: float) -> int:
    """Bits of the nearest float, those of negative ones counted down from 0."""
    try:
        (bits,) = struct.unpack(">i", struct.pack(">f", abs(number)))
    except OverflowError:
        raise MessageError("VALUE_OUT_OF_RANGE", f"{one.name} is {number}") from None
    return (1 << 31) + (bits if number >= 0 else -bits)


class _Object:
    """The pairs of a JSON object, names that are there twice too."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        for name, value in pairs:
            for text in (name, value if isinstance(value, str) else ""):
                text.encode()  # half of a surrogate pair is no character


def _double(text: str) -> float:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters")
    return float(text)


def _pairs(record: bytes) -> Pairs:
    try:
        # Numbers are doubles, whole ones too; NaN and infinity are told from what is no JSON.
        found = json.loads(
            record.decode(),
            object_pairs_hook=_Object,
            parse_float=_double,
            parse_int=_double,
            parse_constant=float,
        )
    except (ValueError, RecursionError) as error:
        raise MessageError("MALFORMED_JSON", str(error)) from None
    if not isinstance(found, _Object):
        raise MessageError("MALFORMED_JSON", "it is not an object")
    return found.pairs


def _number(attribute: Attribute, value: Any) -> float | None:
    """The number of a value, or None where it has none that is finite."""
    if isinstance(value, str) and attribute.type == "timestamp":
        value = _seconds(value)
    return value if isinstance(value, float) and math.isfinite(value) else None


def _seconds(text: str) -> float | None:
    """Seconds since 1970; a time without a zone is in UTC."""
    if text[4:5] + text[7:8] != "--":
        return None  # other forms of ISO 8601, which Python reads too: weeks, dates without hyphens
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return (time - _EPOCH).total_seconds()


def _named(values: Mapping[int, int], registry: Registry) -> dict[str, int]:
    return {one.name: values[one.id] for one in registry.attributes if one.id in values}


def _registry(batch: Batch) -> Registry:
    if batch.registry is None:
        raise ValueError(f"batch {batch.batch_id} has no registry of attributes")
    return batch.registry
