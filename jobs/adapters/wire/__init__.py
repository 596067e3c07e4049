"""Ways of frames out of the process: a UDP tunnel, an interface, a pcap file.

Called by streams, by the re-requests and by commands that send; it calls `app` alone.
"""

from __future__ import annotations

from typing import cast

from jobs.adapters.app.settings import Settings
from jobs.adapters.wire.af_packet import PacketSink
from jobs.adapters.wire.options import Kind, SinkOptions
from jobs.adapters.wire.pcap import PcapSink
from jobs.adapters.wire.udp import UdpSink, parse_endpoint
from udfs.delivery.sink import Sink
from udfs.errors import SettingsError, SinkError

__all__ = ["Sink", "SinkOptions", "open_sink", "sink_options"]


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


def sink_options(settings: Settings) -> SinkOptions:
    """Returns the sink of the settings.

    Raises SettingsError BAD_VALUE where what it needs is missing.
    """
    needed = {
        "udp": ("sink.udp.endpoint", settings.udp_endpoint),
        "af_packet": ("sink.af_packet.interface", settings.interface),
        "pcap": ("sink.pcap.path", settings.pcap_path),
    }
    key, value = needed[settings.sink]
    if not value:
        raise SettingsError(
            "BAD_VALUE", f"spark.stackcast.{key} is empty, but the sink {settings.sink} needs it"
        )
    if settings.sink == "udp":
        try:
            parse_endpoint(value)
        except SinkError as error:
            raise SettingsError("BAD_VALUE", f"spark.stackcast.{key}: {error.message}") from error
    return SinkOptions(
        kind=cast(Kind, settings.sink),
        endpoint=settings.udp_endpoint,
        window=settings.udp_window,
        interface=settings.interface,
        path=settings.pcap_path,
    )
