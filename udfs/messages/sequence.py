"""Sequence numbers and sessions of outgoing packets: functions of the source, of nothing else.

A session identifies one partition of one log: a topic that is created again under the same name has
new sessions, and so has a topic whose log Kafka has truncated.

A frame's MoldUDP64 sequence number is made of the Kafka offset and of the place of its first
message in the source packet; the messages in the frame count up by one, as MoldUDP64 says. Every
message has 2^13 numbers of its own, so the ranges of two frames never overlap, however the messages
of a packet are spread over frames::

    | offset, 38 bits | index of the first message, 13 bits | place in the frame, 13 bits |
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import MessageError

INDEX_BITS = 13
OFFSET_SHIFT = 2 * INDEX_BITS
#: A UDP datagram of ITCH messages holds at most 4,679.
MAX_MESSAGES = (1 << INDEX_BITS) - 1
SESSION_LENGTH = 10
#: Kafka offsets that sequence numbers of 63 bits hold: below 2^37.
MAX_OFFSET = (1 << 63 - OFFSET_SHIFT) - 1

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Topic(NamedTuple):
    """A Kafka topic with all that its sessions depend on.

    An offset of a partition belongs to one record only as long as none of these changes.

    Attributes:
        name: name of the topic.
        id: id that Kafka gave the topic when it was created, as ``kafka-topics.sh --describe``
            prints it; empty if the broker is older than Kafka 2.8.
        generation: 0, and one more each time that the stream continues after Kafka has truncated
            the log.
    """

    name: str
    id: str = ""
    generation: int = 0


@overload
def sequence_number(offset: int, index: int) -> int: ...
@overload
def sequence_number(offset: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.int64]: ...
def sequence_number(
    offset: int | NDArray[np.int64], index: int | NDArray[np.int64]
) -> int | NDArray[np.int64]:
    """Returns the sequence number of a frame; offset <= MAX_OFFSET, index <= MAX_MESSAGES."""
    return (offset << OFFSET_SHIFT) | (index << INDEX_BITS)


def split_sequence(sequence: int) -> tuple[int, int]:
    """Splits a frame's sequence number into (Kafka offset, index of the first message)."""
    return sequence >> OFFSET_SHIFT, (sequence >> INDEX_BITS) & MAX_MESSAGES


def session_id(topic: Topic, partition: int) -> bytes:
    """Returns the session of a topic's partition.

    Args:
        topic: topic with its id and generation.
        partition: 0 to 1,679,615 (36^4 - 1).

    Returns:
        10 characters: 6 for the topic, a digest of name, id and generation, and 4 for the
        partition.

    Raises:
        MessageError: BAD_PARTITION.
    """
    if not 0 <= partition < 36**4:
        raise MessageError(
            "BAD_PARTITION",
            f"partition {partition} does not fit in the four digits of a session id",
        )
    name = f"{topic.name}\0{topic.id}\0{topic.generation}".encode()
    digest = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
    return (_base36(digest, 6) + _base36(partition, 4)).encode("ascii")


def _base36(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
