"""Receive buffers of sockets: how large the kernel lets them be, and what it dropped."""

from __future__ import annotations

import socket
import struct

# Linux constants that Python's socket module does not name.
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
#: struct of SO_MEMINFO: nine u32; the last one counts dropped datagrams (SK_MEMINFO_DROPS).
_MEMINFO = struct.Struct("@9I")


def enlarge_receive_buffer(wire: socket.socket, size: int) -> None:
    """Request a receive buffer of ``size`` bytes.

    With CAP_NET_ADMIN the kernel grants any size. Otherwise it silently cuts the size to
    ``net.core.rmem_max``; see `shortfall`.
    """
    try:
        wire.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size)
    except PermissionError:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def shortfall(wire: socket.socket, size: int) -> str:
    """Return a sentence about a receive buffer smaller than ``size`` bytes, or an empty text."""
    # The kernel doubles a size on setting it, to leave room for its own data on each datagram.
    granted = wire.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    if granted >= size:
        return ""
    return (
        f"requested a receive buffer of {size:,} bytes, but the kernel granted {granted:,}, so "
        f"bursts may lose datagrams: raise the limit with sysctl -w net.core.rmem_max={size}"
    )


def dropped(wire: socket.socket) -> int:
    """Return how many datagrams the kernel dropped at a socket since it was opened.

    It drops a datagram if the receive buffer is full or a checksum is wrong.
    """
    info = wire.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    drops: int = _MEMINFO.unpack(info)[-1]
    return drops
