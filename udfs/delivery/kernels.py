"""Compiled loops of a task's counts and of the summaries.

Numbers of the digest are uint64: numba turns a mix with int64 into float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)

#: Totals of a partition. Sequence numbers are -1 where there is no frame.
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
    """Returns the place of each record's partition in ``known``, int32[n], and -1; or a partition
    that is not there."""
    rows = np.empty(partition.size, np.int32)
    row = 0
    for record in range(partition.size):
        one = partition[record]
        if row >= known.size or known[row] != one:
            row = 0
            while row < known.size and known[row] != one:
                row += 1
            if row == known.size:
                return rows, np.int64(one)
        rows[record] = row
    return rows, np.int64(-1)


@njit(cache=True, nogil=True)
def mix(sequence, messages):  # type: ignore[no-untyped-def]
    """Returns splitmix64(sequence + messages): uint64."""
    z = sequence + np.uint64(messages) + GAMMA
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def count(  # type: ignore[no-untyped-def]
    rows, offset, borders, messages_of, packet, delivery, borders_of_frames, template, packet_of,
    messages, sequence, totals, counts, last, digest,
):  # fmt: skip
    """Adds a batch to the counts of a task, in place.

    By record: rows int32[n], of its partition; offset int64[n]; borders int64[n + 1]; messages_of
    int32[n]. By message, where those for nobody may be left out:
    packet, delivery int32[m]. By frame: borders_of_frames int64[f + 1]; template, packet_of,
    messages int32[f]; sequence uint64[f]. totals: int64[p, TOTALS]. counts: int64[p, t, 3], frames,
    messages and bytes by template. last, digest: uint64[p, t], largest sequence number, 0 if there
    is none, and sum mod 2^64 of `mix`; t is 0 where nobody asks for these. Returns the largest
    offset, -1 without records.
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
        at = template[frame]
        size = borders_of_frames[frame + 1] - borders_of_frames[frame]
        number = np.int64(sequence[frame])
        total = totals[row]
        if total[_FRAMES] == 0:
            total[_FIRST] = number
        total[_LAST] = number
        total[_FRAMES] += 1
        total[_BYTES] += size
        counts[row, at, 0] += 1
        counts[row, at, 1] += messages[frame]
        counts[row, at, 2] += size
        if sums_up:
            last[row, at] = max(last[row, at], sequence[frame])
            digest[row, at] += mix(sequence[frame], messages[frame])
    return largest


@njit(cache=True, nogil=True)
def by_host(used, frames, last, digest, start, end, pool, hosts):  # type: ignore[no-untyped-def]
    """Returns tallies of h hosts: notifications int64[h], last and digest uint64[h].

    used: int64[], templates; frames, last, digest: by template. A template reaches the hosts
    ``pool[start:end]`` of its start and end.
    """
    notifications = np.zeros(hosts, np.int64)
    lasts = np.zeros(hosts, np.uint64)
    digests = np.zeros(hosts, np.uint64)
    for template in used:
        for at in range(start[template], end[template]):
            host = pool[at]
            notifications[host] += frames[template]
            lasts[host] = max(lasts[host], last[template])
            digests[host] += digest[template]
    return notifications, lasts, digests


@njit(cache=True, nogil=True)
def by_receiver(delivery, start, pool):  # type: ignore[no-untyped-def]
    """Returns messages and receivers, int32[k] each: message m once for each of
    ``pool[start[delivery[m]]:start[delivery[m] + 1]]``."""
    total = 0
    for message in range(delivery.size):
        total += start[delivery[message] + 1] - start[delivery[message]]
    messages = np.empty(total, np.int32)
    receivers = np.empty(total, np.int32)
    at = 0
    for message in range(delivery.size):
        for place in range(start[delivery[message]], start[delivery[message] + 1]):
            messages[at], receivers[at] = message, pool[place]
            at += 1
    return messages, receivers


@njit(cache=True, nogil=True)
def number_routes(  # type: ignore[no-untyped-def]
    publisher, delivery, slot, of_publisher, of_delivery, known, route
):
    """Writes the number of each pair of publisher and delivery to ``route``, int32[m].

    Pairs are numbered from ``known`` on in ``of_publisher`` and ``of_delivery``, int32[size], which
    new ones are added to, and found by ``slot``, int32, a power of two that is larger, -1 where it
    is free. 0: no delivery, or no publisher (-1). Returns how many numbers are given then, or the
    negative of that if there is no more room.
    """
    last = np.uint64(slot.size - 1)
    for i in range(delivery.size):
        if delivery[i] == 0 or publisher[i] < 0:
            route[i] = 0
            continue
        pair = np.uint64(publisher[i]) << np.uint64(32) | np.uint64(delivery[i])
        at = pair * GAMMA >> np.uint64(32) & last
        while True:
            number = slot[at]
            if number < 0:
                if known == of_delivery.size:
                    return -known
                of_publisher[known], of_delivery[known] = publisher[i], delivery[i]
                slot[at] = number = known
                known += 1
            if of_publisher[number] == publisher[i] and of_delivery[number] == delivery[i]:
                route[i] = number
                break
            at = (at + np.uint64(1)) & last
    return known
