"""UDP tunnel (WERNECKE 3.4.1): each datagram is exactly one frame.

With a window the far end answers datagrams with an 8-byte big-endian count of the frames that it
has processed from this source address so far. The count may have begun before this sink (ports
are used again), so the first frame goes alone and its answer sets the zero.
"""

from __future__ import annotations

import select
import socket

import numpy as np
from numpy.typing import NDArray

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.wire.options import SinkOptions
from stackcast.jobs.adapters.wire.sendmmsg import FrameSender
from stackcast.udfs.errors import SinkError

# What the kernel charges a receive buffer for an 8-byte datagram, amply.
_ANSWER_COST = 2_048
_SEND_BUFFER = 4 << 20
# By family, the socket option that has the way's MTU (IP_MTU, IPV6_MTU), and bytes of the headers.
_MTU = {
    socket.AF_INET: ((socket.IPPROTO_IP, 14), 28),
    socket.AF_INET6: ((socket.IPPROTO_IPV6, 24), 48),
}


def parse_endpoint(text: str, option: str = "") -> tuple[str, int]:
    """Split ``host:port`` or ``[IPv6]:port``.

    Args:
        text: the address.
        option: name of the option or setting that has it, for errors.

    Raises:
        SinkError: ``BAD_ENDPOINT``.
    """
    host, colon, port = text.rpartition(":")
    prefix = f"{option} " if option else ""
    if not colon or not host or not port.isdecimal():
        raise SinkError(
            "BAD_ENDPOINT",
            f"{prefix}{text!r} must have the form host:port, such as 127.0.0.1:26400",
            endpoint=text,
        )
    # Python converts at most 4,300 digits.
    if len(port) > 5 or not 0 < int(port) < 65_536:
        raise SinkError(
            "BAD_ENDPOINT", f"{prefix}{text}: the port must be 1 to 65535", endpoint=text
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


class UdpSink:
    """Frames as datagrams to one far end; with a window no faster than it processes them.

    Raises SinkError ``BAD_ENDPOINT``, ``BAD_WINDOW``, ``UNREACHABLE``, ``NO_CREDIT``, and what
    :class:`FrameSender` raises.
    """

    def __init__(self, options: SinkOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        if options.window < 0:
            raise SinkError("BAD_WINDOW", f"window {options.window} must be 0 or more frames")
        host, port = parse_endpoint(options.endpoint)
        self._target = options.endpoint
        self._patience = options.patience
        self._socket = _connect(host, port, options.endpoint)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._window = 0
        if options.window:
            self._window = self._fit_window(options.window)
        target, segment = f"tunnel {options.endpoint}", _segment(self._socket)
        self._sender = FrameSender(self._socket, target, options.patience, segment, clock)
        self._sent = 0
        self._processed = 0
        self._zero: int | None = None

    def _fit_window(self, window: int) -> int:
        """No more frames ahead than this socket can hold answers for.

        Were the last answer dropped, flush would wait for it in vain.
        """
        wanted = min(window * _ANSWER_COST, 1 << 30)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
        granted = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        return max(1, min(window, granted // _ANSWER_COST))

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        frames = offsets.size - 1
        if not self._window:
            return self._sender.send(data, offsets)
        done = 0
        while done < frames:
            room = self._room()
            if room == 0:
                self._await_answer()
                continue
            ahead = min(room, frames - done)
            self._sender.send(data, offsets[done : done + ahead + 1])
            self._sent += ahead
            done += ahead
        return frames

    def flush(self) -> None:
        while self._window and self._processed < self._sent:
            self._await_answer()

    def close(self) -> None:
        self._socket.close()

    def _room(self) -> int:
        self._read_answers()
        window = 1 if self._zero is None else self._window
        return window - (self._sent - self._processed)

    def _await_answer(self) -> None:
        """Return as soon as more frames are known to be processed."""
        processed = self._processed
        deadline = self._clock.monotonic() + self._patience
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while self._processed == processed:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise SinkError(
                    "NO_CREDIT",
                    f"tunnel {self._target} has not answered for {self._patience:g} s, and "
                    f"{self._sent - processed} frames are not acknowledged: frames are lost on "
                    "the path, or the far end sends no acknowledgements (set the window to 0 if "
                    "it never does)",
                    unanswered=self._sent - processed,
                )
            poll.poll(1000 * left)
            self._read_answers()

    def _read_answers(self) -> None:
        while True:
            try:
                answer = self._socket.recv(64)
            except BlockingIOError:
                return
            except OSError as error:
                raise SinkError(
                    "UNREACHABLE",
                    f"tunnel {self._target}: {error.strerror}; check whether the far end is "
                    "listening",
                    errno=error.errno,
                ) from error
            if len(answer) != 8:
                continue
            count = int.from_bytes(answer)
            if self._zero is None:
                self._zero = count - self._sent
            processed = count - self._zero
            # Answers may overtake each other; one from before this sink's time counts too much.
            if self._processed < processed <= self._sent:
                self._processed = processed


def _segment(connected: socket.socket) -> int:
    """Returns the bytes that a datagram to the far end may have without being fragmented: the
    kernel cuts no larger ones. 0 where nobody knows."""
    option, headers = _MTU[connected.family]
    try:
        return max(0, connected.getsockopt(*option) - headers)
    except OSError:
        return 0


def _connect(host: str, port: int, endpoint: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[
            0
        ]
    except OSError as error:
        raise SinkError(
            "UNREACHABLE", f"tunnel {endpoint}: {error.strerror}; check the host name"
        ) from error
    connected = socket.socket(family, kind, protocol)
    try:
        connected.connect(address)
    except OSError as error:
        connected.close()
        raise SinkError("UNREACHABLE", f"tunnel {endpoint}: {error.strerror}") from error
    return connected
