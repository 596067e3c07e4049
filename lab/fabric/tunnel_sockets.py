"""UDP sockets of tunnels, each connected to the far end, and the count of unknown senders."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import socket
import struct
from ipaddress import IPv4Address

from stackcast.udfs.errors import LabError

Address = tuple[str, int]

# Linux; Python's socket module does not name these.
_SO_ATTACH_FILTER = 26
_SO_MEMINFO = 55
#: struct of SO_MEMINFO: nine u32; the last one counts discarded datagrams (SK_MEMINFO_DROPS).
_MEMINFO = struct.Struct("@9I")
#: A filter program of one instruction, "return 0": the kernel keeps no byte of any datagram.
_DISCARD_ALL = struct.pack("@HBBI", 0x06, 0, 0, 0)


def open_tunnel(
    own: Address, peer: Address, subject: str, ends: tuple[str, str] = ("near end", "far end")
) -> socket.socket:
    """Opens the socket at one end of a tunnel, which receives only from the other end.

    Args:
        own: IPv4 address and UDP port of this end; port 0 takes a free one.
        peer: IPv4 address and UDP port of the other end.
        subject: the beginning of an error message; it names the tunnel.
        ends: words for ``own`` and ``peer`` in error messages.

    Raises:
        LabError: PORT_TAKEN, BAD_ADDRESS, NO_PERMISSION.
    """
    if IPv4Address(peer[0]).is_multicast or IPv4Address(peer[0]).is_unspecified:
        raise LabError("BAD_ADDRESS", f"{subject}: its {ends[1]} {peer[0]} is not a single machine")
    tunnel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        _bind(tunnel, own, subject, ends[0])
        _connect(tunnel, peer, f"{subject}: its {ends[1]} {peer[0]}", own[0])
    except LabError:
        tunnel.close()
        raise
    return tunnel


def _bind(tunnel: socket.socket, own: Address, subject: str, end: str) -> None:
    try:
        tunnel.bind(own)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LabError(
                "PORT_TAKEN", f"{subject}: another program uses {own[0]}:{own[1]}"
            ) from None
        if error.errno == errno.EACCES:
            raise LabError(
                "NO_PERMISSION",
                f"{subject}: UDP port {own[1]} requires root; use a port above 1023",
            ) from None
        why = (
            f"its {end} {own[0]} is not an address of this machine"
            if error.errno == errno.EADDRNOTAVAIL
            else f"{end} {own[0]}:{own[1]}: {error.strerror}"
        )
        raise LabError("BAD_ADDRESS", f"{subject}: {why}") from None


def _connect(tunnel: socket.socket, peer: Address, subject: str, own_ip: str) -> None:
    try:
        # Names the peer once, and keeps datagrams of all others out.
        tunnel.connect(peer)
    except OSError as error:
        why = (
            "is a broadcast address"
            if error.errno == errno.EACCES
            else f"cannot be reached from {own_ip}: {error.strerror}"
        )
        raise LabError("BAD_ADDRESS", f"{subject} {why}") from None


class UnknownSenders:
    """Counts the datagrams that a tunnel's near end gets from others than its far end.

    The kernel passes them to a second socket with the same address, because the tunnel's own socket
    is connected to the far end. The filter of the second socket discards every datagram, and the
    kernel counts what a filter discards. So they take neither memory nor time of this process.
    """

    def __init__(self, tunnel: socket.socket) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Systems other than Linux have no such filters: unknown senders are not counted there.
        with contextlib.suppress(OSError):
            self._share_address(tunnel)

    def _share_address(self, tunnel: socket.socket) -> None:
        program = ctypes.create_string_buffer(_DISCARD_ALL)
        filter_program = struct.pack("@HP", 1, ctypes.addressof(program))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_program)
        # Sockets may share an address if all of them have this option when they are bound. Other
        # programs that try it later are refused.
        for member in (tunnel, self._socket):
            member.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind(tunnel.getsockname())
        finally:
            for member in (tunnel, self._socket):
                member.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)

    @property
    def count(self) -> int:
        """The number of datagrams since the start, modulo 2 to the power of 32."""
        try:
            info = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        except OSError:
            return 0
        drops: int = _MEMINFO.unpack(info)[-1]
        return drops

    def close(self) -> None:
        self._socket.close()
