"""Addresses of this host, whose datagrams no publisher elsewhere has sent."""

from __future__ import annotations

import fcntl
import math
import socket
import struct
import time
from array import array

_SIOCGIFCONF = 0x8912
#: A struct ifconf: the length of a buffer, and its address.
_IFCONF = struct.Struct("iP")
#: Size of a struct ifreq: the name of an interface, and a union whose largest member is an ifmap.
_IFREQ_SIZE = struct.calcsize("16s2LH3B0L")
#: Place of an IPv4 address in a struct ifreq, behind name, family and port.
_ADDRESS = slice(20, 24)
#: Shortest time between two queries of the addresses, in seconds.
_SECONDS = 1.0


class OwnAddresses:
    """The IPv4 addresses that this host has now, loopback included.

    Addresses come and go with interfaces, so they are read again, once a second at most.
    """

    def __init__(self) -> None:
        self._addresses: frozenset[str] = frozenset()
        self._read_at = -math.inf

    def __contains__(self, address: object) -> bool:
        moment = time.monotonic()
        if moment - self._read_at >= _SECONDS:
            self._addresses, self._read_at = interface_addresses(), moment
        return address in self._addresses or is_loopback(str(address))


def is_loopback(address: str) -> bool:
    """Return True if only programs of this host send from, and to, an IPv4 address."""
    return address.startswith("127.")


def interface_addresses() -> frozenset[str]:
    """Return the IPv4 addresses of all interfaces of this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        # Without a buffer, the kernel returns the length that it needs.
        needed, _ = _IFCONF.unpack(fcntl.ioctl(asker, _SIOCGIFCONF, _IFCONF.pack(0, 0)))
        # Room for addresses that are added between the two calls.
        rows = array("B", bytes(needed + 64 * _IFREQ_SIZE))
        request = _IFCONF.pack(len(rows), rows.buffer_info()[0])
        length, _ = _IFCONF.unpack(fcntl.ioctl(asker, _SIOCGIFCONF, request))
    return frozenset(
        socket.inet_ntoa(rows[start : start + _IFREQ_SIZE][_ADDRESS].tobytes())
        for start in range(0, length, _IFREQ_SIZE)
    )
