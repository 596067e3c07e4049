"""Compiled loops over Arrow buffers. They know framing and positions, nothing of any format."""

from __future__ import annotations

import numpy as np
from numba import njit

FINE = 0
HEARTBEAT = 1
END_OF_SESSION = 2
EMPTY_RECORD = 3
RECORD_TOO_LARGE = 4
TRUNCATED_HEADER = 5
TOO_MANY_MESSAGES = 6
TRUNCATED_MESSAGE = 7
TRAILING_BYTES = 8
UNKNOWN_MESSAGE_TYPE = 9
WRONG_MESSAGE_LENGTH = 10

HEADER = 20
COUNT_AT = 18
LENGTH = 2


# Counting references to the arrays would take longer than this; ``_nrt`` is numba's own option for
# helpers.
@njit(cache=True, nogil=True, _nrt=False)
def _short(data, at):  # type: ignore[no-untyped-def]
    """Returns the number of two bytes; the index is unsigned, so that it is not one from the
    end."""
    at = np.uint64(at)
    return np.int64(data[at]) << 8 | np.int64(data[at + np.uint64(1)])


@njit(cache=True, nogil=True)
def decode(  # type: ignore[no-untyped-def]
    offsets, data, max_packet, max_messages, end_of_session, lengths, field_at, field_width
):
    """Returns whether the offsets rise and stay in the data, then the columns of
    `udfs.messages.moldudp64.Messages`: none where they do not."""
    sound = offsets[0] >= 0 and offsets[-1] <= data.size
    for record in range(offsets.size - 1):
        sound &= offsets[record] <= offsets[record + 1]
    if not sound:
        offsets = offsets[:1]
    reason, total = _check_packets(offsets, data, max_packet, max_messages, end_of_session)
    packet, index, start, length, kind, message_reason, values = _read_messages(
        offsets, data, reason, total, lengths, field_at, field_width
    )
    return sound, packet, index, start, length, kind, values, message_reason, reason


@njit(cache=True, nogil=True)
def _check_packets(offsets, data, max_packet, max_messages, end_of_session):  # type: ignore[no-untyped-def]
    """Checks the framing of every record: ``(reason uint8[n], messages in sound packets)``."""
    n = offsets.size - 1
    reason = np.zeros(n, np.uint8)
    total = np.int64(0)
    for record in range(n):
        begin = np.int64(offsets[record])
        end = np.int64(offsets[record + 1])
        size = end - begin
        if size == 0:
            reason[record] = EMPTY_RECORD
            continue
        if size > max_packet:
            reason[record] = RECORD_TOO_LARGE
            continue
        if size < HEADER:
            reason[record] = TRUNCATED_HEADER
            continue
        count = _short(data, begin + COUNT_AT)
        if count == 0:
            reason[record] = HEARTBEAT
        elif count == end_of_session:
            reason[record] = END_OF_SESSION
            count = np.int64(0)
        if count > max_messages:
            reason[record] = TOO_MANY_MESSAGES
            continue
        at = begin + HEADER
        for _ in range(count):
            if at + LENGTH > end:
                at = end + 1
                break
            at += LENGTH + _short(data, at)
            if at > end:
                break
        if at > end:
            reason[record] = TRUNCATED_MESSAGE
        elif at < end:
            reason[record] = TRAILING_BYTES
        else:
            total += count
    return reason, total


@njit(cache=True, nogil=True)
def _read_messages(  # type: ignore[no-untyped-def]
    offsets, data, packet_reason, total, lengths, field_at, field_width
):
    """Reads positions, types and field values of all messages of sound packets.

    lengths: int32[256], length of a message by its first byte, -1 for an unknown one.
    field_at, field_width: int32[fields, 256], first byte and bytes of a field in a message of each
    type; width 0 where the type has not the field.
    """
    packet = np.empty(total, np.int32)
    index = np.empty(total, np.int32)
    start = np.empty(total, np.int64)
    length = np.empty(total, np.int32)
    kind = np.zeros(total, np.uint8)
    reason = np.zeros(total, np.uint8)
    fields = field_at.shape[0]
    values = np.zeros((fields, total), np.uint64)
    row = 0
    for record in range(offsets.size - 1):
        if packet_reason[record] != FINE:
            continue
        at = np.int64(offsets[record])
        count = _short(data, at + COUNT_AT)
        at += HEADER
        for number in range(count):
            size = _short(data, at)
            at += LENGTH
            packet[row] = record
            index[row] = number
            start[row] = at
            length[row] = size
            message_type = data[np.uint64(at)] if size else np.uint8(0)
            if size == 0 or lengths[message_type] < 0:
                reason[row] = UNKNOWN_MESSAGE_TYPE
            elif lengths[message_type] != size:
                reason[row] = WRONG_MESSAGE_LENGTH
            else:
                kind[row] = message_type
                for field in range(fields):
                    begin = at + field_at[field, message_type]
                    value = np.uint64(0)
                    for byte in range(field_width[field, message_type]):
                        value = (value << np.uint64(8)) | np.uint64(data[np.uint64(begin + byte)])
                    values[field, row] = value
            at += size
            row += 1
    return packet, index, start, length, kind, reason, values
