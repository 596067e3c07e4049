"""Writes ITCH messages with the layouts of the format specification.

There is one source of layouts, ``schemas/messages/itch.spec``: the packers here are made
from it, so generator and decoders cannot drift apart unseen.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from stackcast import schemas
from stackcast.udfs.errors import SpecificationError
from stackcast.udfs.messages.specification import Header, Specification, parse_specification

# Big-endian codes of the integer widths that struct knows; every other width, and all text,
# is written as bytes.
_CODES = {16: "H", 32: "I", 64: "Q"}

Packer = Callable[..., bytes]


@cache
def itch_specification() -> Specification:
    """Returns the ITCH 5.0 format specification that ships with the project."""
    return parse_specification(schemas.read_text("messages/itch.spec"), "itch")


class MessageWriter:
    """Packs messages by the name of their header.

    ``pack(name, *values)`` takes the values of all fields after the message type, in the order
    of the specification: ``int`` for numbers of 16, 32 and 64 bits, ``bytes`` of the right length
    for text and for the 48-bit timestamp.
    """

    def __init__(self, specification: Specification | None = None) -> None:
        headers = (specification or itch_specification()).headers
        self._packers: dict[str, Packer] = {
            header.name: _packer(header) for header in headers if header.message_type is not None
        }

    def names(self) -> tuple[str, ...]:
        """Returns names of all headers that are messages."""
        return tuple(self._packers)

    def pack(self, name: str, *values: Any) -> bytes:
        """Returns one message."""
        return self._packers[name](*values)


#: Bytes of a message up to the end of its timestamp.
STAMPED = 11


def timestamp(message: bytes) -> int:
    """Nanoseconds since midnight; every ITCH 5.0 message has them in the same place."""
    return int.from_bytes(message[5:11], "big")


def _packer(header: Header) -> Packer:
    codes = ["s"]
    for field in header.fields[1:]:
        if field.bits % 8:
            raise SpecificationError(
                "UNALIGNED_FIELD", f"{field.qualified} is not a whole number of bytes"
            )
        text = field.kind == "string" or field.bits not in _CODES
        codes.append(f"{field.bits // 8}s" if text else _CODES[field.bits])
    pack = struct.Struct(">" + "".join(codes)).pack
    kind = bytes([header.message_type or 0])
    return lambda *values: pack(kind, *values)
