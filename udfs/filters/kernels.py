"""Compiled loops of the matcher. An importable module, so that numba's cache works."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def walk(
    message_type: NDArray[np.uint8],
    values: NDArray[np.uint64],
    first_state: NDArray[np.int32],
    lane: NDArray[np.int32],
    begin: NDArray[np.int32],
    default: NDArray[np.int32],
    low: NDArray[np.uint64],
    high: NDArray[np.uint64],
    following: NDArray[np.int32],
) -> Any:
    """State in which each of m messages ends: int32[m].

    ``first_state[256]`` is the state after the message type. State s reads lane
    ``lane[s]`` of ``values`` (-1: a leaf), has the rows ``begin[s]`` to ``begin[s + 1]`` with
    ascending, disjoint ``low..high``, and goes to ``default[s]`` if none of them fits.
    """
    count = message_type.shape[0]
    result = np.empty(count, np.int32)
    for i in range(count):
        state = first_state[message_type[i]]
        while lane[state] >= 0:
            value = values[lane[state], i]
            left = begin[state]
            right = begin[state + 1]
            # Afterwards the only row that can fit is the last one with low <= value.
            while left < right:
                middle = (left + right) >> 1
                if low[middle] <= value:
                    left = middle + 1
                else:
                    right = middle
            row = left - 1
            fits = row >= begin[state] and value <= high[row]
            state = following[row] if fits else default[state]
        result[i] = state
    return result
