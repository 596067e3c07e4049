"""Networks some links of which are tunnels, and what other networks do with what is in one."""

from __future__ import annotations

import dataclasses
import random

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from stackcast.udfs.network.network import Link, Network
from stackcast.udfs.network.tunnel import TUNNEL_PORT, Tunnel, TunnelEnd

#: The router between two ends, and the one that answers for the other end.
ROUTER, BEYOND = 0x02EE00000000, 0x02DD00000000


def end_of(link: Link) -> TunnelEnd:
    """An end with addresses of its own."""
    return TunnelEnd(0x0A090000 | link.id, 0x02CC00000000 | link.id, ROUTER | link.id)


def tunnelled(network: Network, chosen: set[int]) -> Network:
    """The network, in which these links are tunnels, both ways."""
    both = set(chosen)
    for number in chosen:
        link = network.link_by_id[number]
        both.add(network.link_at(link.neighbor, link.neighbor_port).id)
    links = [
        dataclasses.replace(link, tunnel=end_of(link)) if link.id in both else link
        for link in network.links
    ]
    return Network.from_rows(
        network.switches.values(), network.hosts.values(), links, network.labels
    )


def some_tunnels(network: Network, rng: random.Random) -> Network:
    """The network with any of its links between switches as tunnels, one at least."""
    between = [link.id for link in network.links if link.neighbor in network.switches]
    return tunnelled(network, set(rng.sample(between, rng.randint(1, len(between)))))


def in_tunnel(tunnel: Tunnel, frame: bytes, **outer: object) -> bytes:
    """The frame as a switch puts it into a tunnel; ``outer``: fields of IPv4 that are otherwise."""
    end = tunnel.end
    ethernet = Ether(dst=_mac(end.next_hop), src=_mac(end.mac))
    ipv4 = IP(**{"src": end.ipv4, "dst": tunnel.far, "flags": "DF", "id": 0, "ttl": 64, **outer})
    udp = UDP(sport=TUNNEL_PORT, dport=TUNNEL_PORT, chksum=0)
    return bytes(ethernet / ipv4 / udp / frame)


def routed(datagram: bytes, tunnel: Tunnel, far: TunnelEnd) -> bytes:
    """What comes out of a network of routers, which look at Ethernet and IPv4 alone."""
    ethernet = Ether(datagram[:14])
    ipv4 = IP(datagram[14:34])
    assert (ethernet.type, ethernet.dst) == (0x0800, _mac(tunnel.end.next_hop))
    assert ipv4.len == len(datagram) - 14 and int.from_bytes(ipv4_bytes(ipv4.dst)) == far.ipv4
    right = ipv4.chksum
    del ipv4.chksum
    ipv4 = IP(bytes(ipv4))
    assert ipv4.chksum == right
    ipv4.ttl -= 3
    del ipv4.chksum
    hop = Ether(dst=_mac(far.mac), src=_mac(far.next_hop), type=0x0800)
    return bytes(hop) + bytes(ipv4)[:20] + datagram[34:]


def ipv4_bytes(text: str) -> bytes:
    return bytes(int(part) for part in text.split("."))


def _mac(address: int) -> str:
    return address.to_bytes(6).hex(":")
