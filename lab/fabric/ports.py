"""Ports of a switch that runs by itself: UDP tunnels and interfaces of this machine.

A port takes and gives whole Ethernet frames. Both kinds have a file descriptor, so that a loop can
wait for many at once, and neither ever blocks: what the kernel has no room for is lost and
counted, as on a full link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Protocol

from stackcast.lab.fabric.tunnel_sockets import Address, UnknownSenders, open_tunnel
from stackcast.udfs.errors import LabError

#: Ports of v1model have 9 bits; its last number means "drop".
LAST_PORT = 510

_LARGEST_FRAME = 65_535
_BUFFER = 4 << 20

# Linux; Python's socket module does not name these.
_SO_RCVBUFFORCE = 33
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_AUXDATA = 8
_PACKET_IGNORE_OUTGOING = 23
_PACKET_MR_PROMISC = 1
_PACKET_OUTGOING = 4
_ETH_P_ALL = 3
_TP_STATUS_VLAN_VALID = 1 << 4
_TP_STATUS_VLAN_TPID_VALID = 1 << 6
_ETHERTYPE_VLAN = 0x8100
# struct tpacket_auxdata: status, length, captured, offsets of link and network header, VLAN.
_AUXDATA = struct.Struct("=IIIHHHH")

_SEND_ERRORS = {
    errno.EMSGSIZE: "frame_too_large",
    errno.EINVAL: "frame_too_small",
    errno.ENOBUFS: "interface_full",
}

_TUNNEL_ERRORS = {errno.EMSGSIZE: "frame_too_large", errno.EAGAIN: "tunnel_full"}


@dataclass
class PortCounters:
    """Whole frames and their bytes, without the tunnel's headers."""

    frames_in: int = 0
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0


class Port(Protocol):
    """One port."""

    number: int
    counters: PortCounters

    @property
    def drops(self) -> Counter[str]:
        """The number of frames that were lost, by reason."""

    @property
    def what(self) -> str:
        """The far end of the port, as on the command line."""

    def fileno(self) -> int:
        """Readable when a frame waits."""

    def receive(self) -> bytes | None:
        """Returns the next frame that waits; None if there is none, or an error was told in its
        place.
        """

    def send(self, frame: bytes) -> None:
        """Send a frame, or count it as lost."""

    def close(self) -> None:
        """Give the socket, and the interface, back."""


@dataclass(frozen=True)
class UdpTunnel:
    """``udp:LOCAL_IP:PORT/REMOTE_IP:PORT``: a frame is the payload of one UDP datagram.

    Port 0 at the near end takes a free one, which the opened port's ``what`` has.
    """

    local: Address
    remote: Address

    def __str__(self) -> str:
        return "udp:{}:{}/{}:{}".format(*self.local, *self.remote)

    def open(self, number: int) -> Port:
        """Raises LabError ``PORT_TAKEN``, ``BAD_ADDRESS``, ``NO_PERMISSION``."""
        return UdpTunnelPort(number, self)


@dataclass(frozen=True)
class Interface:
    """The name of a network interface of this machine (Linux; opening it needs CAP_NET_RAW)."""

    name: str

    def __str__(self) -> str:
        return self.name

    def open(self, number: int) -> Port:
        """Raises LabError ``NO_INTERFACE``, ``NO_PERMISSION``."""
        return PacketSocketPort(number, self)


Link = UdpTunnel | Interface


def read_ports(texts: Iterable[str]) -> dict[int, Link]:
    """Reads the far end of each port: ``1=udp:127.0.0.1:5001/127.0.0.1:5002`` or ``1=veth0``.

    An interface belongs to one port, as each of two would receive all of its frames. Raises
    LabError ``BAD_PORT``.
    """
    ports: dict[int, Link] = {}
    for text in texts:
        number, sign, link = text.partition("=")
        option = f"--port {text}"
        if not (sign and number.isascii() and number.isdecimal() and int(number) <= LAST_PORT):
            raise _bad(option, f"expected NUMBER=LINK with a number from 0 to {LAST_PORT}")
        if int(number) in ports:
            raise _bad(option, f"port {int(number)} is given twice")
        read = _read_link(option, link)
        for other, taken in ports.items():
            if read == taken:
                raise _bad(option, f"port {other} already uses this link")
        ports[int(number)] = read
    return ports


