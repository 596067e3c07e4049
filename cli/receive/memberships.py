"""Memberships of sockets in multicast groups.

A membership is lost without any notice if its interface is deleted, or if a switch that snoops IGMP
forgets the port of this host. `Membership.renew` restores it in both cases.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from ipaddress import AddressValueError, IPv4Address
from itertools import product
from pathlib import Path
from typing import Protocol

from stackcast.cli.receive.igmp_reports import send_report
from stackcast.cli.receive.kernel_counters import read_memberships
from stackcast.udfs.errors import ReceiveError
from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP, ID_PAIRS_GROUP
from stackcast.udfs.messages.attributes.events import ETHERTYPE

# Linux constants that Python's socket module does not name.
_IP_MULTICAST_ALL = 49
_MCAST_JOIN_SOURCE_GROUP = 46
_SIOCGIFFLAGS = 0x8913
_IFF_UP, _IFF_LOOPBACK, _IFF_RUNNING = 0x1, 0x8, 0x40
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_MR_MULTICAST = 0

_MOST_SOURCES = "net.ipv4.igmp_max_msf"


class Membership(Protocol):
    """Membership of sockets in one or more groups on an interface."""

    sockets: Sequence[socket.socket]

    def renew(self) -> str:
        """Leave and join again, on the interface that has the name or address now.

        Returns:
            Why that failed, or an empty text. It may be repeated later.
        """

    def fault(self) -> str:
        """Return why the kernel delivers nothing of the group, or an empty text."""


class GroupMembership:
    """Membership of UDP sockets in a multicast group on one interface.

    The sockets receive no datagrams of the group that arrive on other interfaces, even if other
    programs join it there.

    Args:
        sockets: bound to the group.
        group: IPv4 multicast address.
        interface: name or IPv4 address; empty for the interface that the route to the group uses.
        sources: IPv4 addresses whose datagrams the kernel accepts, by a source-specific join (RFC
            3569); all if empty.

    Raises:
        ReceiveError: the interface does not exist, or the kernel refuses.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        group: str,
        interface: str,
        sources: Collection[str] = (),
    ) -> None:
        self.sockets = sockets
        self._group = group
        self._interface = interface
        self._sources = sources
        self._index = 0
        for wire in sockets:
            # By default a socket receives what any program of this host joined, on any interface.
            wire.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        index, name = self._resolve()
        self._join(index, name)
        #: Whether the interface is a loopback device, which only this host sends to.
        self.on_loopback = bool(_interface_flags(name) & _IFF_LOOPBACK)

    def renew(self) -> str:
        # The kernel reports a join to the network only if no socket of this host is a member, so
        # all of them leave first. An interface that was deleted still counts as a membership.
        for wire in self.sockets if self._index else ():
            with suppress(OSError):
                request = _membership(self._group, index=self._index)
                wire.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, request)
        self._index = 0
        try:
            index, name = self._resolve()
            shared = self._group in read_memberships().get(name, ())
            self._join(index, name)
        except ReceiveError as error:
            return error.message
        if not shared:
            return ""
        try:
            send_report(index, self._group, self._sources)
        except OSError as error:
            return (
                f"other programs of this host are members of {self._group}, so the kernel sent no "
                f"IGMP report to switches, and this program cannot ({error.strerror}): start the "
                "programs again, or give this one CAP_NET_RAW"
            )
        return ""

    def fault(self) -> str:
        try:
            index, name = self._resolve()
        except ReceiveError as error:
            return error.message
        if index != self._index:
            return f"interface {name} was created after the group was joined"
        if fault := _link_fault(name):
            return fault
        if self._group not in read_memberships().get(name, ()):
            return f"/proc/net/igmp does not list {self._group} on {name}"
        return ""

    def _join(self, index: int, name: str) -> None:
        self._index = index
        if self._sources:
            option = _MCAST_JOIN_SOURCE_GROUP
            requests = [_source_request(index, self._group, source) for source in self._sources]
        else:
            option = socket.IP_ADD_MEMBERSHIP
            requests = [_membership(self._group, index=index)]
        try:
            for wire, request in product(self.sockets, requests):
                wire.setsockopt(socket.IPPROTO_IP, option, request)
        except OSError as error:
            if self._sources and error.errno == errno.ENOBUFS:
                number = len(self._sources)
                raise ReceiveError(
                    "TOO_MANY_SOURCES",
                    f"--source names {number} addresses, but the kernel accepts {_most_sources()} "
                    f"for a group: name fewer, or raise the limit with sysctl -w "
                    f"{_MOST_SOURCES}={number}",
                ) from None
            raise ReceiveError(
                "CANNOT_JOIN", f"--group {self._group}, --interface {name}: {error.strerror}"
            ) from None

    def _resolve(self) -> tuple[int, str]:
        """Return index and name of the interface."""
        if self._interface and not is_ipv4(self._interface):
            return index_of(self._interface), self._interface
        return _chosen_interface(self._group, self._interface)


