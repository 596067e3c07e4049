"""Ways of frames out of the process: a UDP tunnel, an interface, a pcap file."""

from __future__ import annotations

from jobs.adapters.wire.af_packet import PacketSink
from jobs.adapters.wire.options import Sink, SinkOptions
from jobs.adapters.wire.pcap import PcapSink
from jobs.adapters.wire.udp import UdpSink
from udfs.errors import SinkError

__all__ = ["Sink", "SinkOptions", "open_sink"]


def open_sink(options: SinkOptions) -> Sink:
    """The sink that ``options.kind`` names, ready to send. Raises SinkError."""
    match options.kind:
        case "udp":
            return UdpSink(options)
        case "af_packet":
            return PacketSink(options)
        case "pcap":
            return PcapSink(options)
    raise SinkError(
        "UNKNOWN_KIND",
        f"sink {options.kind!r}: udp, af_packet and pcap are known",
        kind=options.kind,
    )
