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
def short_at(data, at):  # type: ignore[no-untyped-def]
    """Returns the number of two bytes; the index is unsigned, so that it is not one from the
    end."""
    at = np.uint64(at)
    return np.int64(data[at]) << 8 | np.int64(data[at + np.uint64(1)])


@njit(cache=True, nogil=True, _nrt=False)
def check_packet(data, begin, end, max_packet, max_messages, end_of_session):  # type: ignore[no-untyped-def]
    """Checks the framing of the record data[begin:end]: its reason, and how many messages it has;
    none unless the reason is FINE."""
    size = end - begin
    none = np.int64(0)
    if size == 0:
        return EMPTY_RECORD, none
    if size > max_packet:
        return RECORD_TOO_LARGE, none
    if size < HEADER:
        return TRUNCATED_HEADER, none
    count = short_at(data, begin + COUNT_AT)
    reason = FINE
    if count == 0:
        reason = HEARTBEAT
    elif count == end_of_session:
        reason = END_OF_SESSION
        count = none
    if count > max_messages:
        return TOO_MANY_MESSAGES, none
    at = begin + HEADER
    for _ in range(count):
        if at + LENGTH > end:
            at = end + 1
            break
        at += LENGTH + short_at(data, at)
        if at > end:
            break
    if at > end:
        return TRUNCATED_MESSAGE, none
    if at < end:
        return TRAILING_BYTES, none
    return reason, count


@njit(cache=True, nogil=True, _nrt=False)
def check_message(data, at, size, lengths):  # type: ignore[no-untyped-def]
    """Returns the type of the message of so many bytes, and its reason; lengths as of
    `_read_messages`."""
    kind = data[np.uint64(at)] if size else np.uint8(0)
    if size == 0 or lengths[kind] < 0:
        return np.uint8(0), np.uint8(UNKNOWN_MESSAGE_TYPE)
    if lengths[kind] != size:
        return np.uint8(0), np.uint8(WRONG_MESSAGE_LENGTH)
    return kind, np.uint8(FINE)


@njit(cache=True, nogil=True, _nrt=False)
def number_at(data, at, width):  # type: ignore[no-untyped-def]
    """Returns the big-endian number of 0 to 8 bytes at data[at:]."""
    value = np.uint64(0)
    for byte in range(width):
        value = (value << np.uint64(8)) | np.uint64(data[np.uint64(at + byte)])
    return value


@njit(cache=True, nogil=True)
def decode(  # type: ignore[no-untyped-def]
    offsets, data, max_packet, max_messages, end_of_session, lengths, field_at, field_width
):
    """Returns whether the offsets rise and stay in the data, then the columns of
    `stackcast.udfs.messages.moldudp64.Messages`: none where they do not."""
    sound = are_sound(offsets, data)
    if not sound:
        offsets = offsets[:1]
    n = offsets.size - 1
    packet_reason = np.empty(n, np.uint8)
    counts = np.empty(n, np.int32)
    total = np.int64(0)
    for record in range(n):
        packet_reason[record], counts[record] = check_packet(
            data, offsets[record], offsets[record + 1], max_packet, max_messages, end_of_session
        )
        total += counts[record]
    packet, index, start, length, kind, reason, values = _read_messages(
        offsets, data, counts, total, lengths, field_at, field_width
    )
    return sound, packet, index, start, length, kind, values, reason, packet_reason, counts


@njit(cache=True, nogil=True, _nrt=False)
def are_sound(offsets, data):  # type: ignore[no-untyped-def]
    """Tells whether the offsets rise and stay in the data."""
    sound = offsets[0] >= 0 and offsets[-1] <= data.size
    for record in range(offsets.size - 1):
        sound &= offsets[record] <= offsets[record + 1]
    return sound


@njit(cache=True, nogil=True)
def _read_messages(offsets, data, counts, total, lengths, field_at, field_width):  # type: ignore[no-untyped-def]
    """Reads positions, types and field values of all messages of sound packets.

    lengths: int32[256], length of a message by its first byte, -1 for an unknown one.
    field_at, field_width: int32[fields, 256], first byte and bytes of a field in a message of each
    type; width 0 where the type has not the field.
    """
    packet = np.empty(total, np.int32)
    index = np.empty(total, np.int32)
    start = np.empty(total, np.int64)
    length = np.empty(total, np.int32)
    kind = np.empty(total, np.uint8)
    reason = np.empty(total, np.uint8)
    fields = field_at.shape[0]
    values = np.zeros((fields, total), np.uint64)
    row = 0
    for record in range(offsets.size - 1):
        at = np.int64(offsets[record]) + HEADER
        for number in range(counts[record]):
            size = short_at(data, at)
            at += LENGTH
            packet[row] = record
            index[row] = number
            start[row] = at
            length[row] = size
            kind[row], reason[row] = check_message(data, at, size, lengths)
            if reason[row] == FINE:
                of = kind[row]
                for field in range(fields):
                    values[field, row] = number_at(
                        data, at + field_at[field, of], field_width[field, of]
                    )
            at += size
            row += 1
    return packet, index, start, length, kind, reason, values
