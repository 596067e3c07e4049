"""Protocol of a sink, and the options that choose one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Kind = Literal["udp", "af_packet", "pcap"]


@dataclass(frozen=True)
class SinkOptions:
    """Choice of a sink; picklable, so that executors open sinks of their own.

    kind: ``udp`` (tunnel), ``af_packet`` (interface) or ``pcap`` (file).
    endpoint: ``host:port`` or ``[IPv6]:port`` of the tunnel's far end.
    window: frames that may be on their way without an answer; 0: no answers are expected.
    interface: name of the interface.
    path: of the file; see :mod:`jobs.adapters.wire.pcap` for placeholders.
    patience: seconds without any progress after which a sink gives up.
    """

    kind: Kind
    endpoint: str = ""
    window: int = 0
    interface: str = ""
    path: str = ""
    patience: float = 10.0


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
