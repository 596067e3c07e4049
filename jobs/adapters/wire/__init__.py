"""Sinks for frames: a UDP tunnel, an interface, a pcap file; receive buffers; PEM files for TLS.

Called by streams, by the re-requests, by commands that send, and by all who connect with TLS; it
calls `app` and `runtime`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.wire.af_packet import PacketSink
from stackcast.jobs.adapters.wire.af_xdp import XdpSink
from stackcast.jobs.adapters.wire.options import Kind, SinkOptions
from stackcast.jobs.adapters.wire.pcap import PcapSink
from stackcast.jobs.adapters.wire.udp import UdpSink, parse_endpoint
from stackcast.udfs.delivery.sink import Sink
from stackcast.udfs.errors import SettingsError, SinkError
from stackcast.udfs.network.publishers import listed, several

__all__ = ["Opener", "Sink", "SinkOptions", "open_sink", "sink_options"]


def open_sink(options: SinkOptions) -> Sink:
    """Returns the sink that ``options.kind`` names, ready to send. Raises SinkError.

    Its way out is that of the place of this process, if the options have one for it.
    """
    way = dict(options.places).get(_place())
    options = options if way is None else _by(way, options)
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


def _place() -> str:
    """Returns the place of this process."""
    return os.environ.get("STACKCAST_PLACE") or socket.gethostname()


def _by(way: str, options: SinkOptions) -> SinkOptions:
    match options.kind:
        case "udp":
            return replace(options, endpoint=way)
        case "af_packet" | "af_xdp":
            return replace(options, interface=way)
    return replace(options, path=way)


@dataclass(frozen=True)
class Opener:
    """Opens the sinks of a stream: `stackcast.udfs.delivery.sink.Opener`. open: as `open_sink`."""

    options: SinkOptions
    open: Callable[[SinkOptions], Sink] = open_sink

    def ingress(self) -> str:
        """Returns the host by whose link all enters that this process sends; empty without one."""
        return dict(self.options.ingresses).get(_place(), "")

    def way(self, publisher: str, switch: str) -> SinkOptions:
        """Returns the options of frames that enter by a publisher's link, out of this process: the
        place's way for the publisher, the place's for all, the publisher's, that of the sink. What
        enters by the link of an ingress elsewhere goes by its way there. Files of one sink hold the
        frames of all. Raises SinkError NO_TRANSPORT."""
        options, place = self.options, _place()
        if options.kind == "pcap":
            return options
        at_places, own = dict(options.places), dict(options.publishers)
        here, ingress = place, self.ingress()
        if ingress and ingress != publisher:
            here = next((p for p, host in options.ingresses if host == publisher), "")
        way = at_places.get(f"{publisher}@{here}") or at_places.get(here) or own.get(publisher)
        if way is None:
            way = options.endpoint if options.kind == "udp" else options.interface
            # The sink's own may be one's way alone.
            whose = options.alone or publisher == ingress
            if _for_each(way) == way and not whose:
                raise SinkError(
                    "NO_TRANSPORT",
                    f"no tunnel or interface is configured for publisher {publisher!r} at "
                    f"{switch!r}, and the tunnel of another publisher would lead to the wrong "
                    "switch: set spark.stackcast.sink.publishers or "
                    "spark.stackcast.sink.places, or use {publisher} or {switch} in the "
                    "setting of the sink",
                    publisher=publisher,
                )
        found = _by(_for_each(way, publisher, switch), options)
        # It says all: nothing is left to choose where it is opened.
        return replace(found, places=(), publishers=(), ingresses=())

    def __call__(self, way: SinkOptions | None = None) -> Sink:
        """Returns the sink of a way, by default of the only one. Raises SinkError."""
        return self.open(way or self.options)


def _for_each(way: str, publisher: str = "", switch: str = "") -> str:
    return way.replace("{publisher}", publisher).replace("{switch}", switch)


def sink_options(settings: Settings) -> SinkOptions:
    """Returns the sink of the settings.

    Raises SettingsError BAD_VALUE where what it needs is missing, or does not go with the rest.
    """
    pairs = _pairs("sink.publishers", settings.sink_publishers)
    places = _places(settings)
    if pairs and not several(settings.publisher):
        raise SettingsError(
            "BAD_VALUE",
            f"{PREFIX}sink.publishers is for several publishers, but {PREFIX}publisher names "
            "only one: use the setting of the sink instead",
        )
    needed = {
        "udp": ("sink.udp.endpoint", settings.udp_endpoint),
        "af_packet": ("sink.af_packet.interface", settings.interface),
        "af_xdp": ("sink.af_packet.interface", settings.interface),
        "pcap": ("sink.pcap.path", settings.pcap_path),
    }
    key, value = needed[settings.sink]
    named = {name for name, _ in pairs}
    if not value and not (named and named >= set(listed(settings.publisher) or ("*",))):
        raise SettingsError(
            "BAD_VALUE", f"spark.stackcast.{key} is empty, but sink {settings.sink} requires it"
        )
    if settings.sink == "udp":
        for used, endpoint in (
            *([(key, value)] if value else []),
            *(("sink.places", way) for _, way in places),
            *(("sink.publishers", way) for _, way in pairs),
        ):
            try:
                parse_endpoint(endpoint)
            except SinkError as error:
                why = f"spark.stackcast.{used}: {error.message}"
                raise SettingsError("BAD_VALUE", why) from error
    return SinkOptions(
        kind=cast(Kind, settings.sink),
        endpoint=settings.udp_endpoint,
        window=settings.udp_window,
        interface=settings.interface,
        path=settings.pcap_path,
        places=places,
        publishers=pairs,
        ingresses=ingresses_of(settings),
        alone=not several(settings.publisher),
    )


def ingresses_of(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of place and host of ``sink.ingresses``; none where switches match, which
    take the stream's frames from anywhere. Raises SettingsError BAD_VALUE."""
    return () if settings.match == "network" else _pairs("sink.ingresses", settings.sink_ingresses)


def _places(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of ``sink.places``. Raises SettingsError BAD_VALUE."""
    found = _pairs("sink.places", settings.sink_places)
    apart = several(settings.publisher) and settings.sink != "pcap"
    entering = dict(ingresses_of(settings))
    for name, way in found:
        why = ""
        if "@" in name and not apart:
            why = "names a publisher, but the sink has one tunnel or interface per place"
        elif apart and "@" not in name and name not in entering and _for_each(way) == way:
            why = (
                "is the same for several publishers: write one pair per publisher, such as "
                "feed1@node1=eth1, or use {publisher} or {switch} in it"
            )
        if why:
            raise SettingsError("BAD_VALUE", f"{PREFIX}sink.places: {name}={way} {why}")
    return found


def _pairs(key: str, text: str) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of a setting. Raises SettingsError BAD_VALUE."""
    pairs = []
    for pair in filter(None, text.split(",")):
        name, _, way = (part.strip() for part in pair.partition("="))
        if not name or not way:
            raise SettingsError(
                "BAD_VALUE", f"spark.stackcast.{key}: {pair!r} must have the form node1=eth1"
            )
        pairs.append((name, way))
    return tuple(pairs)
