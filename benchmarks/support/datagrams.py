"""Datagrams off a socket by the thousand, each with the time at which the kernel took it.

The kernel stamps a datagram when it arrives (``SO_TIMESTAMPNS``), so reading it later costs
nothing.
"""

from __future__ import annotations

import ctypes
import socket

import numpy as np
from numpy.typing import NDArray

from stackcast.jobs.adapters.wire.sendmmsg import BATCH, messages_of_one_vector

CONTROL = 64
"""Bytes that a stamp takes at most."""
_BUFFER = 256 << 20
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35


def make_room(far: socket.socket) -> None:
    """Gives a socket a buffer that is as large as may be."""
    try:
        far.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    except PermissionError:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)


def stamp(far: socket.socket) -> None:
    """Has the kernel stamp what arrives from now on."""
    far.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class DatagramReader:
    """``recvmmsg(2)`` into arrays, from a socket that does not block and that is stamped.

    looked_at: bytes of each datagram that are kept, in ``frames``: uint8[BATCH, looked_at].
    """

    def __init__(self, far: socket.socket, looked_at: int) -> None:
        self._socket = far
        self._recvmmsg = ctypes.CDLL(None, use_errno=True).recvmmsg
        self.frames = np.zeros((BATCH, looked_at), np.uint8)
        self._control = np.zeros((BATCH, CONTROL), np.uint8)
        self._vectors, self._messages = messages_of_one_vector()
        self._vectors["base"] = self.frames.ctypes.data + np.arange(BATCH) * looked_at
        self._vectors["length"] = looked_at
        self._headers = self._messages["header"]
        self._headers["control"] = self._control.ctypes.data + np.arange(BATCH) * CONTROL

    def read(self) -> int:
        """Returns how many datagrams came, 0 or less if none."""
        self._headers["control_length"] = CONTROL
        address = ctypes.c_void_p(self._messages.ctypes.data)
        return int(self._recvmmsg(self._socket.fileno(), address, BATCH, 0, None))

    def lengths(self, count: int) -> NDArray[np.int64]:
        """int64[count]: bytes of the datagrams, ``looked_at`` at most."""
        found: NDArray[np.int64] = self._messages["length"][:count].astype(np.int64)
        return found

    def arrived(self, count: int) -> NDArray[np.int64]:
        """int64[count]: ns since 1970, as the kernel stamped the datagrams."""
        # struct cmsghdr is 16 bytes long here, struct timespec as many.
        time_of = self._control[:count, 16:32].copy().view(np.int64)
        found: NDArray[np.int64] = time_of[:, 0] * 1_000_000_000 + time_of[:, 1]
        return found
