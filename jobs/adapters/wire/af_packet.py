"""Frames straight onto an interface, by a raw packet socket (Linux; needs CAP_NET_RAW)."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

import numpy as np
from numpy.typing import NDArray

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS
from stackcast.jobs.adapters.wire.options import SinkOptions
from stackcast.jobs.adapters.wire.sendmmsg import NO_PERMISSION, FrameSender
from stackcast.udfs.errors import SinkError

_SEND_BUFFER = 4 << 20
_FLAGS, _UP = 0x8913, 1
_ETHTOOL, _LINK = 0x8946, 10
#: Seconds between two looks for a link.
_LOOK = 0.01


class PacketSink:
    """SOCK_RAW bound to ``options.interface``; protocol 0, so it receives nothing.

    Without a link the kernel drops frames and says nothing: they wait for it, and those of a call
    in which it was lost are sent again. Raises SinkError ``INTERFACE_NOT_FOUND``, ``PERMISSION``,
    ``UNSUPPORTED``, ``STALLED``, and what :class:`FrameSender` raises.
    """

    def __init__(self, options: SinkOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        name = options.interface
        if not hasattr(socket, "AF_PACKET"):
            raise SinkError("UNSUPPORTED", "packet sockets require Linux: use the udp or pcap sink")
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError as error:
            what, advice = NO_PERMISSION
            raise SinkError(what, f"interface {name}: {error.strerror}{advice}") from error
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        try:
            self._socket.bind((name, 0))
        except OSError as error:
            self._socket.close()
            present = ", ".join(known for _, known in socket.if_nameindex())
            raise SinkError(
                "INTERFACE_NOT_FOUND",
                f"interface {name!r}: {error.strerror or error}; existing interfaces: {present}",
                interface=name,
            ) from error
        self._name, self._patience = name, options.patience
        self._sender = FrameSender(self._socket, f"interface {name}", options.patience, clock=clock)

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        while True:
            self._await_link()
            sent = self._sender.send(data, offsets)
            if self._linked():
                return sent

    def _await_link(self) -> None:
        deadline = self._clock.monotonic() + self._patience
        while not self._linked():
            if self._clock.monotonic() > deadline:
                raise SinkError(
                    "STALLED",
                    f"interface {self._name} has had no link for {self._patience:g} s: check the "
                    "cable and the device at its other end",
                )
            self._clock.sleep(_LOOK)

    def _linked(self) -> bool:
        """Returns whether there is a link, and True where sending will say what is wrong."""
        told = ctypes.create_string_buffer(struct.pack("=II", _LINK, 0), 8)
        request = struct.pack("16sP8x", self._name.encode(), ctypes.addressof(told))
        try:
            fcntl.ioctl(self._socket, _ETHTOOL, request)
            if struct.unpack("=II", told.raw)[1]:
                return True
            answer = fcntl.ioctl(self._socket, _FLAGS, struct.pack("16s16x", self._name.encode()))
        except OSError:
            return True
        return not struct.unpack_from("H", answer, 16)[0] & _UP

    def flush(self) -> None:
        """Nothing to wait for: what the kernel took is in the queue of the interface."""

    def close(self) -> None:
        # The kernel takes 5 to 15 ms until nobody can hold such a socket, and the task is over.
        SYSTEM_THREADS.start("close", self._socket.close)