class UdpTunnelPort:
    """The near end of a UDP tunnel; datagrams of others than the far end are not received.

    Reasons in ``drops``: ``tunnel_unreachable`` (nobody listens at the far end, or the network says
    that it cannot be reached), ``tunnel_full``, ``frame_too_large`` (for a datagram, or for the
    way), ``unknown_sender`` (a datagram did not come from the far end). What the network says comes
    late, so that such frames are among ``frames_out`` too.
    """

    def __init__(self, number: int, link: UdpTunnel) -> None:
        self.number = number
        self.counters = PortCounters()
        self._drops: Counter[str] = Counter()
        self._socket = open_tunnel(
            link.local, link.remote, f"port {number}: the tunnel {link} cannot be opened"
        )
        # Where port 0 was asked for, the one that was free.
        self._link = UdpTunnel(self._socket.getsockname(), link.remote)
        self._unknown_senders = UnknownSenders(self._socket)
        _give_room(self._socket)

    @property
    def drops(self) -> Counter[str]:
        return self._drops + Counter(unknown_sender=self._unknown_senders.count)

    @property
    def what(self) -> str:
        return str(self._link)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> bytes | None:
        try:
            frame = self._socket.recv(_LARGEST_FRAME)
        except BlockingIOError:
            return None
        except OSError as error:
            # What the network (ICMP) says of a frame that was sent earlier. A frame that waits
            # behind it keeps the socket readable.
            self._lost(error)
            return None
        self.counters.frames_in += 1
        self.counters.bytes_in += len(frame)
        return frame

    def send(self, frame: bytes) -> None:
        try:
            self._socket.send(frame)
        except OSError as told:
            self._lost(told)
            # The kernel may have told of an earlier frame, and not have sent this one.
            try:
                self._socket.send(frame)
            except OSError as again:
                if again.errno != told.errno:
                    self._lost(again)
                return
        self.counters.frames_out += 1
        self.counters.bytes_out += len(frame)

    def _lost(self, error: OSError) -> None:
        self._drops[_TUNNEL_ERRORS.get(error.errno or 0, "tunnel_unreachable")] += 1

    def close(self) -> None:
        self._socket.close()
        self._unknown_senders.close()


class PacketSocketPort:
    """A network interface, in promiscuous mode as long as the port is open.

    Takes what arrives there, with its VLAN tag, and not what this machine sends by it.

    Reasons in ``drops``: ``interface_down`` (or gone), ``interface_full``, ``frame_too_large`` (for
    the interface's MTU, or merged by its offloads to more than a frame), ``frame_too_small``.
    """

    def __init__(self, number: int, link: Interface) -> None:
        self.number = number
        self.counters = PortCounters()
        self.drops: Counter[str] = Counter()
        self._link = link
        if not hasattr(socket, "AF_PACKET"):
            raise LabError(
                "NO_INTERFACE", f"port {number}: interfaces require Linux; tunnels (udp:) do not"
            )
        try:
            # Protocol 0: not a frame arrives before the socket knows its interface.
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError:
            raise LabError(
                "NO_PERMISSION",
                f"port {number}: interface {link.name!r} requires root or the capability "
                "CAP_NET_RAW (docs/reference/lab-switch.md); tunnels (udp:) do not",
            ) from None
        try:
            index = socket.if_nametoindex(link.name)
            self._set_options(index)
            self._socket.bind((link.name, _ETH_P_ALL))
        except OSError:
            self._socket.close()
            present = ", ".join(name for _, name in socket.if_nameindex())
            raise LabError(
                "NO_INTERFACE",
                f"port {number}: interface {link.name!r} does not exist, only: {present}",
            ) from None
        _give_room(self._socket)

    def _set_options(self, index: int) -> None:
        promiscuous = struct.pack("=iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
        self._socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, promiscuous)
        # The kernel takes a VLAN tag out of the frame and tells it beside it.
        self._socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        # Spares the copies; kernels before 4.20 lack it, and `receive` looks by itself too.
        with contextlib.suppress(OSError):
            self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)

    @property
    def what(self) -> str:
        return str(self._link)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> bytes | None:
        while True:
            try:
                frame, beside, flags, source = self._socket.recvmsg(
                    _LARGEST_FRAME, socket.CMSG_SPACE(_AUXDATA.size)
                )
            except BlockingIOError:
                return None
            except OSError:
                # Told once, when the interface goes down or is removed.
                self.drops["interface_down"] += 1
                return None
            if source[2] == _PACKET_OUTGOING:
                continue
            if flags & socket.MSG_TRUNC:
                self.drops["frame_too_large"] += 1
                continue
            for level, kind, data in beside:
                if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
                    frame = with_vlan_tag(frame, data)
            self.counters.frames_in += 1
            self.counters.bytes_in += len(frame)
            return frame

    def send(self, frame: bytes) -> None:
        try:
            self._socket.send(frame)
        except BlockingIOError:
            self.drops["interface_full"] += 1
            return
        except OSError as error:
            self.drops[_SEND_ERRORS.get(error.errno or 0, "interface_down")] += 1
            return
        self.counters.frames_out += 1
        self.counters.bytes_out += len(frame)

    def close(self) -> None:
        self._socket.close()


