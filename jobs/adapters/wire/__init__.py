"""Sinks for frames: UDP tunnel, interfaces, pcap files; receive buffers; PEM files for TLS.

Callers are streams, the re-request service, commands that send frames, and all clients that use
TLS. The package imports only `app` and `runtime`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.wire.af_packet import PacketSink
from stackcast.jobs.adapters.wire.af_xdp import XdpSink
from stackcast.jobs.adapters.wire.options import Kind, SinkOptions
from stackcast.jobs.adapters.wire.pcap import PcapSink
from stackcast.jobs.adapters.wire.udp import UdpSink, parse_endpoint
from stackcast.udfs.delivery.sink import Sink
from stackcast.udfs.errors import SettingsError, SinkError
from stackcast.udfs.network.ingresses import Ingresses
from stackcast.udfs.network.publishers import several

__all__ = ["Opener", "Sink", "SinkOptions", "check_ingresses", "open_sink", "sink_options"]

#: Settings that contain the transport of each kind of sink.
_TRANSPORT_KEYS = {
    "udp": "sink.udp.endpoint",
    "af_packet": "sink.af_packet.interface",
    "af_xdp": "sink.af_packet.interface",
    "pcap": "sink.pcap.path",
}


def open_sink(options: SinkOptions) -> Sink:
    """Return an open sink.

    Raises:
        SinkError: UNKNOWN_KIND, or an error of the sink.
    """
    match options.kind:
        case "udp":
            return UdpSink(options)
        case "af_packet":
            return PacketSink(options)
        case "af_xdp":
            return XdpSink(options)
        case "pcap":
            return PcapSink(options)
    raise SinkError(
        "UNKNOWN_KIND",
        f"sink {options.kind!r} does not exist: use udp, af_packet, af_xdp or pcap",
        kind=options.kind,
    )


@dataclass(frozen=True)
class Opener:
    """Opens the sinks of a stream; see `stackcast.udfs.delivery.sink.Opener`.

    Attributes:
        options: options of the sink that the settings describe.
        open: function that opens a sink.
    """

    options: SinkOptions
    open: Callable[[SinkOptions], Sink] = open_sink

    def place(self) -> str:
        """Return the place of this process."""
        return os.environ.get("STACKCAST_PLACE") or socket.gethostname()

    def way(self, ingresses: Ingresses, publisher: str, switch: str) -> SinkOptions:
        """Return the options of the sink for frames that enter through a publisher's link.

        All frames share the files of the sink ``pcap``, which has no transports.

        Raises:
            SinkError: NO_TRANSPORT.
        """
        options, place = self.options, self.place()
        if options.kind == "pcap":
            return options
        transport = ingresses.transport(place, publisher)
        if not transport:
            transport = options.transport
            exclusive = options.single or publisher == ingresses.shared_host(place)
            if not transport or (not exclusive and not _varies(transport)):
                raise SinkError(
                    "NO_TRANSPORT",
                    f"no tunnel or interface is configured for publisher {publisher!r} at "
                    f"{switch!r} and place {place!r}, and the tunnel of another publisher would "
                    "lead to the wrong switch: add a row to table ingresses, or use {publisher} "
                    f"or {{switch}} in {PREFIX}{_TRANSPORT_KEYS[options.kind]}",
                    publisher=publisher,
                )
        return options.using(_filled_in(transport, publisher, switch))

    def __call__(self, way: SinkOptions | None = None) -> Sink:
        """Return the sink for a way, by default the sink that the settings describe.

        Raises:
            SinkError: an error of the sink.
        """
        return self.open(way or self.options)


def _filled_in(transport: str, publisher: str, switch: str) -> str:
    return transport.replace("{publisher}", publisher).replace("{switch}", switch)


def _varies(transport: str) -> bool:
    """Return True if a transport contains a placeholder."""
    return _filled_in(transport, "", "") != transport


def sink_options(settings: Settings) -> SinkOptions:
    """Return the options of the sink that the settings describe.

    Raises:
        SettingsError: BAD_VALUE if the endpoint is not valid.
    """
    options = SinkOptions(
        kind=cast(Kind, settings.sink),
        endpoint=settings.udp_endpoint,
        window=settings.udp_window,
        interface=settings.interface,
        path=settings.pcap_path,
        single=not several(settings.publisher),
    )
    if options.kind == "udp" and options.endpoint:
        try:
            parse_endpoint(options.endpoint)
        except SinkError as error:
            why = f"{PREFIX}{_TRANSPORT_KEYS['udp']}: {error.message}"
            raise SettingsError("BAD_VALUE", why) from error
    return options


def check_ingresses(ingresses: Ingresses, options: SinkOptions) -> None:
    """Check that the rows of table ``ingresses`` fit the sink and the publishers of a stream.

    Raises:
        SettingsError: BAD_VALUE if there is no transport at all.
        SinkError: BAD_ENDPOINT, or NO_TRANSPORT if several publishers would use one transport.
    """
    if not options.transport and not any(ingresses.transports.values()):
        raise SettingsError(
            "BAD_VALUE",
            f"{PREFIX}{_TRANSPORT_KEYS[options.kind]} is empty, but sink {options.kind} requires "
            "it unless table ingresses contains transports",
        )
    if options.kind == "pcap":
        return
    for (place, publisher), transport in ingresses.transports.items():
        row = f"table ingresses, place {place or None!r}, publisher {publisher or None!r}:"
        if options.kind == "udp" and transport:
            parse_endpoint(transport, row)
        if publisher == "" and not options.single and transport and not _varies(transport):
            raise SinkError(
                "NO_TRANSPORT",
                f"{row} all publishers would use transport {transport!r}, which leads to the "
                "switch of one of them only: add one row per publisher, or use {publisher} or "
                "{switch} in the transport",
                publisher="",
            )
