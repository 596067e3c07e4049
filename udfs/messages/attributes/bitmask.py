"""Attributes as a bitmask of 32 bits, then their values by ascending id (KUNDEL III-B).

Big-endian; attribute i is bit ``1 << i``, so attribute 0 is the last bit. The text draws it as the
first one; its authors' publishers and parser have it last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from udfs.messages.attributes import kernels
from udfs.messages.attributes.events import Events
from udfs.messages.attributes.records import borders_of, read_records, write_records

__all__ = ["decode", "decode_between", "encode"]


def decode(offsets: NDArray[Any], data: NDArray[np.uint8], known: int, longest: int) -> Events:
    """The events of the records ``data[offsets[i]:offsets[i + 1]]``.

    offsets: int32[n + 1] or int64[n + 1], as Arrow has them; they need not start at 0. known:
    bitmask of the ids in use. longest: bytes that a record has at most, payload included. Any bytes
    are read safely: damage ends in a reason, the first that `udfs.messages.attributes.reference`
    meets.
    Raises MessageError BAD_OFFSETS where the offsets fall or leave the data.
    """
    borders = borders_of(offsets, data)
    return decode_between(borders[:-1], borders[1:], data, known, longest)


def decode_between(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    data: NDArray[np.uint8],
    known: int,
    longest: int,
) -> Events:
    """As `decode`, of the records ``data[starts[i]:ends[i]]`` (int64[n] each)."""
    return read_records(kernels.read_bitmasks, starts, ends, data, known, longest)


def encode(events: Events, data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The records of the events: (offsets int64[n + 1], data uint8[offsets[n]]).

    data: the bytes that payloads are taken from. An event with a reason, or without an attribute,
    takes no bytes.
    Raises MessageError BAD_OFFSETS where a payload does not lie within ``data``.
    """
    return write_records(kernels.write_bitmasks, kernels.MASK, kernels.VALUE, events, data)
