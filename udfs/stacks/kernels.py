"""Compiled loops of the frame builder. Contracts are at :mod:`stackcast.udfs.stacks.frame`.

Indices and sums are unsigned: numba asks of every signed index whether it counts from the end, and
then LLVM makes no copies of whole words. Numbers that are compared are int64, since numba turns a
mix of both into float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

ETHERNET = 14
IPV4 = 20
UDP = 8
MOLDUDP64 = 20
#: In place of the number of a leaf's templates, where nobody has worked them out yet.
NOT_WORKED_OUT = -1
#: Faults of a message: it does not fit a frame of its own; nobody has templates of its leaf.
FINE, MISFIT, UNKNOWN = range(3)

_ONE, _EIGHT = np.uint64(1), np.uint64(8)
# Counting references to the arrays would take longer than most of these; ``_nrt`` is numba's own
# option for helpers.
_helper: Any = njit(cache=True, nogil=True, _nrt=False)


@_helper
def _copy(out, to, source, begin, size):  # type: ignore[no-untyped-def]
    to, begin = np.uint64(to), np.uint64(begin)
    for byte in range(np.uint64(size)):
        out[to + byte] = source[begin + byte]


@_helper
def _sum_words(data, begin, end):  # type: ignore[no-untyped-def]
    """Sums the big-endian 16-bit words of data[begin:end]; an odd last byte is padded with 0."""
    begin, end = np.uint64(begin), np.uint64(end)
    total = np.uint64(0)
    for word in range((end - begin) >> _ONE):
        at = begin + (word << _ONE)
        total += np.uint64(data[at]) << _EIGHT | np.uint64(data[at + _ONE])
    if (end - begin) & _ONE:
        total += np.uint64(data[end - _ONE]) << _EIGHT
    return np.int64(total)


@_helper
def _fold(total):  # type: ignore[no-untyped-def]
    """Folds a sum of words into the Internet checksum (RFC 1071)."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@_helper
def _put(data, at, value, size):  # type: ignore[no-untyped-def]
    """Writes a number as ``size`` bytes, big-endian."""
    for byte in range(size):
        data[np.uint64(at + byte)] = value >> 8 * (size - 1 - byte) & 0xFF


@_helper
def _finish(out, at, end, payload_sum):  # type: ignore[no-untyped-def]
    """Fills in lengths and checksums of the frame whose payload is out[at:end]."""
    udp = at - UDP
    ipv4 = udp - IPV4
    _put(out, ipv4 + 2, end - ipv4, 2)
    _put(out, ipv4 + 10, _fold(_sum_words(out, ipv4, udp)), 2)
    _put(out, udp + 4, end - udp, 2)
    # Pseudo header: both addresses, protocol 17, length (RFC 768).
    total = _sum_words(out, ipv4 + 12, udp) + 17 + (end - udp)
    checksum = _fold(total + _sum_words(out, udp, at) + payload_sum)
    # 0 would mean "no checksum".
    _put(out, udp + 6, checksum if checksum != 0 else 0xFFFF, 2)


@_helper
def _most(packet):  # type: ignore[no-untyped-def]
    """Returns the most messages that one packet has."""
    most = run = 0
    for message in range(packet.size):
        run = run + 1 if message and packet[message] == packet[message - 1] else 1
        most = max(most, run)
    return most


@_helper
def _group(  # type: ignore[no-untyped-def]
    leaf, packet, length, templates, longest, mtu, slot, head, tail, count, size, following
):
    """Groups the messages of one packet that share a leaf; a group ends when its frame is full.

    Fills in for each group its first message and its last, the number of messages and bytes of
    message blocks; for each message the next one of its group (-1: last). Groups stand in the order
    of their first messages, because messages stand in the order of their packets. ``slot``, -1
    everywhere, has a power of two of places, more than a packet has messages: a hash table from
    leaf to group, where groups of earlier packets count as free places.

    Returns the number of groups, a fault and its message.
    """
    mask = np.uint64(slot.size - 1)
    groups = 0
    first = 0
    for message in range(leaf.size):
        at = leaf[message]
        if not 0 <= at < templates.size or templates[at] == NOT_WORKED_OUT:
            return groups, UNKNOWN, message
        if at == 0 or templates[at] == 0:
            continue
        block = 2 + length[message]
        capacity = mtu - (longest[at] - ETHERNET) - MOLDUDP64
        if block > capacity:
            return groups, MISFIT, message
        if groups and packet[head[groups - 1]] != packet[message]:
            first = groups
        place = np.uint64(at) & mask
        while slot[place] >= first and leaf[head[slot[place]]] != at:
            place = (place + _ONE) & mask
        group = slot[place]
        if group < first or size[group] + block > capacity:
            group = groups
            groups += 1
            slot[place] = group
            head[group] = message
            count[group] = 0
            size[group] = 0
        else:
            following[tail[group]] = message
        tail[group] = message
        following[message] = -1
        count[group] += 1
        size[group] += block
    return groups, FINE, 0


