"""Decode and match in one compiled pass that only keeps the messages that are sent.

Most messages have no receiver: columns for all of them would be written and read again. This pass
reads messages a block at a time into columns that stay in the cache of the core, and matches them
there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stackcast.udfs.filters.matching.kernels import walk_into
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.kernels import (
    COUNT_AT,
    FINE,
    HEADER,
    LENGTH,
    are_sound,
    check_message,
    check_packet,
    number_at,
    short_at,
)
from stackcast.udfs.messages.moldudp64 import LIMITS, Layout, Messages, check_offsets

_BLOCK = 512
#: Code of a message without receivers; see `Matcher.walk`.
_NO_RECEIVER = ~0


class _Limits(NamedTuple):
    """Limits of a packet, see `stackcast.udfs.messages.moldudp64.LIMITS`."""

    packet: int
    messages: int
    end_of_session: int


class _Fields(NamedTuple):
    """Places of the fields in a message, see `stackcast.udfs.messages.moldudp64.Layout`.

    Attributes:
        length: int32[256], length of a message by type.
        start, width: int32[f, 256], place and width of each field by type.
    """

    length: NDArray[np.int32]
    start: NDArray[np.int32]
    width: NDArray[np.int32]


class _Sent(NamedTuple):
    """Columns of the messages that are sent or cannot be read, one element per message."""

    packet: NDArray[np.int32]
    position: NDArray[np.int32]
    start: NDArray[np.int64]
    length: NDArray[np.int32]
    kind: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    delivery: NDArray[np.int32]


class _Block(NamedTuple):
    """Columns of the messages that are matched together.

    Attributes:
        codes: gets the code of each message.
        waiting: working memory of the matcher.
        values: uint64[f, b], value of each field.
    """

    packet: NDArray[np.int32]
    position: NDArray[np.int32]
    start: NDArray[np.int64]
    kind: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    values: NDArray[np.uint64]
    codes: NDArray[np.int32]
    waiting: NDArray[np.uint64]
    present: NDArray[np.bool_]


def read_matched(
    layout: Layout, matcher: Matcher, delivery: NDArray[np.int32] | None, batch: Batch
) -> tuple[Messages, NDArray[np.int32]]:
    """Decode and match a batch, and return the messages that are sent or cannot be read.

    The result is that of `stackcast.udfs.messages.moldudp64.decode_by` and `Matcher.match` without
    the messages that have no receiver, which are only counted.

    Args:
        layout: places of the columns that the matcher takes.
        matcher: a matcher without state.
        delivery: delivery of each leaf; None if deliveries are numbered as leaves.
        batch: records to read.

    Returns:
        The messages without ``values``, and the delivery of each: int32[m], 0 for a message that
        cannot be read.

    Raises:
        MessageError: BAD_OFFSETS.
    """
    of_leaf = np.zeros(0, np.int32) if delivery is None else delivery
    sound, sent, packet_reason, counts = _read_matched(
        batch.borders, batch.content, _Limits(*LIMITS), _Fields(*layout), of_leaf, matcher.tables
    )
    check_offsets(sound, batch.content)
    values = np.zeros((0, len(sent.packet)), np.uint64)
    messages = Messages(
        *(sent.packet, sent.position, sent.start, sent.length, sent.kind),
        *(values, sent.reason, packet_reason, counts),
    )
    return messages, sent.delivery


@njit(cache=True, nogil=True)
def _read_matched(
    offsets: Any, data: Any, limits: Any, fields: Any, of_leaf: Any, tables: Any
) -> Any:
    """Return whether the offsets are sound, the columns of the messages that are sent or cannot be
    read, and the reason and the number of messages of each packet.

    Args:
        offsets: int64[n + 1], borders of the packets in ``data``.
        data: uint8[], the packets.
        limits: a `_Limits`.
        fields: a `_Fields`.
        of_leaf: int32[], delivery of each leaf, or empty if deliveries are numbered as leaves.
        tables: `Matcher.tables`.
    """
    sound = are_sound(offsets, data)
    if not sound:
        offsets = offsets[:1]
    n = offsets.size - 1
    packet_reason = np.empty(n, np.uint8)
    counts = np.empty(n, np.int32)
    sent = _room(offsets, data, limits)
    end = np.int64(0)
    block = _Block(
        np.empty(_BLOCK, np.int32),
        np.empty(_BLOCK, np.int32),
        np.empty(_BLOCK, np.int64),
        np.empty(_BLOCK, np.uint8),
        np.empty(_BLOCK, np.uint8),
        np.empty((fields.start.shape[0], _BLOCK), np.uint64),
        np.empty(_BLOCK, np.int32),
        np.empty(_BLOCK + 1, np.uint64),
        np.empty((0, 0), np.bool_),
    )
    first = tables[0]
    rows = np.uint64(0)
    for record in range(n):
        packet_reason[record], count = check_packet(
            data, offsets[record], offsets[record + 1],
            limits.packet, limits.messages, limits.end_of_session,
        )  # fmt: skip
        counts[record] = count
        start = offsets[record] + HEADER
        for number in range(count):
            size = short_at(data, start)
            start += LENGTH
            kind, reason = check_message(data, start, size, fields.length)
            if reason != FINE or first[kind] != _NO_RECEIVER:
                block.packet[rows] = record
                block.position[rows] = number
                block.start[rows] = start
                block.kind[rows] = kind
                block.reason[rows] = reason
                for field in range(fields.start.shape[0]):
                    block.values[field, rows] = number_at(
                        data, start + fields.start[field, kind], fields.width[field, kind]
                    )
                rows += np.uint64(1)
                if rows == _BLOCK:
                    end = _match(block, _BLOCK, tables, of_leaf, data, sent, end)
                    rows = np.uint64(0)
            start += size
    end = _match(block, np.int64(rows), tables, of_leaf, data, sent, end)
    return sound, _Sent(
        sent.packet[:end],
        sent.position[:end],
        sent.start[:end],
        sent.length[:end],
        sent.kind[:end],
        sent.reason[:end],
        sent.delivery[:end],
    ), packet_reason, counts  # fmt: skip


@njit(cache=True, nogil=True)
def _room(offsets: Any, data: Any, limits: Any) -> Any:
    """Return room for all messages that packets announce. Unused room takes no memory."""
    most = np.int64(0)
    for record in range(offsets.size - 1):
        size = offsets[record + 1] - offsets[record]
        if HEADER <= size <= limits.packet:
            announced = short_at(data, offsets[record] + COUNT_AT)
            most += min(announced, (size - HEADER) // LENGTH)
    return _Sent(
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(most, np.int64),
        np.empty(most, np.int32),
        np.empty(most, np.uint8),
        np.empty(most, np.uint8),
        np.empty(most, np.int32),
    )


@njit(cache=True, nogil=True)
def _match(block: Any, rows: Any, tables: Any, of_leaf: Any, data: Any, sent: Any, end: Any) -> Any:
    """Match the first rows of a block, append to ``sent`` what is sent or cannot be read, and
    return its new end."""
    codes = block.codes[:rows]
    walk_into(codes, block.waiting, block.kind, block.values, block.present, *tables)
    for row in range(rows):
        leaf = ~codes[row]
        delivery = leaf if of_leaf.size == 0 else of_leaf[leaf]
        reason = block.reason[row]
        if reason != FINE:
            delivery = 0
        if delivery != 0 or reason != FINE:
            sent.packet[end] = block.packet[row]
            sent.position[end] = block.position[row]
            sent.start[end] = block.start[row]
            sent.length[end] = short_at(data, block.start[row] - LENGTH)
            sent.kind[end] = block.kind[row]
            sent.reason[end] = reason
            sent.delivery[end] = delivery
            end += 1
    return end
