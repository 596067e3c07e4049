"""Decode and match in one compiled pass, which keeps of a batch only the messages that are sent.

Most messages are for nobody: a column of each would be written and read again for all of them. Here
messages are read a block at a time into columns that stay in the core's cache, and walked there.
"""

from __future__ import annotations

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
#: The code of a message that is for nobody; see `Matcher.walk`.
_NOBODY = ~0


def read_matched(
    layout: Layout, matcher: Matcher, delivery: NDArray[np.int32] | None, batch: Batch
) -> tuple[Messages, NDArray[np.int32]]:
    """Decodes and matches a batch; returns its messages that are sent or cannot be read, and the
    delivery of each: int32[m], 0 where it cannot be read.

    The same as `stackcast.udfs.messages.moldudp64.decode_by` and `Matcher.match` give, but for
    messages that are for nobody: these are counted alone. The result has no ``values``. layout: its
    columns are those of the matcher, which is without state. delivery: by leaf; None where both are
    the same. Raises MessageError BAD_OFFSETS.
    """
    sound, *columns, delivery_of, packet_reason, count = _read_matched(
        batch.borders,
        batch.content,
        *LIMITS,
        *layout,
        np.zeros(0, np.int32) if delivery is None else delivery,
        *matcher.tables,
    )
    check_offsets(sound, batch.content)
    packet, index, start, length, kind, reason = columns
    values = np.zeros((0, len(packet)), np.uint64)
    read = Messages(packet, index, start, length, kind, values, reason, packet_reason, count)
    return read, delivery_of


@njit(cache=True, nogil=True)
def _read_matched(  # type: ignore[no-untyped-def]
    offsets, data, max_packet, max_messages, end_of_session, lengths, field_at, field_width,
    of_leaf, first, start_code, stop, lane, by_hash, base, shift, last, begin, absent, bucket, low,
    following,
):  # fmt: skip
    """Returns whether the offsets are sound, the columns of `Messages` but for values, with
    deliveries, in the order of `read_matched`, and the counts of messages."""
    sound = are_sound(offsets, data)
    if not sound:
        offsets = offsets[:1]
    n = offsets.size - 1
    packet_reason = np.empty(n, np.uint8)
    counts = np.empty(n, np.int32)
    # No more than that can be kept; what is not written takes no memory.
    most = np.int64(0)
    for record in range(n):
        size = offsets[record + 1] - offsets[record]
        if HEADER <= size <= max_packet:
            told = short_at(data, offsets[record] + COUNT_AT)
            most += min(told, (size - HEADER) // LENGTH)
    kept = (
        np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int64),
        np.empty(most, np.int32), np.empty(most, np.uint8), np.empty(most, np.uint8),
        np.empty(most, np.int32),
    )  # fmt: skip
    end = np.int64(0)

    packet = np.empty(_BLOCK, np.int32)
    index = np.empty(_BLOCK, np.int32)
    start = np.empty(_BLOCK, np.int64)
    kind = np.empty(_BLOCK, np.uint8)
    reason = np.empty(_BLOCK, np.uint8)
    values = np.empty((field_at.shape[0], _BLOCK), np.uint64)
    codes = np.empty(_BLOCK, np.int32)
    waiting = np.empty(_BLOCK + 1, np.uint64)
    nothing = np.empty((0, 0), np.bool_)
    rows = np.uint64(0)
    for record in range(n):
        packet_reason[record], count = check_packet(
            data, offsets[record], offsets[record + 1], max_packet, max_messages, end_of_session
        )
        counts[record] = count
        at = offsets[record] + HEADER
        for number in range(count):
            size = short_at(data, at)
            at += LENGTH
            of, wrong = check_message(data, at, size, lengths)
            if wrong != FINE or first[of] != _NOBODY:
                packet[rows] = record
                index[rows] = number
                start[rows] = at
                kind[rows] = of
                reason[rows] = wrong
                for field in range(field_at.shape[0]):
                    values[field, rows] = number_at(
                        data, at + field_at[field, of], field_width[field, of]
                    )
                rows += np.uint64(1)
                if rows == _BLOCK:
                    walk_into(
                        codes, waiting, kind, values, nothing, first, start_code, stop, lane,
                        by_hash, base, shift, last, begin, absent, bucket, low, following,
                    )  # fmt: skip
                    end = _keep(kept, end, codes, of_leaf, data, packet, index, start, kind, reason)
                    rows = np.uint64(0)
            at += size
    walk_into(
        codes[:rows], waiting, kind, values, nothing, first, start_code, stop, lane,
        by_hash, base, shift, last, begin, absent, bucket, low, following,
    )  # fmt: skip
    end = _keep(kept, end, codes[:rows], of_leaf, data, packet, index, start, kind, reason)
    return (
        sound, kept[0][:end], kept[1][:end], kept[2][:end], kept[3][:end], kept[4][:end],
        kept[5][:end], kept[6][:end], packet_reason, counts,
    )  # fmt: skip


@njit(cache=True, nogil=True, _nrt=False)
def _keep(kept, end, codes, of_leaf, data, packet, index, start, kind, reason):  # type: ignore[no-untyped-def]
    """Copies what is to stay of a block behind what is kept already; returns where it ends."""
    for row in range(codes.size):
        leaf = ~codes[row]
        delivery = leaf if of_leaf.size == 0 else of_leaf[leaf]
        if reason[row] != FINE:
            delivery = 0
        if delivery != 0 or reason[row] != FINE:
            kept[0][end] = packet[row]
            kept[1][end] = index[row]
            kept[2][end] = start[row]
            kept[3][end] = short_at(data, start[row] - LENGTH)
            kept[4][end] = kind[row]
            kept[5][end] = reason[row]
            kept[6][end] = delivery
            end += 1
    return end
