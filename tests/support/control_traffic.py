"""Control traffic that hosts and routers of healthy networks send to their neighbors."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, ip_address, ip_network

from scapy.contrib.igmp import IGMP
from scapy.contrib.igmpv3 import IGMPv3, IGMPv3gr, IGMPv3mr
from scapy.contrib.ospf import OSPF_Hdr, OSPF_Hello
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.dns import DNS, DNSQR
from scapy.layers.inet import IP, UDP, IPOption_Router_Alert
from scapy.layers.l2 import Ether
from scapy.layers.vrrp import VRRP

QUERIER = "10.3.255.254"
"""The address of a router that no table of the network has."""


def neighbor_frames(host: int) -> Iterator[tuple[str, bytes]]:
    """Yields ``(name, frame)`` of the IPv4 that arrives at the port of a host of this address."""
    own, alert = str(IPv4Address(host)), [IPOption_Router_Alert()]
    report = IGMPv3(type=0x22) / IGMPv3mr(records=[IGMPv3gr(rtype=4, maddr="239.1.1.1")])
    bodies = {
        "an IGMPv3 report": IP(src=own, dst="224.0.0.22", ttl=1, options=alert) / report,
        "an IGMPv3 report before an address": IP(src="0.0.0.0", dst="224.0.0.22", ttl=1) / report,
        "an IGMPv2 report": IP(src=own, dst="239.1.1.1", ttl=1, options=alert)
        / IGMP(type=0x16, gaddr="239.1.1.1"),
        "an IGMPv2 leave": IP(src=own, dst="224.0.0.2", ttl=1) / IGMP(type=0x17, gaddr="239.1.1.1"),
        "a general query": IP(src=QUERIER, dst="224.0.0.1", ttl=1) / IGMP(type=0x11),
        "a query of a switch without an address": IP(src="0.0.0.0", dst="224.0.0.1", ttl=1)
        / IGMP(type=0x11),
        "a query of one group": IP(src=QUERIER, dst="239.1.1.1", ttl=1)
        / IGMP(type=0x11, gaddr="239.1.1.1"),
        "mDNS": IP(src=own, dst="224.0.0.251", ttl=255)
        / UDP(sport=5353, dport=5353)
        / DNS(qd=DNSQR(qname="_ipp._tcp.local")),
        "LLMNR": IP(src=own, dst="224.0.0.252", ttl=1) / UDP(sport=5355, dport=5355),
        "OSPF": IP(src=QUERIER, dst="224.0.0.5", ttl=1) / OSPF_Hdr() / OSPF_Hello(),
        "VRRP": IP(src=QUERIER, dst="224.0.0.18", ttl=255) / VRRP(),
        "DHCP": IP(src="0.0.0.0", dst="255.255.255.255")
        / UDP(sport=68, dport=67)
        / BOOTP()
        / DHCP(options=[("message-type", "discover"), "end"]),
    }
    for name, body in bodies.items():
        yield name, bytes(Ether(src="02:00:00:00:00:07", dst="01:00:5e:00:00:01") / body)


def is_for_neighbors(protocol: int, address: int) -> bool:
    """Whether IPv4 of this protocol to this address is never passed on (RFC 5771, RFC 1122)."""
    target = ip_address(address)
    return (
        (target.is_multicast and protocol == 2)
        or target in ip_network("224.0.0.0/24")
        or target == ip_network("0.0.0.0/0").broadcast_address
    )