@njit(cache=True, nogil=True)
def build(  # type: ignore[no-untyped-def]
    leaf, packet, index, message_start, length, source, base, sessions, pool, start, first,
    templates, longest, mtu, offset_shift, index_bits,
):  # fmt: skip
    """Writes every frame: template, MoldUDP64 header, message blocks, checksums.

    A leaf has ``templates`` of them, from ``first`` on; the longest has ``longest`` bytes. A
    frame's sequence number is made of the packet's ``base`` and the first message's ``index``.

    Returns ``(fault, message, out, offsets, leaf, template, packet, messages, sequence)``, by frame
    from offsets on.
    """
    total = leaf.size
    most = _most(packet)
    slots = 2
    while slots <= 2 * most:
        slots *= 2
    head = np.empty(total, np.int32)
    count = np.empty(total, np.int32)
    size = np.empty(total, np.int32)
    following = np.empty(total, np.int32)
    groups, fault, message = _group(
        leaf, packet, length, templates, longest, mtu, np.full(slots, -1, np.int32), head,
        np.empty(total, np.int32), count, size, following,
    )  # fmt: skip
    frames = 0
    if fault:
        groups = 0
    for group in range(groups):
        frames += templates[leaf[head[group]]]
    offsets = np.empty(frames + 1, np.int64)
    leaf_of = np.empty(frames, np.int32)
    template_of = np.empty(frames, np.int32)
    packet_of = np.empty(frames, np.int32)
    messages = np.empty(frames, np.int32)
    sequence = np.empty(frames, np.uint64)
    offsets[0] = 0
    frame = 0
    for group in range(groups):
        at = leaf[head[group]]
        number = packet[head[group]]
        for template in range(first[at], first[at] + templates[at]):
            header = start[template + 1] - start[template]
            offsets[frame + 1] = offsets[frame] + header + MOLDUDP64 + size[group]
            leaf_of[frame] = at
            template_of[frame] = template
            packet_of[frame] = number
            messages[frame] = count[group]
            sequence[frame] = base[number] << offset_shift | index[head[group]] << index_bits
            frame += 1
    out = np.empty(offsets[frames], np.uint8)
    frame = 0
    for group in range(groups):
        message = head[group]
        at = leaf[message]
        number = packet[message] if sessions.shape[0] > 1 else 0
        payload = np.int64(0)
        payload_sum = np.int64(0)
        for template in range(first[at], first[at] + templates[at]):
            header = start[template + 1] - start[template]
            _copy(out, offsets[frame], pool, start[template], header)
            to = offsets[frame] + header
            end = offsets[frame + 1]
            if payload:
                # Another stack for the same messages.
                _copy(out, to, out, payload, end - to)
            else:
                _copy(out, to, sessions[number], 0, 10)
                _put(out, to + 10, np.int64(sequence[frame]), 8)
                _put(out, to + 18, count[group], 2)
                block = to + MOLDUDP64
                while message >= 0:
                    _put(out, block, length[message], 2)
                    _copy(out, block + 2, source, message_start[message], length[message])
                    block += 2 + length[message]
                    message = following[message]
                payload_sum = _sum_words(out, to, end)
            payload = to
            _finish(out, to, end, payload_sum)
            frame += 1
    return fault, message, out, offsets, leaf_of, template_of, packet_of, messages, sequence


@njit(cache=True, nogil=True)
def write_datagrams(pool, start, template_of, payload, port, offsets, out):  # type: ignore[no-untyped-def]
    """Writes every frame into ``out``: template, with another destination port, and payload."""
    for frame in range(template_of.size):
        begin = offsets[frame]
        end = offsets[frame + 1]
        template = start[template_of[frame]]
        header = start[template_of[frame] + 1] - template
        _copy(out, begin, pool, template, header)
        at = begin + header
        _copy(out, at, payload[frame], 0, end - at)
        _put(out, at - UDP + 2, port, 2)
        _finish(out, at, end, _sum_words(out, at, end))
