"""The two encodings of headers: reading, writing and sizes (KUNDEL III-B).

id pairs: an id, then a value (32 bits) and the next id, until that is 0, so attribute 0 comes
first or not at all. The others are read in any order, and written by ascending id. bitmask:
attribute i is bit ``1 << i``, then the values by ascending id. The text draws attribute 0 as
the first bit; its authors' publishers and parser have it last. Both are big-endian, and payload
comes after the header.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.attributes import kernels
from stackcast.udfs.messages.attributes.events import WIDTHS, Events, Widths
from stackcast.udfs.messages.buffers import read_only

__all__ = [
    "BITMASK_GROUP",
    "ENCODINGS",
    "ID_PAIRS_GROUP",
    "Encoding",
    "borders_of",
    "header_bytes",
    "type_bits",
]

ID_PAIRS_GROUP = 0x03_53_43_00_00_01
BITMASK_GROUP = 0x03_53_43_00_00_02


@dataclass(frozen=True)
class Encoding:
    """One header layout.

    group: Ethernet destination of its frames, which tells a switch the encoding: both have one
    EtherType. reader, writer: kernels. leads: True if an id stands before each value.
    """

    name: str
    group: int
    reader: Callable[..., Any]
    writer: Callable[..., Any]
    leads: bool
    widths: Widths = WIDTHS

    def of(self, widths: Widths) -> Encoding:
        """Returns the same layout with these widths."""
        return replace(self, widths=widths)

    @property
    def _head(self) -> int:
        """Bytes of an id, or of the bitmask."""
        return (self.widths.id if self.leads else self.widths.bitmask) // 8

    def decode(
        self, offsets: NDArray[Any], data: NDArray[np.uint8], known: int, longest: int
    ) -> Events:
        """Reads the events of the records ``data[offsets[i]:offsets[i + 1]]``.

        offsets: int32[n + 1] or int64[n + 1], as Arrow has them; they need not start at 0. known:
        bitmask of the ids in use. longest: bytes that a record has at most, payload included. Any
        bytes are read safely: damage ends in a reason, the first that
        `stackcast.udfs.messages.attributes.reference` meets.
        Raises MessageError BAD_OFFSETS where the offsets fall or leave the data.
        """
        borders = borders_of(offsets, data)
        return self.decode_between(borders[:-1], borders[1:], data, known, longest)

    def decode_between(
        self,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        data: NDArray[np.uint8],
        known: int,
        longest: int,
    ) -> Events:
        """Reads the records ``data[starts[i]:ends[i]]`` (int64[n] each) as `decode` does."""
        begin, end = read_only(starts, np.int64), read_only(ends, np.int64)
        content = read_only(data, np.uint8)
        if begin.shape != end.shape or bool(
            ((begin < 0) | (end < begin) | (end > content.size)).any()
        ):
            raise MessageError(
                "BAD_OFFSETS",
                f"a record begins or ends outside the {content.size} bytes of the data",
            )
        # From numpy, not from the kernel: columns of attributes that no event has stay untouched.
        values = np.zeros((self.widths.bitmask, begin.size), np.uint32)
        ids = np.uint64(known & self.widths.ids)
        mask, reason, payload = self.reader(begin, end, content, ids, longest, self._head, values)
        return Events(mask, values, reason, payload, end.copy())

    def encode(
        self, events: Events, data: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Writes the records of the events: (offsets int64[n + 1], data uint8[offsets[n]]).

        data: the bytes that payloads are taken from. An event with a reason, or without an
        attribute, takes no bytes.
        Raises MessageError BAD_OFFSETS where a payload does not lie within ``data``.
        """
        content = read_only(data, np.uint8)
        mask = read_only(events.mask, np.uint64)
        start = read_only(events.payload_start, np.int64)
        end = read_only(events.payload_end, np.int64)
        reason = read_only(events.reason, np.uint8)
        offsets, bad = kernels.lay_out(
            mask,
            reason,
            start,
            end,
            content.size,
            self._head,
            kernels.VALUE + (self._head if self.leads else 0),
        )
        if bad >= 0:
            raise MessageError(
                "BAD_OFFSETS",
                f"the payload of event {bad} spans bytes {start[bad]} to {end[bad]}, but the data "
                f"has {content.size} bytes",
            )
        values = read_only(events.values, np.uint32)
        return offsets, self.writer(offsets, mask, values, start, content, self._head)


ENCODINGS: Mapping[str, Encoding] = MappingProxyType(
    {
        "id_pairs": Encoding(
            "id_pairs",
            ID_PAIRS_GROUP,
            kernels.read_id_pairs,
            kernels.write_id_pairs,
            True,
        ),
        "bitmask": Encoding(
            "bitmask",
            BITMASK_GROUP,
            kernels.read_bitmasks,
            kernels.write_bitmasks,
            False,
        ),
    }
)


def borders_of(offsets: NDArray[Any], data: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Returns offsets as int64[n + 1], read-only, that lie within the data and do not fall.

    Raises MessageError BAD_OFFSETS where they do.
    """
    # Arrow may leave out the offsets of an array without records.
    borders = read_only(offsets if len(offsets) else np.zeros(1), np.int64)
    if borders[0] < 0 or borders[-1] > len(data) or bool((borders[1:] < borders[:-1]).any()):
        raise MessageError(
            "BAD_OFFSETS",
            f"offsets must not decrease, and must lie between 0 and {len(data)}, the size of "
            "the data",
        )
    return borders


def type_bits(count: int, encoding: str, id_bits: int = 8, bitmask_bits: int = 32) -> int:
    """Counts the bits that name ``count`` attributes of an event, without values (KUNDEL Fig. 5).

    The id of each attribute and the one that ends the chain, ``id_bits`` each; or the bitmask's
    n_max. Of 32 bits that is smaller from n = 8 on with ids of 4 bits, where both are 32 at n = 7;
    with 8 bits both are 32 at n = 3. KUNDEL IV counts ``n * k``, without the end: both 32 at n = 8.

    Ids of 4 bits name 16 attributes only: beyond n = 16 the formula goes on, but no such header
    exists.
    """
    return {"id_pairs": (count + 1) * id_bits, "bitmask": bitmask_bits}[encoding]


def header_bytes(count: int, encoding: str, id_bits: int = 8) -> int:
    """Counts the bytes of a header with ``count`` attributes: `type_bits`, then 4 for each value.

    Half a byte, as ids of 4 bits may leave, is filled up: a payload begins with a whole one.
    """
    return -(-type_bits(count, encoding, id_bits) // 8) + 4 * count
