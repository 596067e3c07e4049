"""Tunnels: links over networks of other switches, which see IPv4 and UDP alone (WERNECKE 3.4.1).

A frame on such a link is the payload of a UDP datagram, from its Ethernet header on, as that of the
sink's tunnel is. A switch takes one off if who sent it, to whom, and the port that it came in by
are those of a link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TUNNEL_PORT = 26403
"""The UDP port that both ends of a tunnel between switches have."""


@dataclass(frozen=True)
class TunnelEnd:
    """The end of a tunnel at the switch that a link leaves.

    ipv4, mac: its own addresses there. next_hop: MAC address of the router, or of the other end,
    behind the port.
    """

    ipv4: int
    mac: int
    next_hop: int


class Tunnel(NamedTuple):
    """A tunnel as one switch sees it: its own end, and the IPv4 address of the far one. sends:
    whether what leaves by the link goes in it, too."""

    end: TunnelEnd
    far: int
    sends: bool
