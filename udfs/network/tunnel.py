"""Tunnels: links over networks of other switches, which see IPv4 and UDP alone (WERNECKE 3.4.1).

A frame on such a link is the payload of a UDP datagram, from its Ethernet header on, as that of the
sink's tunnel is. A switch takes one off if who sent it, to whom, and the port that it came in by
are those of a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from udfs.errors import NetworkError

if TYPE_CHECKING:
    from udfs.network.network import Host, Link

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


def tunnels(links: Iterable[Link], hosts: Mapping[str, Host]) -> Iterator[tuple[Link, Tunnel]]:
    """Yields the links that are tunnels.

    One between switches is a tunnel both ways. What a publisher sends may come by one, from its own
    address, as the sink sends it; what goes to it leaves as it is.

    Raises NetworkError ``BAD_TUNNEL``.
    """
    links = list(links)
    by_port = {(link.switch, link.port): link for link in links}
    for link in links:
        back = by_port.get((link.neighbor, link.neighbor_port or 0))
        if link.tunnel is None:
            if back is not None and back.tunnel is not None:
                _bad(link, "the link back is a tunnel, and this one is none")
            continue
        for what, value, bits in (
            ("ipv4", link.tunnel.ipv4, 32),
            ("mac", link.tunnel.mac, 48),
            ("next_hop", link.tunnel.next_hop, 48),
        ):
            if not 0 < value < 1 << bits:
                _bad(link, f"{what} of its tunnel is {value}: it must be above 0, of {bits} bits")
        host = hosts.get(link.neighbor)
        if host is not None:
            if host.role != "publisher":
                _bad(link, f"it is a tunnel, and {host.name!r} is no publisher")
            yield link, Tunnel(link.tunnel, host.ipv4, False)
        elif back is not None:
            if back.tunnel is None:
                _bad(back, "the link back is a tunnel, and this one is none")
            if back.tunnel.ipv4 == link.tunnel.ipv4:
                _bad(link, "both ends of its tunnel have the same ipv4")
            yield link, Tunnel(link.tunnel, back.tunnel.ipv4, True)


def _bad(link: Link, why: str) -> NoReturn:
    raise NetworkError(
        "BAD_TUNNEL",
        f"link {link.id} of {link.switch!r} to {link.neighbor!r}: {why}",
        link=link.id,
    )
