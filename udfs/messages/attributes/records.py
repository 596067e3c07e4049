"""What both encodings do around their kernels: check borders, hold the columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udfs.buffers import read_only
from udfs.errors import MessageError
from udfs.messages.attributes import kernels
from udfs.messages.attributes.events import ATTRIBUTES, Events

__all__ = ["borders_of", "read_records", "write_records"]

_IDS = (1 << ATTRIBUTES) - 1


def borders_of(offsets: NDArray[Any], data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Offsets as int64[n + 1], read-only, that lie within the data and do not fall.

    Raises MessageError BAD_OFFSETS where they do.
    """
    # Arrow may leave out the offsets of an array without records.
    borders = read_only(offsets if len(offsets) else np.zeros(1), np.int64)
    if borders[0] < 0 or borders[-1] > len(data) or bool((borders[1:] < borders[:-1]).any()):
        raise MessageError(
            "BAD_OFFSETS", f"offsets must rise from 0 to at most {len(data)}, the bytes there are"
        )
    return borders


def read_records(
    kernel: Callable[..., Any],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    data: NDArray[np.uint8],
    known: int,
    longest: int,
) -> Events:
    """The events of the records ``data[starts[i]:ends[i]]``, by a kernel of one encoding.

    Raises MessageError BAD_OFFSETS where a record ends before it starts or leaves the data.
    """
    begin, end = read_only(starts, np.int64), read_only(ends, np.int64)
    content = read_only(data, np.uint8)
    if begin.shape != end.shape or bool(((begin < 0) | (end < begin) | (end > content.size)).any()):
        raise MessageError(
            "BAD_OFFSETS", f"each record must lie within the {content.size} bytes there are"
        )
    # From numpy, not from the kernel: columns of attributes that no event has are never touched.
    values = np.zeros((ATTRIBUTES, begin.size), np.uint32)
    mask, reason, payload = kernel(begin, end, content, known & _IDS, longest, values)
    return Events(mask, values, reason, payload, end.copy())


def write_records(
    kernel: Callable[..., Any], fixed: int, each: int, events: Events, data: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """``(offsets, data)`` of the events' records, by a kernel of one encoding.

    fixed, each: bytes of its header, and for each attribute.
    Raises MessageError BAD_OFFSETS where a payload does not lie within ``data``.
    """
    content = read_only(data, np.uint8)
    mask = read_only(events.mask, np.uint32)
    start = read_only(events.payload_start, np.int64)
    end = read_only(events.payload_end, np.int64)
    reason = read_only(events.reason, np.uint8)
    offsets, bad = kernels.lay_out(mask, reason, start, end, content.size, fixed, each)
    if bad >= 0:
        raise MessageError(
            "BAD_OFFSETS",
            f"payload of event {bad} is bytes {start[bad]} to {end[bad]}; "
            f"it must lie within the {content.size} bytes there are",
        )
    return offsets, kernel(offsets, mask, read_only(events.values, np.uint32), start, content)
