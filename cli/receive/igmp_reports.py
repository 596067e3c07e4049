"""IGMP reports, from which routers and switches learn the members of a group (RFC 3376)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection

_ALL_IGMPV3_ROUTERS = "224.0.0.22"
_MEMBERSHIP_REPORT = 0x22
_MODE_IS_INCLUDE, _MODE_IS_EXCLUDE = 1, 2
#: IP option, without which routers may ignore a report (RFC 3376, section 4).
_ROUTER_ALERT = b"\x94\x04\0\0"


def membership_report(group: str, sources: Collection[str] = ()) -> bytes:
    """Return an IGMPv3 report of a member that receives from some sources, or from all if none."""
    mode = _MODE_IS_INCLUDE if sources else _MODE_IS_EXCLUDE
    record = struct.pack(">BBH4s", mode, 0, len(sources), socket.inet_aton(group))
    record += b"".join(map(socket.inet_aton, sources))
    head = struct.pack(">BBHHH", _MEMBERSHIP_REPORT, 0, 0, 0, 1)
    checksum = internet_checksum(head + record)
    return head[:2] + checksum.to_bytes(2) + head[4:] + record


def internet_checksum(content: bytes) -> int:
    """Return the Internet checksum of an even number of bytes; 0 if they include their own."""
    total = sum(int.from_bytes(content[n : n + 2]) for n in range(0, len(content), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def send_report(index: int, group: str, sources: Collection[str] = ()) -> None:
    """Send an IGMPv3 report on the interface with this index.

    Raises:
        PermissionError: the process does not have CAP_NET_RAW.
        OSError: the interface does not exist or is down.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP) as wire:
        # struct ip_mreqn: group, address, index.
        wire.setsockopt(
            socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", b"", b"", index)
        )
        wire.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        wire.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        wire.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, _ROUTER_ALERT)
        wire.sendto(membership_report(group, sources), (_ALL_IGMPV3_ROUTERS, 0))
