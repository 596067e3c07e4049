"""Frames straight onto an interface, by a raw packet socket (Linux; needs CAP_NET_RAW)."""

from __future__ import annotations

import socket
import threading

import numpy as np
from numpy.typing import NDArray

from jobs.adapters.wire.options import SinkOptions
from jobs.adapters.wire.sendmmsg import NO_PERMISSION, FrameSender
from udfs.errors import SinkError

_SEND_BUFFER = 4 << 20


class PacketSink:
    """SOCK_RAW bound to ``options.interface``; protocol 0, so it receives nothing.

    Raises SinkError ``INTERFACE_NOT_FOUND``, ``PERMISSION``, ``UNSUPPORTED``, and what
    :class:`FrameSender` raises.
    """

    def __init__(self, options: SinkOptions) -> None:
        name = options.interface
        if not hasattr(socket, "AF_PACKET"):
            raise SinkError("UNSUPPORTED", "packet sockets need Linux: choose the udp or pcap sink")
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
                f"interface {name!r}: {error.strerror or error}; there are: {present}",
                interface=name,
            ) from error
        self._sender = FrameSender(self._socket, f"interface {name}", options.patience)

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        return self._sender.send(data, offsets)

    def flush(self) -> None:
        """Nothing to wait for: what the kernel took is in the queue of the interface."""

    def close(self) -> None:
        # The kernel takes 5 to 15 ms until nobody can hold such a socket, and the task is over.
        threading.Thread(target=self._socket.close, name="close").start()
