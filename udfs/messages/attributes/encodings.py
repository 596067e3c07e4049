"""The two encodings by name, the group that tells a switch which one it sees, and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from udfs.messages.attributes import bitmask, id_pairs
from udfs.messages.attributes.events import ATTRIBUTES, Events

__all__ = [
    "BITMASK_GROUP",
    "ENCODINGS",
    "ID_PAIRS_GROUP",
    "Encoding",
    "header_bytes",
    "type_bits",
]

ID_PAIRS_GROUP = 0x03_53_43_00_00_01
BITMASK_GROUP = 0x03_53_43_00_00_02


@dataclass(frozen=True)
class Encoding:
    """One header layout of KUNDEL III-B.

    group: Ethernet destination of its frames: both encodings have one EtherType.
    decode, decode_between, encode: as in `udfs.messages.attributes.id_pairs`.
    """

    name: str
    group: int
    decode: Callable[[NDArray[Any], NDArray[np.uint8], int, int], Events]
    decode_between: Callable[
        [NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], int, int], Events
    ]
    encode: Callable[[Events, NDArray[np.uint8]], tuple[NDArray[np.int64], NDArray[np.uint8]]]


ENCODINGS: Mapping[str, Encoding] = MappingProxyType(
    {
        "id_pairs": Encoding(
            "id_pairs", ID_PAIRS_GROUP, id_pairs.decode, id_pairs.decode_between, id_pairs.encode
        ),
        "bitmask": Encoding(
            "bitmask", BITMASK_GROUP, bitmask.decode, bitmask.decode_between, bitmask.encode
        ),
    }
)


def type_bits(count: int, encoding: str, id_bits: int = 8) -> int:
    """Bits that say which ``count`` attributes an event has, without their values (KUNDEL Fig. 5).

    The id of each attribute and the one that ends the chain, ``id_bits`` each; or the bitmask's
    n_max. With 4 bits both are 32 at n = 7, and the bitmask is smaller from n = 8; with 8 bits both
    are 32 at n = 3. KUNDEL IV counts ``n * k``, without the end: both 32 at n = 8.

    Ids of 4 bits name 16 attributes only: beyond n = 16 the formula goes on, but no such header
    exists.
    """
    return {"id_pairs": (count + 1) * id_bits, "bitmask": ATTRIBUTES}[encoding]


def header_bytes(count: int, encoding: str, id_bits: int = 8) -> int:
    """Bytes of a whole header with ``count`` attributes: `type_bits`, then 4 bytes for each value.

    Half a byte, as ids of 4 bits may leave, is filled up: a payload begins with a whole one.
    """
    return -(-type_bits(count, encoding, id_bits) // 8) + 4 * count
