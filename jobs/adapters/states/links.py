"""A host's link to the network of states: groups of its system's IP, or a tunnel to a switch."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Protocol

from stackcast.jobs.adapters.wire.receive_buffer import enlarge_receive_buffer, shortfall
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.udfs.errors import StateError
from stackcast.udfs.states.frames import pack_frame, read_frame
from stackcast.udfs.states.messages import STATES_PORT

log = logging.getLogger(__name__)

_LARGEST = 65_535
_BUFFER = 8 << 20
_IP_PKTINFO = 8
_TTL = 2
_PAUSE_AFTER = 64


class StateLink(Protocol):
    """Sends datagrams to groups and receives those of groups that were joined. Never blocks."""

    #: The host's address, IPv4, which the others see.
    address: int

    def fileno(self) -> int: ...
    def send(self, group: int, datagram: bytes) -> None: ...
    def receive(self) -> Iterator[tuple[int, int, bytes]]:
        """Yields group, source and datagram of what waits, a few at most."""

    def join(self, group: int) -> None: ...
    def leave(self, group: int) -> None: ...
    def rejoin(self) -> None:
        """Joins the groups again that the system no longer receives."""

    def close(self) -> None: ...


class GroupLink:
    """Multicast of the system's IP, on the interface with this address.

    A socket may be a member of few groups (Linux: 20, ``net.ipv4.igmp_max_memberships``). Further
    sockets are members for it: on Linux what comes to a host reaches every socket of the port.
    """

    def __init__(self, address: str, port: int = STATES_PORT) -> None:
        self.address = int(IPv4Address(address))
        self._port = port
        self._interface = socket.inet_aton(address)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._members: dict[int, socket.socket] = {}
        self._makers: list[socket.socket] = []
        self._left: set[int] = set()
        enlarge_receive_buffer(self._socket, _BUFFER)
        if text := shortfall(self._socket, _BUFFER):
            log.warning("%s", text)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, _TTL)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, self._interface)
        try:
            self._socket.bind(("", port))
        except OSError as error:
            self._socket.close()
            raise StateError(
                "NO_LINK", f"cannot listen at UDP port {port} of {address}: {error.strerror}"
            ) from None
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, group: int, datagram: bytes) -> None:
        # What the system has no room for is lost as on a full link, and recovered.
        with contextlib.suppress(OSError):
            self._socket.sendto(datagram, (str(IPv4Address(group)), self._port))

    def receive(self) -> Iterator[tuple[int, int, bytes]]:
        for _ in range(_PAUSE_AFTER):
            try:
                data, beside, _, source = self._socket.recvmsg(_LARGEST, socket.CMSG_SPACE(12))
            except OSError:
                return
            for level, kind, info in beside:
                if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
                    yield int.from_bytes(info[8:12]), int(IPv4Address(source[0])), data

    def join(self, group: int) -> None:
        """Raises StateError ``NO_LINK``: the system has no such interface."""
        if group in self._members:
            return
        for maker in [*self._makers, None]:
            if maker is None:
                maker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # noqa: PLW2901
                self._makers.append(maker)
            try:
                membership = self._membership(group)
                maker.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            except OSError as error:
                if error.errno in (errno.ENOBUFS, errno.EADDRINUSE):
                    continue
                raise StateError(
                    "NO_LINK",
                    f"cannot join group {IPv4Address(group)} at {IPv4Address(self.address)}: "
                    f"{error.strerror}",
                ) from None
            self._members[group] = maker
            return

    def leave(self, group: int) -> None:
        maker = self._members.pop(group, None)
        if maker is not None:
            with contextlib.suppress(OSError):
                membership = self._membership(group)
                maker.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, membership)

    def _membership(self, group: int) -> bytes:
        """Returns the argument of the options that join and leave a group."""
        return group.to_bytes(4) + self._interface

    def rejoin(self) -> None:
        """Joins the groups again if the interface was deleted and created again.

        The system drops the memberships of a deleted interface without notice. Their sockets cannot
        join again, because the dropped memberships still count.
        """
        if not self._members:
            return
        group, maker = next(iter(self._members.items()))
        try:
            maker.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, self._membership(group))
        except OSError as error:
            # A socket without room for one more has only memberships of the deleted interface. Else
            # the group is still joined, or there is no interface.
            if error.errno != errno.ENOBUFS:
                return
        groups, dropped = list(self._members), self._makers
        self._members, self._makers = {}, []
        with contextlib.suppress(OSError, StateError):
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, self._interface)
            for group in groups:
                self.join(group)
            address = IPv4Address(self.address)
            log.warning(
                "the interface with address %s was created again: joined its groups again", address
            )
        # If the interface is gone again, the next call joins all of them.
        self._members = dict.fromkeys(groups, self._makers[-1] if self._makers else maker) | (
            self._members
        )
        for each in dropped:
            each.close()

    def close(self) -> None:
        for each in (self._socket, *self._makers):
            each.close()


class TunnelLink:
    """A port of a switch at the far end of a UDP tunnel, as ``stackcast switch run`` has them: each
    datagram is a frame. Needs no rights, and no interface."""

    def __init__(self, address: str, near: tuple[str, int], far: tuple[str, int]) -> None:
        self.address = int(IPv4Address(address))
        self._groups: set[int] = set()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        enlarge_receive_buffer(self._socket, _BUFFER)
        if text := shortfall(self._socket, _BUFFER):
            log.warning("%s", text)
        try:
            self._socket.bind(near)
            self._socket.connect(far)
        except OSError as error:
            self._socket.close()
            raise StateError(
                "NO_LINK",
                f"cannot open a tunnel from {near[0]}:{near[1]} to {far[0]}:{far[1]}: "
                f"{error.strerror}",
            ) from None
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, group: int, datagram: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.send(pack_frame(self.address, group, datagram))

    def receive(self) -> Iterator[tuple[int, int, bytes]]:
        for _ in range(_PAUSE_AFTER):
            try:
                found = read_frame(self._socket.recv(_LARGEST))
            except BlockingIOError:
                return
            except OSError:
                continue  # the far end was not there for an earlier frame
            if found is not None and found[0] in self._groups:
                yield found

    def join(self, group: int) -> None:
        self._groups.add(group)

    def leave(self, group: int) -> None:
        self._groups.discard(group)

    def rejoin(self) -> None:
        # A tunnel has no memberships.
        pass

    def close(self) -> None:
        self._socket.close()


def open_link(address: str, tunnel: str) -> StateLink:
    """Returns the link of a host of this address: ``udp:NEAR:PORT/FAR:PORT``, or empty for groups.

    Raises StateError ``NO_LINK``.
    """
    try:
        IPv4Address(address)
    except ValueError:
        raise StateError("NO_LINK", f"{address!r} is not an IPv4 address") from None
    if not tunnel:
        return GroupLink(address)
    kind, _, ends = tunnel.partition(":")
    near, _, far = ends.partition("/")
    if kind != "udp" or not near or not far:
        raise StateError("NO_LINK", f"link {tunnel!r} must have the form udp:NEAR:PORT/FAR:PORT")
    return TunnelLink(address, parse_endpoint(near), parse_endpoint(far))
