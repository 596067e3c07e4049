"""State between batches as bytes: small, versioned, and read without running anything."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Iterator, Mapping

import numpy as np

from stackcast.udfs.errors import StreamError
from stackcast.udfs.filters.matching.cells import CELL, Carried

_CELLS = b"SCC1"
_SOURCES = b"SCS1"
_COUNT = struct.Struct("<I")
_SOURCE = struct.Struct("<iI")


def pack(carried: Carried) -> bytes:
    """Packs the cells of one source that are not empty.

    ``SCC1`` and then, by zlib: their number u32, the bytes of each name u32, names (UTF-8), and
    cells (``CELL``); little-endian.
    """
    held = np.flatnonzero(carried.cells["count"])
    names = [carried.names[at].encode() for at in held.tolist()]
    lengths = np.array([len(name) for name in names], "<u4")
    body = _COUNT.pack(len(names)) + lengths.tobytes() + b"".join(names)
    cells = np.ascontiguousarray(carried.cells[held], CELL)
    return _CELLS + zlib.compress(body + cells.tobytes(), 1)


def unpack(packed: bytes) -> Carried:
    """Inverts ``pack``. Errors: ``StreamError`` STATE_UNREADABLE."""
    try:
        if packed[:4] != _CELLS:
            raise ValueError("the data is not a saved state")
        body = zlib.decompress(packed[4:])
        (count,) = _COUNT.unpack_from(body)
        at = _COUNT.size + 4 * count
        names = []
        for length in np.frombuffer(body, "<u4", count, _COUNT.size).tolist():
            names.append(body[at : at + length].decode())
            at += length
        if len(body) != at + count * CELL.itemsize:
            raise ValueError("the data is truncated or longer than its header says")
        return Carried(tuple(names), np.frombuffer(body, CELL, count, at))
    except (ValueError, struct.error, zlib.error) as error:
        raise _unreadable(error) from error


def retain(packed: bytes, names: Container[str]) -> bytes:
    """Returns the same without cells of other ``names``."""
    carried = unpack(packed)
    keep = [at for at, name in enumerate(carried.names) if name in names]
    if len(keep) == len(carried.names):
        return packed
    return pack(Carried(tuple(carried.names[at] for at in keep), carried.cells[keep]))


def pack_sources(sources: Mapping[int, bytes]) -> bytes:
    """Packs the state of several sources, by partition.

    ``SCS1``, their number u32, then of each the partition i32, the bytes u32 and the packed state.
    """
    parts = [_SOURCES, _COUNT.pack(len(sources))]
    for partition, packed in sorted(sources.items()):
        parts += [_SOURCE.pack(partition, len(packed)), packed]
    return b"".join(parts)


def unpack_sources(content: bytes) -> dict[int, bytes]:
    """Inverts ``pack_sources``. Errors: ``StreamError`` STATE_UNREADABLE."""
    try:
        return dict(_sources(content))
    except (ValueError, struct.error) as error:
        raise _unreadable(error) from error


def _sources(content: bytes) -> Iterator[tuple[int, bytes]]:
    if content[:4] != _SOURCES:
        raise ValueError("the data is not a saved state")
    (count,) = _COUNT.unpack_from(content, 4)
    at = 4 + _COUNT.size
    for _ in range(count):
        partition, length = _SOURCE.unpack_from(content, at)
        at += _SOURCE.size + length
        yield partition, content[at - length : at]
    if at != len(content):
        raise ValueError("the data is truncated or longer than its header says")


def _unreadable(error: Exception) -> StreamError:
    return StreamError(
        "STATE_UNREADABLE", f"the state that an earlier batch saved cannot be read: {error}"
    )
