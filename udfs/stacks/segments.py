"""Frames that go to the kernel together, which cuts them again (UDP_SEGMENT, udp(7))."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stackcast.udfs.messages.buffers import read_only

#: Frames that the kernel cuts out of one buffer, and bytes that a datagram's length has room for.
MOST_SEGMENTS, _MOST_BYTES = 64, 65_487


def segment_bounds(offsets: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Returns borders between groups of neighboring frames, int64[g + 1], 0 and the number of
    frames among them: those of a group have one size, ``most`` bytes at most, but for a shorter
    last one. As many as can be are in a group; larger frames are alone.

    offsets: int64[f + 1], borders between frames in a buffer without holes.
    """
    bounds: NDArray[np.int64] = _bounds(read_only(offsets, np.int64), most)
    return bounds


@njit(cache=True, nogil=True)
def _bounds(offsets, most):  # type: ignore[no-untyped-def]
    frames = offsets.size - 1
    found = np.empty(frames + 1, np.int64)
    number = at = 0
    while at < frames:
        found[number] = at
        number += 1
        size = offsets[at + 1] - offsets[at]
        end = at + 1
        while size <= most and end < frames and end - at < MOST_SEGMENTS:
            length = offsets[end + 1] - offsets[end]
            if length > size or length == 0 or offsets[end + 1] - offsets[at] > _MOST_BYTES:
                break
            end += 1
            if length < size:
                break
        at = end
    found[number] = frames
    return found[: number + 1]
