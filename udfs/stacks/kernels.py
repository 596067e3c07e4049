"""Compiled loops of the frame builder. Contracts are at :mod:`udfs.stacks.frame`.

All integers are int64 inside: numba turns a mix of int64 and uint64 into float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

ETHERNET = 14
IPV4 = 20
UDP = 8
MOLDUDP64 = 20


@njit(cache=True, nogil=True)
def group_messages(leaf, packet, length, templates, capacity):  # type: ignore[no-untyped-def]
    """Groups the messages of one packet that share a leaf; a group ends when ``capacity`` is used
    up.

    ``capacity``: bytes of message blocks that a frame of each leaf may carry. ``templates``: how
    many each leaf has; without any, its messages are in no group.

    Returns ``(groups, head, count, size, following, misfit)``: the number of groups; per group its
    first message, number of messages and bytes of message blocks; per message the next one of its
    group (-1: last); the first message that does not fit alone (-1: all fit). Groups stand in the
    order of their first messages, because messages stand in the order of their packets.
    """
    total = leaf.size
    open_group = np.full(capacity.size, -1, np.int64)
    head = np.empty(total, np.int64)
    tail = np.empty(total, np.int64)
    count = np.empty(total, np.int64)
    size = np.empty(total, np.int64)
    following = np.full(total, -1, np.int64)
    groups = 0
    for message in range(total):
        at = leaf[message]
        if at == 0 or templates[at] == 0:
            continue
        block = 2 + length[message]
        if block > capacity[at]:
            return groups, head, count, size, following, message
        group = open_group[at]
        if (
            group < 0
            or packet[head[group]] != packet[message]
            or size[group] + block > capacity[at]
        ):
            group = groups
            groups += 1
            open_group[at] = group
            head[group] = message
            count[group] = 0
            size[group] = 0
        else:
            following[tail[group]] = message
        tail[group] = message
        count[group] += 1
        size[group] += block
    return groups, head, count, size, following, -1


@njit(cache=True, nogil=True)
def lay_out(group_leaf, size, first, templates, start):  # type: ignore[no-untyped-def]
    """Lays out a frame for each template of each group's leaf: ``(offsets, group, template)``.

    A leaf has ``templates`` of them, from ``first`` on.
    """
    frames = 0
    for group in range(group_leaf.size):
        frames += templates[group_leaf[group]]
    offsets = np.zeros(frames + 1, np.int64)
    group_of = np.empty(frames, np.int64)
    template_of = np.empty(frames, np.int64)
    frame = 0
    for group in range(group_leaf.size):
        at = group_leaf[group]
        for template in range(first[at], first[at] + templates[at]):
            header = start[template + 1] - start[template]
            offsets[frame + 1] = offsets[frame] + header + MOLDUDP64 + size[group]
            group_of[frame] = group
            template_of[frame] = template
            frame += 1
    return offsets, group_of, template_of


@njit(cache=True, nogil=True)
def _sum_words(data, begin, end):  # type: ignore[no-untyped-def]
    """Sums the big-endian 16-bit words of data[begin:end]; an odd last byte is padded with 0."""
    total = np.int64(0)
    for at in range(begin, end - 1, 2):
        total += (np.int64(data[at]) << 8) | np.int64(data[at + 1])
    if (end - begin) & 1:
        total += np.int64(data[end - 1]) << 8
    return total


@njit(cache=True, nogil=True)
def _fold(total):  # type: ignore[no-untyped-def]
    """Folds a sum of words into the Internet checksum (RFC 1071)."""
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@njit(cache=True, nogil=True)
def _put(data, at, value):  # type: ignore[no-untyped-def]
    data[at] = value >> 8
    data[at + 1] = value & 0xFF


@njit(cache=True, nogil=True)
def _finish(out, at, end, payload_sum):  # type: ignore[no-untyped-def]
    """Fills in lengths and checksums of the frame whose payload is out[at:end]."""
    udp = at - UDP
    ipv4 = udp - IPV4
    _put(out, ipv4 + 2, end - ipv4)
    _put(out, ipv4 + 10, _fold(_sum_words(out, ipv4, udp)))
    _put(out, udp + 4, end - udp)
    # Pseudo header: both addresses, protocol 17, length (RFC 768).
    total = _sum_words(out, ipv4 + 12, udp) + 17 + (end - udp)
    checksum = _fold(total + _sum_words(out, udp, at) + payload_sum)
    # 0 would mean "no checksum".
    _put(out, udp + 6, checksum if checksum != 0 else 0xFFFF)


@njit(cache=True, nogil=True)
def write_frames(  # type: ignore[no-untyped-def]
    pool, start, moldudp64, head, following, message_start, length, source, offsets, group_of,
    template_of, out,
):  # fmt: skip
    """Writes every frame into ``out``: template, MoldUDP64 header, message blocks, checksums."""
    payload = 0
    payload_end = 0
    payload_sum = 0
    for frame in range(group_of.size):
        group = group_of[frame]
        begin = offsets[frame]
        end = offsets[frame + 1]
        template = start[template_of[frame]]
        header = start[template_of[frame] + 1] - template
        for byte in range(header):
            out[begin + byte] = pool[template + byte]
        at = begin + header
        if frame > 0 and group_of[frame - 1] == group:
            # Another stack for the same messages: the payload is there already.
            for byte in range(payload_end - payload):
                out[at + byte] = out[payload + byte]
        else:
            for byte in range(MOLDUDP64):
                out[at + byte] = moldudp64[group, byte]
            to = at + MOLDUDP64
            message = head[group]
            while message >= 0:
                _put(out, to, length[message])
                to += 2
                for byte in range(length[message]):
                    out[to + byte] = source[message_start[message] + byte]
                to += length[message]
                message = following[message]
            payload_sum = _sum_words(out, at, end)
        payload = at
        payload_end = end

        _finish(out, at, end, payload_sum)


@njit(cache=True, nogil=True)
def write_datagrams(pool, start, template_of, payload, port, offsets, out):  # type: ignore[no-untyped-def]
    """Writes every frame into ``out``: template, with another destination port, and payload."""
    for frame in range(template_of.size):
        begin = offsets[frame]
        end = offsets[frame + 1]
        template = start[template_of[frame]]
        header = start[template_of[frame] + 1] - template
        for byte in range(header):
            out[begin + byte] = pool[template + byte]
        at = begin + header
        for byte in range(end - at):
            out[at + byte] = payload[frame, byte]
        _put(out, at - UDP + 2, port)
        _finish(out, at, end, _sum_words(out, at, end))
