"""Compiled loops for the counts of a task, its summaries and its routes.

The digest is computed with uint64 alone, because numba converts uint64 and int64 to float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)

#: Totals of a partition. Its sequence numbers are -1 if it has no frame.
TOTALS = (
    "from_offset",
    "until_offset",
    "first_sequence",
    "last_sequence",
    "packets",
    "read_bytes",
    "messages",
    "matched",
    "frames",
    "bytes",
)
(_FROM, _UNTIL, _FIRST, _LAST, _PACKETS, _READ_BYTES, _MESSAGES, _MATCHED, _FRAMES, _BYTES) = range(
    len(TOTALS)
)


@njit(cache=True, nogil=True)
def rows_of(partition, known):  # type: ignore[no-untyped-def]
    """Return the rows of partitions, or a partition that has none.

    Args:
        partition: int32[n], partition of each record.
        known: int32[p], partition of each row.

    Returns:
        int32[n], the row of each record, and -1; or the first partition that ``known`` does not
        contain.
    """
    rows = np.empty(partition.size, np.int32)
    row = 0
    for record in range(partition.size):
        number = partition[record]
        if row >= known.size or known[row] != number:
            row = 0
            while row < known.size and known[row] != number:
                row += 1
            if row == known.size:
                return rows, np.int64(number)
        rows[record] = row
    return rows, np.int64(-1)


@njit(cache=True, nogil=True)
def mix(sequence, messages):  # type: ignore[no-untyped-def]
    """Return splitmix64(sequence + messages) as uint64."""
    z = sequence + np.uint64(messages) + GAMMA
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def count(  # type: ignore[no-untyped-def]
    rows, offset, borders, messages_of, packet, delivery, borders_of_frames, template, packet_of,
    messages, sequence, totals, counts, last, digest,
):  # fmt: skip
    """Add a batch to the counts of a task, in place.

    Args:
        rows: int32[n], row of the partition of each record.
        offset: int64[n], offset of each record.
        borders: int64[n + 1], borders of the records in their data.
        messages_of: int32[n], number of messages of each record.
        packet: int32[m], record of each message. Messages without receivers may be left out.
        delivery: int32[m], delivery of each message.
        borders_of_frames: int64[f + 1], borders of the frames in their data.
        template: int32[f], template of each frame.
        packet_of: int32[f], record of each frame.
        messages: int32[f], number of messages of each frame.
        sequence: uint64[f], sequence number of each frame.
        totals: int64[p, TOTALS], totals by partition.
        counts: int64[p, t, 3], frames, messages and bytes by partition and template.
        last: uint64[p, t], largest sequence number, 0 if there is none; t is 0 without summaries.
        digest: uint64[p, t], sum mod 2^64 of `mix`; t is 0 without summaries.

    Returns:
        The largest offset, or -1 if there are no records.
    """
    largest = np.int64(-1)
    for record in range(rows.size):
        total = totals[rows[record]]
        if total[_PACKETS] == 0:
            total[_FROM] = offset[record]
        largest = max(largest, offset[record])
        total[_FROM] = min(total[_FROM], offset[record])
        total[_UNTIL] = max(total[_UNTIL], offset[record] + 1)
        total[_PACKETS] += 1
        total[_READ_BYTES] += borders[record + 1] - borders[record]
        total[_MESSAGES] += messages_of[record]
    for message in range(packet.size):
        totals[rows[packet[message]], _MATCHED] += delivery[message] != 0
    sums_up = digest.shape[1] > 0
    for frame in range(template.size):
        row = rows[packet_of[frame]]
        number_of_template = template[frame]
        size = borders_of_frames[frame + 1] - borders_of_frames[frame]
        number = np.int64(sequence[frame])
        total = totals[row]
        if total[_FRAMES] == 0:
            total[_FIRST] = number
        total[_LAST] = number
        total[_FRAMES] += 1
        total[_BYTES] += size
        count_of_template = counts[row, number_of_template]
        count_of_template[0] += 1
        count_of_template[1] += messages[frame]
        count_of_template[2] += size
        if sums_up:
            last[row, number_of_template] = max(last[row, number_of_template], sequence[frame])
            digest[row, number_of_template] += mix(sequence[frame], messages[frame])
    return largest


@njit(cache=True, nogil=True)
def by_host(templates, frames, last, digest, start, end, pool, hosts):  # type: ignore[no-untyped-def]
    """Return tallies of h hosts: notifications int64[h], last and digest uint64[h].

    Args:
        templates: int64[], the templates to add up.
        frames, last, digest: counts by template, see `count`.
        start, end: the hosts of a template are ``pool[start[template]:end[template]]``.
        pool: int32[], numbers of hosts.
        hosts: number of hosts.
    """
    notifications = np.zeros(hosts, np.int64)
    lasts = np.zeros(hosts, np.uint64)
    digests = np.zeros(hosts, np.uint64)
    for template in templates:
        for place in range(start[template], end[template]):
            host = pool[place]
            notifications[host] += frames[template]
            lasts[host] = max(lasts[host], last[template])
            digests[host] += digest[template]
    return notifications, lasts, digests


@njit(cache=True, nogil=True)
def by_receiver(delivery, start, pool):  # type: ignore[no-untyped-def]
    """Return messages and receivers, int32[k] each: a message once per receiver.

    Args:
        delivery: int32[m], delivery of each message.
        start: int64[d + 1], the receivers of a delivery d are ``pool[start[d]:start[d + 1]]``.
        pool: int32[], receivers.
    """
    total = 0
    for message in range(delivery.size):
        total += start[delivery[message] + 1] - start[delivery[message]]
    messages = np.empty(total, np.int32)
    receivers = np.empty(total, np.int32)
    row = 0
    for message in range(delivery.size):
        for place in range(start[delivery[message]], start[delivery[message] + 1]):
            messages[row], receivers[row] = message, pool[place]
            row += 1
    return messages, receivers


@njit(cache=True, nogil=True)
def number_routes(  # type: ignore[no-untyped-def]
    publisher, delivery, slot, publishers, deliveries, count, route
):
    """Number pairs of a publisher and a delivery with a hash table of open addressing.

    Args:
        publisher: int32[m], publisher of each pair; -1 if it is unknown.
        delivery: int32[m], delivery of each pair.
        slot: int32[], the hash table: number of a pair, or -1. Its size is a power of two, and
            larger than that of ``publishers``.
        publishers, deliveries: int32[], the numbered pairs. New pairs are added.
        count: number of the next pair.
        route: int32[m], gets the number of each pair; 0 without delivery or publisher.

    Returns:
        The new ``count``, or its negative if there is no room for a pair.
    """
    last = np.uint64(slot.size - 1)
    for i in range(delivery.size):
        if delivery[i] == 0 or publisher[i] < 0:
            route[i] = 0
            continue
        pair = np.uint64(publisher[i]) << np.uint64(32) | np.uint64(delivery[i])
        place = pair * GAMMA >> np.uint64(32) & last
        while True:
            number = slot[place]
            if number < 0:
                if count == deliveries.size:
                    return -count
                publishers[count], deliveries[count] = publisher[i], delivery[i]
                slot[place] = number = count
                count += 1
            if publishers[number] == publisher[i] and deliveries[number] == delivery[i]:
                route[i] = number
                break
            place = (place + np.uint64(1)) & last
    return count
