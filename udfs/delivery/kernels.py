"""Compiled loop of the summaries.

Numbers are uint64 inside: numba turns a mix with int64 into float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

GAMMA = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


@njit(cache=True, nogil=True)
def tally(template, sequence, messages, notifications, last, digest):  # type: ignore[no-untyped-def]
    """Adds f frames to the tallies of t templates, in place.

    template: int32[f]. sequence: uint64[f], of the first message. messages: int32[f], how many.
    notifications: int64[t], frames. last: uint64[t], largest sequence number, 0 if there is none.
    digest: uint64[t], sum mod 2^64 of splitmix64(sequence + messages).
    """
    for frame in range(template.size):
        at = template[frame]
        notifications[at] += 1
        last[at] = max(last[at], sequence[frame])
        z = sequence[frame] + np.uint64(messages[frame]) + GAMMA
        z = (z ^ (z >> np.uint64(30))) * FIRST
        z = (z ^ (z >> np.uint64(27))) * SECOND
        digest[at] += z ^ (z >> np.uint64(31))
