"""Options that choose a sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["udp", "af_packet", "af_xdp", "pcap"]


@dataclass(frozen=True)
class SinkOptions:
    """Choice of a sink; picklable, so that executors open sinks of their own.

    kind: ``udp`` (tunnel), ``af_packet``, ``af_xdp`` (interface) or ``pcap`` (file).
    endpoint: ``host:port`` or ``[IPv6]:port`` of the tunnel's far end.
    window: frames that may be on their way without an answer; 0: no answers are expected.
    interface: name of the interface.
    path: of the file; see :mod:`stackcast.jobs.adapters.wire.pcap` for placeholders.
    places: by place, pairs of its name and the endpoint, interface or path that it has instead.
    publishers: the same by publisher, where a stream has several.
    ingresses: by place, pairs of its name and the host by whose link all enters that is sent there.
    alone: there is one publisher.
    patience: seconds without any progress after which a sink gives up.
    """

    kind: Kind
    endpoint: str = ""
    window: int = 0
    interface: str = ""
    path: str = ""
    places: tuple[tuple[str, str], ...] = ()
    publishers: tuple[tuple[str, str], ...] = ()
    ingresses: tuple[tuple[str, str], ...] = ()
    alone: bool = True
    patience: float = 10.0
