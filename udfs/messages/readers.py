"""Readers from Kafka's records to messages: a format knows its fields, and makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.messages import moldudp64
from stackcast.udfs.messages.attributes import events
from stackcast.udfs.messages.attributes.encodings import ENCODINGS
from stackcast.udfs.messages.attributes.events import Events, code_of
from stackcast.udfs.messages.attributes.faults import header_fault, json_fault
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.moldudp64 import Messages
from stackcast.udfs.messages.specification import Field, Specification

__all__ = [
    "NO_PUBLISHER",
    "OUTSIDE",
    "REASONS",
    "UNKNOWN_PUBLISHER",
    "AttributeEvents",
    "Format",
    "PacketReader",
    "Packets",
    "Read",
    "Reader",
]

Input = Literal["json", "id_pairs", "bitmask"]
Encoding = Literal["id_pairs", "bitmask"]

#: The codes of records and messages that name no publisher, or one that may not send.
NO_PUBLISHER, UNKNOWN_PUBLISHER = 128, 129

#: Reasons for dead letters, by code, in any format.
REASONS = (
    moldudp64.REASONS
    | events.REASONS
    | {NO_PUBLISHER: "no_publisher", UNKNOWN_PUBLISHER: "unknown_publisher"}
)

#: The code of messages that the publisher does not advertise.
OUTSIDE = code_of("outside_advertisement")


class Read(NamedTuple):
    """One batch as read: its messages, and the bytes that their ``start`` counts in."""

    messages: Messages
    content: NDArray[np.uint8]


class Reader(Protocol):
    """Reads batches of one format."""

    def read(self, batch: Batch) -> Read: ...

    def fault(self, content: bytes, reason: str) -> str:
        """Return the attribute, or the type of message, because of which this is a dead letter.

        It is slow, so it is for samples only.

        Args:
            content: the record or the message.
            reason: one of `REASONS`.

        Returns:
            The name; empty if no single attribute or type is at fault.
        """
        ...


class Format(Protocol):
    """One message format as a stream uses it. longest: bytes of its longest message."""

    @property
    def specification(self) -> Specification: ...
    @property
    def longest(self) -> int: ...
    def reader(self, fields: Sequence[Field], clocks: Sequence[Field]) -> Reader: ...


@dataclass(frozen=True)
class Packets:
    """The format of MoldUDP64 packets of typed messages, by a specification."""

    specification: Specification

    @property
    def longest(self) -> int:
        return max(header.length for header in self.specification.headers)

    def reader(self, fields: Sequence[Field], clocks: Sequence[Field]) -> Reader:
        """Returns a reader of the fields, then one column that all ``clocks`` share, if any."""
        return PacketReader(self.specification, tuple(fields), tuple(clocks))


@dataclass(frozen=True)
class PacketReader:
    """Reads batches of MoldUDP64 packets; columns as of `Packets.reader`."""

    specification: Specification
    fields: tuple[Field, ...]
    clocks: tuple[Field, ...]

    @cached_property
    def layout(self) -> moldudp64.Layout:
        # Once a reader: in real time a batch is one record.
        return moldudp64.layout_of(self.specification, self.fields, self.clocks)

    def read(self, batch: Batch) -> Read:
        messages = moldudp64.decode_by(self.layout, batch.borders, batch.content)
        return Read(messages, batch.content)

    def fault(self, content: bytes, reason: str) -> str:
        """Return the type of a message that is unknown, or the name of that of a wrong length."""
        if not content or reason not in ("unknown_message_type", "wrong_message_length"):
            return ""
        header = self.specification.header_of_type(content[0])
        if header is not None:
            return header.name
        character = chr(content[0])
        shows = character.isascii() and character.isprintable()
        return f"type {character}" if shows else f"type {content[0]:#04x}"


@dataclass(frozen=True)
class AttributeEvents:
    """The format of records of one attribute/value event each (KUNDEL III-B).

    source: the encoding of records. encoding: of the messages that go out. longest: bytes of the
    longest, and of a binary record; of JSON it is `events.LONGEST_JSON`.
    """

    registry: Registry
    source: Input
    encoding: Encoding
    longest: int

    @cached_property
    def specification(self) -> Specification:
        return self.registry.specification()

    def reader(self, fields: Sequence[Field], clocks: Sequence[Field]) -> Reader:
        """Returns a reader of the fields; attributes are no clocks."""
        ids = tuple(self.registry.ids_of(fields))
        return _EventReader(self.registry, self.source, self.encoding, self.longest, ids)


@dataclass(frozen=True)
class _EventReader:
    registry: Registry
    source: Input
    encoding: Encoding
    longest: int
    ids: tuple[int, ...]

    def read(self, batch: Batch) -> Read:
        found = self._events(batch)
        reason = found.reason
        encoding = ENCODINGS[self.encoding].of(self.registry.widths)
        written, content = encoding.encode(found, batch.content)
        length = np.diff(written)
        # The other encoding may be longer than what came.
        reason = np.where(length > self.longest, np.uint8(code_of("event_too_large")), reason)
        sound = np.flatnonzero(reason == 0)
        ids = list(self.ids)
        mask = found.mask[sound]
        count = len(sound)
        messages = Messages(
            packet=sound.astype(np.int32),
            index=np.zeros(count, np.int32),
            start=written[sound].astype(np.int64),
            length=length[sound].astype(np.int32),
            message_type=np.zeros(count, np.uint8),
            values=found.values[ids][:, sound].astype(np.uint64),
            message_reason=np.zeros(count, np.uint8),
            packet_reason=reason.astype(np.uint8),
            count=(reason == 0).astype(np.int32),
            present=(mask >> np.array(ids, np.uint64).reshape(-1, 1) & np.uint64(1)).astype(
                np.bool_
            ),
        )
        return Read(messages, content)

    def fault(self, content: bytes, reason: str) -> str:
        """Return the name of the attribute that is at fault, or ``id 9`` if the id has no name."""
        if self.source == "json":
            return json_fault(content, reason, self._json)
        return header_fault(content, reason, self.source, self.registry)

    @cached_property
    def _json(self) -> JsonReader:
        return JsonReader(self.registry)

    def _events(self, batch: Batch) -> Events:
        if self.source == "json":
            return self._json.read(batch.borders, batch.content)
        source = ENCODINGS[self.source].of(self.registry.widths)
        return source.decode(batch.borders, batch.content, self.registry.known, self.longest)