def with_vlan_tag(frame: bytes, auxdata: bytes) -> bytes:
    """Returns the frame with the VLAN tag that the kernel took out of it, if it did."""
    if len(auxdata) < _AUXDATA.size:
        return frame
    status, _, _, _, _, control, protocol = _AUXDATA.unpack_from(auxdata)
    if not status & _TP_STATUS_VLAN_VALID:
        return frame
    if not status & _TP_STATUS_VLAN_TPID_VALID:
        protocol = _ETHERTYPE_VLAN
    return frame[:12] + struct.pack(">HH", protocol, control) + frame[12:]


def read_tunnel(text: str) -> UdpTunnel:
    """Reads the tunnel of a switch's port as an option ``--tunnel`` of another command names it.

    Args:
        text: ``IP:PORT/IP:PORT``, the switch's end first, with or without ``udp:`` before it. Port
            0 at the far end stands for any free one.

    Raises:
        LabError: BAD_PORT.
    """
    option = f"--tunnel {text}"
    ends = text.removeprefix("udp:")
    if "/" not in ends:
        raise _bad(
            option,
            "a switch receives frames only from the far end of its tunnel: give both ends, as in "
            "--port of the switch, for example "
            f"--tunnel {ends or '127.0.0.1:5001'}/127.0.0.1:5002. "
            "The tunnel to the publisher's switch of a lab accepts any far end, for example "
            f"--tunnel {ends or '127.0.0.1:5001'}/127.0.0.1:0",
        )
    return _read_tunnel(option, f"udp:{ends}", least_far_port=0)


_TUNNEL = re.compile(r"udp:([^:/]+):(\d{1,5})/([^:/]+):(\d{1,5})", re.ASCII)


def _read_link(option: str, link: str) -> Link:
    if link.startswith("udp:"):
        return _read_tunnel(option, link)
    # As the kernel has them: at most 15 bytes, no white space, no slash.
    if not 0 < len(os.fsencode(link)) <= 15 or re.search(r"[\s/]", link):
        raise _bad(option, "a link must be the name of an interface or udp:IP:PORT/IP:PORT")
    return Interface(link)


def _read_tunnel(option: str, link: str, least_far_port: int = 1) -> UdpTunnel:
    match = _TUNNEL.fullmatch(link)
    if match is None:
        raise _bad(option, "a tunnel must be udp:IP:PORT/IP:PORT, with the near end first")
    near = _address(option, match[1], match[2])
    return UdpTunnel(near, _address(option, match[3], match[4], least_far_port))


def _address(option: str, ip: str, port: str, least_port: int = 1) -> Address:
    try:
        IPv4Address(ip)
    except AddressValueError:
        raise _bad(option, f"{ip!r} is not an IPv4 address") from None
    if not least_port <= int(port) < 1 << 16:
        raise _bad(option, f"{port} is not a UDP port")
    return ip, int(port)


def _give_room(wire: socket.socket) -> None:
    """Never block, and let bursts wait in the kernel as long as it allows."""
    wire.setblocking(False)
    for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE, socket.SO_SNDBUF):
        # Root may have more than the system's limit.
        with contextlib.suppress(OSError):
            wire.setsockopt(socket.SOL_SOCKET, option, _BUFFER)


def _bad(option: str, why: str) -> LabError:
    return LabError("BAD_PORT", f"{option}: {why}", text=option.partition(" ")[2])
