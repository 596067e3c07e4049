"""Attribute/value events as columns, which every encoding is read into and written from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ETHERTYPE", "FINE", "LONGEST_JSON", "REASONS", "WIDTHS", "Events", "Widths", "code_of"]


@dataclass(frozen=True)
class Widths:
    """Widths of headers (KUNDEL IV), in bits: whole bytes, as switches read them.

    id: k, of an id, 8 or 16. bitmask: n_max, 8, 16, 32 or 64; ids are 0 to one less.
    """

    id: int = 8
    bitmask: int = 32

    @property
    def ids(self) -> int:
        """The bitmask of all ids."""
        return (1 << self.bitmask) - 1

    @property
    def longest(self) -> int:
        """Bytes of the longest header: all attributes, as pairs of id and value."""
        return self.id // 8 + (self.id // 8 + 4) * self.bitmask


WIDTHS = Widths()
"""What headers have unless told otherwise."""

LONGEST_JSON = 1 << 16
"""Bytes of an event that is written as JSON: names and blanks are of its author's choice."""

ETHERTYPE = 0x9001
"""The EtherType of frames that begin with an attribute/value header."""

FINE = 0

#: Reasons that a record is no event, by code; none is a code of
#: `stackcast.udfs.messages.moldudp64.REASONS`.
REASONS = {
    64: "empty_event",  # no attribute at all
    65: "truncated_event",  # mask bits without values, a chain that does not end
    66: "unknown_attribute",  # an id, or a name, that the registry lacks
    67: "id_twice",
    68: "value_out_of_range",  # beyond 32 bits
    69: "not_a_number",  # NaN, infinity, text, true, false
    74: "not_a_text",  # where a text is wanted: a number, true, false, no printing ASCII
    70: "malformed_json",  # no object, cut off, or something after it
    71: "nested_json",
    72: "event_too_large",
    73: "outside_advertisement",
}

_CODES = {name: code for code, name in REASONS.items()}


def code_of(reason: str) -> int:
    """Returns the code of a reason's name."""
    return _CODES[reason]


@dataclass(frozen=True)
class Events:
    """Columns of n events, one for each record, read or not.

    mask: uint64[n], bit i says that attribute i is there; 0 where ``reason`` is not 0.
    values: uint32[n_max, n], raw values; 0 where the event lacks the attribute.
    reason: uint8[n], 0 or a code of `REASONS`.
    payload_start, payload_end: int64[n], borders of the payload in the bytes that were read; equal
    where there is none.
    """

    mask: NDArray[np.uint64]
    values: NDArray[np.uint32]
    reason: NDArray[np.uint8]
    payload_start: NDArray[np.int64]
    payload_end: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.mask)
