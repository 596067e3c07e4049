"""The sink that tasks hand their frames to; `jobs.adapters.wire` has those that there are."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Sink(Protocol):
    """Takes frames out of the process. Used by one thread; all sinks put out the same bytes.

    Any method raises SinkError. After an error some frames may be out; sending them again is
    harmless, since their sequence numbers are the same.
    """

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        """Send frames ``data[offsets[f]:offsets[f+1]]`` in order; returns how many (all)."""
        ...

    def flush(self) -> None:
        """Return when all frames sent so far are out, as far as the sink can tell."""
        ...

    def close(self) -> None:
        """Release the socket or file; does not flush; may be called again."""
        ...
