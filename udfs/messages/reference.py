"""Plain reader and builder of packets: the reference for kernels, tests and people.

It follows the specification byte by byte in Python and shares no code with the compiled decoder.

Damage: where the framing (count, lengths, size of the record) does not add up, the whole packet is
refused, since none of its borders can be trusted. Where it adds up, a message of an unknown type or
of a wrong length is refused alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.sequence import MAX_MESSAGES, SESSION_LENGTH
from stackcast.udfs.messages.specification import Specification

HEADER = struct.Struct(">10sQH")
LENGTH = struct.Struct(">H")
END_OF_SESSION_COUNT = 0xFFFF
#: The largest payload of a UDP datagram over IPv4.
MAX_PACKET = 65_507


def read_packet(payload: bytes) -> tuple[bytes, int, list[bytes]]:
    """Reads a MoldUDP64 packet as (session, sequence number, messages).

    Heartbeats and ends of session have no messages. Raises MessageError EMPTY_RECORD,
    RECORD_TOO_LARGE, TRUNCATED_HEADER, TOO_MANY_MESSAGES, TRUNCATED_MESSAGE or TRAILING_BYTES, with
    ``offset``, the byte of the packet where it stops making sense.
    """
    if not payload:
        raise MessageError("EMPTY_RECORD", "the record is empty", offset=0)
    if len(payload) > MAX_PACKET:
        what = f"the record has {len(payload)} bytes, but a UDP datagram has at most {MAX_PACKET}"
        raise MessageError("RECORD_TOO_LARGE", what, offset=MAX_PACKET)
    if len(payload) < HEADER.size:
        what = f"the record has {len(payload)} bytes, but the packet header needs {HEADER.size}"
        raise MessageError("TRUNCATED_HEADER", what, offset=len(payload))
    session, sequence, count = HEADER.unpack_from(payload)
    messages: list[bytes] = []
    at = HEADER.size
    if count == END_OF_SESSION_COUNT:
        count = 0
    if count > MAX_MESSAGES:
        what = f"the header announces {count} messages, but a packet has at most {MAX_MESSAGES}"
        raise MessageError("TOO_MANY_MESSAGES", what, offset=HEADER.size - LENGTH.size)
    for number in range(count):
        begin = at + LENGTH.size
        end = begin + int.from_bytes(payload[at:begin], "big")
        if max(begin, end) > len(payload):
            what = f"the packet ends inside message {number} (counted from 0) of {count}"
            raise MessageError("TRUNCATED_MESSAGE", what, offset=at)
        messages.append(payload[begin:end])
        at = end
    if at != len(payload):
        what = f"{len(payload) - at} bytes follow the last of {count} messages"
        raise MessageError("TRAILING_BYTES", what, offset=at)
    return session, sequence, messages


def read_message(specification: Specification, message: bytes) -> dict[str, int]:
    """Reads the raw values of all fields by qualified name.

    Raises MessageError UNKNOWN_MESSAGE_TYPE or WRONG_MESSAGE_LENGTH.
    """
    header = specification.header_of_type(message[0]) if message else None
    if header is None:
        what = f"begins with byte {message[0]:#04x}" if message else "is empty"
        raise MessageError(
            "UNKNOWN_MESSAGE_TYPE",
            f"the message {what}, which is not a message type of {specification.name}",
        )
    if len(message) != header.length:
        raise MessageError(
            "WRONG_MESSAGE_LENGTH",
            f"a message of type {header.name} has {header.length} bytes, but this one has "
            f"{len(message)}",
        )
    whole = int.from_bytes(message, "big")
    width = 8 * len(message)
    return {
        f.qualified: (whole >> (width - f.bit_offset - f.bits)) & ((1 << f.bits) - 1)
        for f in header.fields
    }


def build_packet(session: bytes, sequence: int, messages: Sequence[bytes]) -> bytes:
    """Builds a MoldUDP64 packet; without messages it is a heartbeat.

    Raises MessageError BAD_SESSION (not 10 bytes), BAD_SEQUENCE (not 64 bits), TOO_MANY_MESSAGES
    or RECORD_TOO_LARGE.
    """
    if len(session) != SESSION_LENGTH:
        raise MessageError("BAD_SESSION", f"session {session!r} must have {SESSION_LENGTH} bytes")
    if not 0 <= sequence < 1 << 64:
        raise MessageError("BAD_SEQUENCE", f"sequence number {sequence} does not fit in 64 bits")
    if len(messages) > MAX_MESSAGES:
        raise MessageError(
            "TOO_MANY_MESSAGES",
            f"a packet of {len(messages)} messages is not possible: the maximum is {MAX_MESSAGES}",
        )
    size = HEADER.size + sum(LENGTH.size + len(m) for m in messages)
    if size > MAX_PACKET:
        raise MessageError(
            "RECORD_TOO_LARGE",
            f"the packet would have {size} bytes, but a UDP datagram has at most {MAX_PACKET}",
        )
    blocks = b"".join(LENGTH.pack(len(m)) + m for m in messages)
    return HEADER.pack(session, sequence, len(messages)) + blocks


def read_binary_file(stream: BinaryIO, *, with_ends: bool = False) -> Iterator[bytes]:
    """Yields the records of a Nasdaq BinaryFILE, to its last byte.

    A record is a length of two bytes and a message. A record of length 0 ends a session, and
    another session may follow it.

    Args:
        stream: the file.
        with_ends: whether to yield the records of length 0, too.

    Raises:
        MessageError: TRUNCATED_FILE, with the ``offset`` of the record in which the file ends.
    """
    offset = 0
    while head := stream.read(LENGTH.size):
        length = int.from_bytes(head)
        record = stream.read(length)
        if len(head) < LENGTH.size or len(record) < length:
            raise MessageError(
                "TRUNCATED_FILE",
                f"the file ends inside the record at byte {offset}",
                offset=offset,
            )
        if record or with_ends:
            yield record
        offset += LENGTH.size + length
