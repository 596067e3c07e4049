"""Reading and building packets the plain way: the reference for kernels, tests and people.

It follows the specification byte by byte in Python and shares no code with the compiled decoder.

Damage: where the framing (count, lengths, size of the record) does not add up, the whole packet is
refused, since none of its borders can be trusted. Where it adds up, a message of an unknown type or of
a wrong length is refused alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from udfs.errors import MessageError
from udfs.messages.sequence import MAX_MESSAGES
from udfs.messages.specification import Specification

HEADER = struct.Struct(">10sQH")
LENGTH = struct.Struct(">H")
END_OF_SESSION_COUNT = 0xFFFF
#: The largest payload of a UDP datagram over IPv4.
MAX_PACKET = 65_507


def read_packet(payload: bytes) -> tuple[bytes, int, list[bytes]]:
    """(session, sequence number, messages) of a MoldUDP64 packet.

    Heartbeats and ends of session have no messages. Raises MessageError EMPTY_RECORD,
    RECORD_TOO_LARGE, TRUNCATED_HEADER, TOO_MANY_MESSAGES, TRUNCATED_MESSAGE or TRAILING_BYTES.
    """
    if not payload:
        raise MessageError("EMPTY_RECORD", "the record has no bytes")
    if len(payload) > MAX_PACKET:
        raise MessageError("RECORD_TOO_LARGE", f"{len(payload)} bytes, a datagram has {MAX_PACKET}")
    if len(payload) < HEADER.size:
        raise MessageError("TRUNCATED_HEADER", f"{len(payload)} bytes, a header has {HEADER.size}")
    session, sequence, count = HEADER.unpack_from(payload)
    messages: list[bytes] = []
    at = HEADER.size
    if count == END_OF_SESSION_COUNT:
        count = 0
    if count > MAX_MESSAGES:
        raise MessageError("TOO_MANY_MESSAGES", f"{count} messages, {MAX_MESSAGES} are possible")
    for number in range(count):
        if at + LENGTH.size > len(payload):
            raise MessageError("TRUNCATED_MESSAGE", f"message {number} of {count} is cut off")
        (length,) = LENGTH.unpack_from(payload, at)
        at += LENGTH.size
        if at + length > len(payload):
            raise MessageError("TRUNCATED_MESSAGE", f"message {number} of {count} is cut off")
        messages.append(payload[at : at + length])
        at += length
    if at != len(payload):
        raise MessageError("TRAILING_BYTES", f"{len(payload) - at} bytes after the last message")
    return session, sequence, messages


def read_message(specification: Specification, message: bytes) -> dict[str, int]:
    """Raw values of all fields by qualified name.

    Raises MessageError UNKNOWN_MESSAGE_TYPE or WRONG_MESSAGE_LENGTH.
    """
    header = specification.header_of_type(message[0]) if message else None
    if header is None:
        raise MessageError("UNKNOWN_MESSAGE_TYPE", f"first byte {message[:1]!r}")
    if len(message) != header.length:
        raise MessageError(
            "WRONG_MESSAGE_LENGTH", f"{header.name} has {header.length} bytes, not {len(message)}"
        )
    whole = int.from_bytes(message, "big")
    width = 8 * len(message)
    return {
        f.qualified: (whole >> (width - f.bit_offset - f.bits)) & ((1 << f.bits) - 1)
        for f in header.fields
    }


def build_packet(session: bytes, sequence: int, messages: Sequence[bytes]) -> bytes:
    """A MoldUDP64 packet. ``session`` has 10 bytes."""
    blocks = b"".join(LENGTH.pack(len(m)) + m for m in messages)
    return HEADER.pack(session, sequence, len(messages)) + blocks


def read_binary_file(stream: BinaryIO) -> Iterator[bytes]:
    """Records of a Nasdaq BinaryFILE: a length of two bytes, then the message, again and again.

    Raises MessageError TRUNCATED_FILE where the file ends inside a record.
    """
    while head := stream.read(LENGTH.size):
        (length,) = LENGTH.unpack(head) if len(head) == LENGTH.size else (-1,)
        record = stream.read(length) if length >= 0 else b""
        if len(record) != length:
            raise MessageError("TRUNCATED_FILE", "the file ends inside a record")
        yield record
