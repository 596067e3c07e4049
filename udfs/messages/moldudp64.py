"""MoldUDP64 packets to columns: one compiled pass over Arrow's offsets and bytes.

MoldUDP64 1.00: session (10 bytes), sequence number (8), count (2), then ``count`` blocks of a
length (2) and a message; count 0 is a heartbeat, 0xFFFF the end of the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import MessageError, SpecificationError
from stackcast.udfs.messages import kernels
from stackcast.udfs.messages.buffers import read_only
from stackcast.udfs.messages.kernels import END_OF_SESSION, HEARTBEAT
from stackcast.udfs.messages.reference import END_OF_SESSION_COUNT, MAX_PACKET
from stackcast.udfs.messages.sequence import MAX_MESSAGES
from stackcast.udfs.messages.specification import MAX_VALUE_BITS, Field, Specification

__all__ = ["END_OF_SESSION", "HEARTBEAT", "REASONS", "Messages", "decode"]

#: Reasons for dead letters, by code; heartbeats and ends of session are none.
REASONS = {
    kernels.EMPTY_RECORD: "empty_record",
    kernels.RECORD_TOO_LARGE: "record_too_large",
    kernels.TRUNCATED_HEADER: "truncated_header",
    kernels.TOO_MANY_MESSAGES: "too_many_messages",
    kernels.TRUNCATED_MESSAGE: "truncated_message",
    kernels.TRAILING_BYTES: "trailing_bytes",
    kernels.UNKNOWN_MESSAGE_TYPE: "unknown_message_type",
    kernels.WRONG_MESSAGE_LENGTH: "wrong_message_length",
}


@dataclass(frozen=True)
class Messages:
    """Columns of the m messages of n records, in the order of the records.

    packet: int32[m], record a message came in. index: int32[m], its place there.
    start: int64[m], its first byte in the data, after its length. length: int32[m], bytes.
    message_type: uint8[m], its first byte, 0 where the message cannot be read.
    values: uint64[columns, m], raw values, 0 where the message has not the field.
    message_reason: uint8[m], 0 or a code of `REASONS`.
    packet_reason: uint8[n], 0, HEARTBEAT, END_OF_SESSION or a code of `REASONS`; a record with one
    has no messages here.
    count: int32[n], messages of each record, those that were left out here, too.
    present: bool[columns, m], False where the message lacks the field; None where the message type
    says it.
    """

    packet: NDArray[np.int32]
    index: NDArray[np.int32]
    start: NDArray[np.int64]
    length: NDArray[np.int32]
    message_type: NDArray[np.uint8]
    values: NDArray[np.uint64]
    message_reason: NDArray[np.uint8]
    packet_reason: NDArray[np.uint8]
    count: NDArray[np.int32]
    present: NDArray[np.bool_] | None = None

    def without(self, reason: NDArray[np.uint8]) -> Messages:
        """Returns these as if records could not be read that have a ``reason``, uint8[n]; a reason
        that is there already stays."""
        kept = reason[self.packet] == 0
        return Messages(
            self.packet[kept],
            self.index[kept],
            self.start[kept],
            self.length[kept],
            self.message_type[kept],
            np.ascontiguousarray(self.values[:, kept]),
            self.message_reason[kept],
            np.where(self.packet_reason == 0, reason, self.packet_reason),
            np.where(reason == 0, self.count, np.int32(0)),
            None if self.present is None else np.ascontiguousarray(self.present[:, kept]),
        )


#: What kernels take by these names: max_packet, max_messages, end_of_session.
LIMITS = (MAX_PACKET, MAX_MESSAGES, END_OF_SESSION_COUNT)

Layout = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]


def decode(
    specification: Specification,
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    fields: Sequence[Field],
    clocks: Sequence[Field] = (),
) -> Messages:
    """Decodes the records ``data[offsets[i]:offsets[i + 1]]``; columns for ``fields`` only.

    ``clocks``: fields of different headers that share one more column, the last.
    offsets: int32[n + 1] or int64[n + 1], as Arrow has them. Any bytes are read safely: damage ends
    in a reason (see `stackcast.udfs.messages.reference` for the rule).
    Raises SpecificationError FIELD_TOO_WIDE or FIELD_NOT_ALIGNED for a field that has no column,
    MessageError BAD_OFFSETS where the offsets fall or leave the data.
    """
    return decode_by(layout_of(specification, fields, clocks), offsets, data)


def decode_by(layout: Layout, offsets: NDArray[Any], data: NDArray[np.uint8]) -> Messages:
    """Decodes by the ``layout`` that :func:`layout_of` made of specification, fields and clocks."""
    content = read_only(data, np.uint8)
    sound, *columns = kernels.decode(
        # Arrow may leave out the offsets of an array without records.
        read_only(offsets if len(offsets) else np.zeros(1), np.int64),
        content,
        *LIMITS,
        *layout,
    )
    check_offsets(sound, content)
    return Messages(*columns)


def check_offsets(sound: bool, content: NDArray[np.uint8]) -> None:
    """Returns if the offsets are ``sound``. Raises MessageError BAD_OFFSETS."""
    if not sound:
        raise MessageError(
            "BAD_OFFSETS",
            f"offsets must not decrease, and must lie between 0 and {content.size}, the size of "
            "the data",
        )


def layout_of(
    specification: Specification, fields: Sequence[Field], clocks: Sequence[Field]
) -> Layout:
    """Makes the kernel's tables: message lengths, and the place of each field, by message type.

    Raises SpecificationError as :func:`decode` does.
    """
    lengths = np.full(256, -1, np.int32)
    columns = [*((field,) for field in fields), *([clocks] if clocks else [])]
    at = np.zeros((len(columns), 256), np.int32)
    width = np.zeros((len(columns), 256), np.int32)
    for header in specification.headers:
        if header.message_type is None:
            continue
        lengths[header.message_type] = header.length
        for number, field in ((n, f) for n, column in enumerate(columns) for f in column):
            if field.header != header.name:
                continue
            if field.bits > MAX_VALUE_BITS:
                raise SpecificationError(
                    "FIELD_TOO_WIDE",
                    f"field {field.qualified} has {field.bits} bits, but a column can hold at "
                    f"most {MAX_VALUE_BITS}",
                )
            if field.bits % 8 or field.bit_offset % 8:
                raise SpecificationError(
                    "FIELD_NOT_ALIGNED", f"field {field.qualified} does not consist of whole bytes"
                )
            at[number, header.message_type] = field.bit_offset // 8
            width[number, header.message_type] = field.bits // 8
    return lengths, at, width
