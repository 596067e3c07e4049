"""Framing of several messages a datagram: a header that counts them, then a length before each.

MoldUDP64 is such a framing. A switch examines the messages one by one and takes those off a copy
that its port does not want; so it must know their number, and the end of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stackcast.udfs.messages.specification import Header

COUNT = "count"
LENGTH = "length"
BITS = 16


@dataclass(frozen=True)
class Repetition:
    """One framing of several messages, by the names of its headers in the specification.

    header: ends with the field ``count``, the number of messages in the datagram.
    block: has only the field ``length``, the bytes of the message behind it.
    """

    header: str
    block: str


def repetition(framing: Sequence[Header], typed: bool) -> Repetition | None:
    """Returns the framing of several messages that a specification declares; None if it has none.

    ``framing``: its headers without a message type that follow UDP. There are two: the first ends
    with ``count: 16``, the other is nothing but ``length: 16``; and messages are ``typed``, as one
    must be told from another.
    """
    if not typed or len(framing) != 2:
        return None
    header, block = framing
    last = header.fields[-1]
    only = block.fields[0]
    if (last.name, last.bits) != (COUNT, BITS):
        return None
    if len(block.fields) != 1 or (only.name, only.bits) != (LENGTH, BITS):
        return None
    return Repetition(header.name, block.name)
