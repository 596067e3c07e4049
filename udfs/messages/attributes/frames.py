"""Events on a wire: Ethernet, then the header (KUNDEL III-B), and the way back.

A switch tells the encodings apart by the Ethernet destination. Frames to any other address than the
bitmasks' group are read as id pairs, as Listing 1 of the text would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.messages.attributes import kernels
from stackcast.udfs.messages.attributes.encodings import (
    BITMASK_GROUP,
    ENCODINGS,
    ID_PAIRS_GROUP,
    borders_of,
)
from stackcast.udfs.messages.attributes.events import ETHERTYPE, WIDTHS, Events, Widths
from stackcast.udfs.messages.buffers import read_only

__all__ = [
    "BITMASK_GROUP",
    "ID_PAIRS_GROUP",
    "Headers",
    "events_of_frames",
    "frames",
    "headers_of",
]

_NAMES = ("id_pairs", "bitmask")


@dataclass(frozen=True)
class Headers:
    """Columns of the m frames, of those that came, that carry an attribute/value header.

    frame: int64[m], its number. start, end: int64[m], its bytes after Ethernet, in the data.
    encoding: uint8[m], 0 for id pairs, 1 for a bitmask.
    """

    frame: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    encoding: NDArray[np.uint8]


def frames(
    offsets: NDArray[Any], data: NDArray[np.uint8], encoding: str, source_mac: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Makes a frame of each record of an encoding's ``encode``: (offsets int64[n + 1], data).

    Ethernet is 14 bytes: the encoding's group, ``source_mac``, 0x9001. A record of no bytes gives a
    frame of no bytes: send none. Frames are not padded to Ethernet's least length: what receives
    them could not tell padding from payload.
    Raises MessageError BAD_OFFSETS where the offsets fall or leave the data.
    """
    group = ENCODINGS[encoding].group
    head = group.to_bytes(6) + source_mac.to_bytes(6) + ETHERTYPE.to_bytes(2)
    borders: NDArray[np.int64]
    out: NDArray[np.uint8]
    borders, out = kernels.put_before(
        borders_of(offsets, data), read_only(data, np.uint8), np.frombuffer(head, np.uint8)
    )
    return borders, out


def headers_of(offsets: NDArray[Any], data: NDArray[np.uint8]) -> Headers:
    """Finds those of the frames ``data[offsets[i]:offsets[i + 1]]`` that are ours, in their order.

    Those with 14 bytes or more whose EtherType is 0x9001, whatever comes after it.
    Raises MessageError BAD_OFFSETS where the offsets fall or leave the data.
    """
    borders = borders_of(offsets, data)
    group = np.frombuffer(BITMASK_GROUP.to_bytes(6), np.uint8)
    frame, encoding = kernels.find_headers(borders, read_only(data, np.uint8), group)
    return Headers(frame, borders[frame] + kernels.ETHERNET, borders[frame + 1], encoding)


def events_of_frames(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    known: int,
    longest: int,
    widths: Widths = WIDTHS,
) -> tuple[NDArray[np.int64], Events]:
    """Reads the frames that are ours as (frame int64[m], its event); others are left out.

    known, longest: as for ``decode``; ``longest`` does not count Ethernet. The padding of a short
    frame is read as payload.
    Raises MessageError BAD_OFFSETS where the offsets fall or leave the data.
    """
    headers = headers_of(offsets, data)
    parts = []
    for code, name in enumerate(_NAMES):
        rows = np.flatnonzero(headers.encoding == code)
        start, end = headers.start[rows], headers.end[rows]
        part = ENCODINGS[name].of(widths).decode_between(start, end, data, known, longest)
        if len(rows) == len(headers.frame):
            return headers.frame, part
        parts.append((rows, part))
    return headers.frame, _together(len(headers.frame), parts, widths.bitmask)


def _together(count: int, parts: list[tuple[NDArray[np.int64], Events]], most: int) -> Events:
    """Joins one table of events from parts of it, each with its rows."""
    mask = np.zeros(count, np.uint64)
    values = np.zeros((most, count), np.uint32)
    reason = np.zeros(count, np.uint8)
    start, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for rows, part in parts:
        mask[rows] = part.mask
        reason[rows] = part.reason
        start[rows] = part.payload_start
        end[rows] = part.payload_end
        there = int(np.bitwise_or.reduce(part.mask))
        for number in range(most):
            if there >> number & 1:
                values[number, rows] = part.values[number]
    return Events(mask, values, reason, start, end)
