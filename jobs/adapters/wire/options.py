"""Options of sinks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["udp", "af_packet", "af_xdp", "pcap"]


@dataclass(frozen=True)
class SinkOptions:
    """Choice of a sink. Picklable, so that executors can open sinks of their own.

    Attributes:
        kind: ``udp`` (tunnel), ``af_packet``, ``af_xdp`` (interface) or ``pcap`` (file).
        endpoint: ``host:port`` or ``[IPv6]:port`` of the remote end of the tunnel.
        window: maximum number of unacknowledged frames; 0 if the remote end does not acknowledge.
        interface: name of the network interface.
        path: path of the file; see `stackcast.jobs.adapters.wire.pcap` for placeholders.
        single: True if all frames belong to one publisher.
        patience: seconds without any progress after which the sink fails.
    """

    kind: Kind
    endpoint: str = ""
    window: int = 0
    interface: str = ""
    path: str = ""
    single: bool = True
    patience: float = 10.0

    @property
    def transport(self) -> str:
        """Endpoint, interface or path, whichever the sink uses."""
        match self.kind:
            case "udp":
                return self.endpoint
            case "af_packet" | "af_xdp":
                return self.interface
        return self.path

    def using(self, transport: str) -> SinkOptions:
        """Return the options with another endpoint, interface or path."""
        match self.kind:
            case "udp":
                return replace(self, endpoint=transport)
            case "af_packet" | "af_xdp":
                return replace(self, interface=transport)
        return replace(self, path=transport)