class EventMembership:
    """Membership of an AF_PACKET socket in the Ethernet groups of attribute/value events.

    Raises:
        ReceiveError: the interface does not exist, or the kernel refuses.
    """

    def __init__(self, wire: socket.socket, interface: str) -> None:
        self.sockets: Sequence[socket.socket] = [wire]
        self._interface = interface
        self._index = 0
        self._join(index_of(interface))

    def renew(self) -> str:
        try:
            index = index_of(self._interface)
            # Switches do not learn Ethernet groups, so there is no report to repeat.
            if index != self._index:
                self._join(index)
        except ReceiveError as error:
            return error.message
        return ""

    def fault(self) -> str:
        try:
            index = index_of(self._interface)
        except ReceiveError as error:
            return error.message
        if index != self._index:
            return f"interface {self._interface} was created after the groups were joined"
        return _link_fault(self._interface)

    def _join(self, index: int) -> None:
        (wire,) = self.sockets
        try:
            wire.bind((self._interface, ETHERTYPE))
            for group in (ID_PAIRS_GROUP, BITMASK_GROUP):
                member = struct.pack("=iHH8s", index, _PACKET_MR_MULTICAST, 6, group.to_bytes(6))
                wire.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, member)
        except OSError as error:
            raise ReceiveError(
                "CANNOT_JOIN", f"--interface {self._interface}: {error.strerror}"
            ) from None
        self._index = index


def index_of(interface: str) -> int:
    """Return the index of an interface.

    Raises:
        ReceiveError: no interface has this name.
    """
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise ReceiveError(
            "NO_INTERFACE",
            f"--interface {interface}: this machine has no such interface; it has {names}",
        ) from None


def is_ipv4(text: str) -> bool:
    """Return True if a text is an IPv4 address."""
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


def _chosen_interface(group: str, address: str) -> tuple[int, str]:
    """Return index and name of the interface with an address, or of the route to a group.

    Only the kernel knows which one a join takes, and it does not say. Therefore a second socket
    joins, and then leaves on each interface in turn, which succeeds only where it joined.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            request = _membership(group, address=address or "0.0.0.0")
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise ReceiveError("CANNOT_JOIN", f"--group {group}: {error.strerror}") from None
            raise ReceiveError(
                "NO_INTERFACE",
                f"--interface {address}: no interface of this machine has this address; "
                "ip -brief address lists those that exist"
                if address
                else f"--interface is needed: no route leads to group {group}",
            ) from None
        for index, name in socket.if_nameindex():
            request = _membership(group, index=index)
            with suppress(OSError):
                probe.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, request)
                return index, name
    raise ReceiveError("NO_INTERFACE", f"the interface for group {group} was deleted: try again")


def _link_fault(interface: str) -> str:
    """Return why an interface carries no frames, or an empty text."""
    try:
        flags = _interface_flags(interface)
    except OSError as error:
        return f"interface {interface}: {error.strerror}"
    if not flags & _IFF_UP:
        return f"interface {interface} is down: ip link set {interface} up"
    return "" if flags & _IFF_RUNNING else f"interface {interface} has no link: check the cable"


def _interface_flags(interface: str) -> int:
    request = struct.pack("16s24x", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        answer = fcntl.ioctl(asker, _SIOCGIFFLAGS, request)
    return int(struct.unpack_from("=H", answer, 16)[0])


def _membership(group: str, address: str = "0.0.0.0", index: int = 0) -> bytes:
    """Return a struct ip_mreqn."""
    return struct.pack("=4s4si", socket.inet_aton(group), socket.inet_aton(address), index)


def _source_request(index: int, group: str, source: str) -> bytes:
    """Return a struct group_source_req, which has two sockaddr_storage of 128 bytes."""
    addresses = [
        struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton(address)).ljust(128, b"\0")
        for address in (group, source)
    ]
    # Zero longs align what follows as a long.
    return struct.pack("@I0L", index) + b"".join(addresses)


def _most_sources() -> str:
    return Path("/proc/sys", _MOST_SOURCES.replace(".", "/")).read_text().strip()
