"""Where a publisher's frames enter the network: the far end of the UDP tunnel (WERNECKE 3.4.1)."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Callable

_RECEIVE_BUFFER = 8 << 20
_LARGEST = 65_535
_BATCH = 256
# The kernel's buffer is small without root: it is emptied after every few frames.
_BETWEEN_PULLS = 8
_LONGEST_QUEUE = 4096
# Linux; Python's socket module does not name it.
_SO_RCVBUFFORCE = 33

_Address = tuple[str, int]


class Ingress:
    """A loopback UDP socket; each datagram is one frame that enters the publisher's switch.

    ``port`` 0 takes a free one.

    Senders are told how many of their frames have been processed: an 8-byte big-endian count,
    cumulative for each source address since this socket was opened.

    The windows of all senders together must fit the socket's buffer: with Linux's default of
    ``net.core.rmem_max`` and without root that is about 180 frames of 1,500 bytes.
    """

    def __init__(self, publisher: str, send: Callable[[str, bytes], None], port: int = 0) -> None:
        self.publisher = publisher
        self._send = send
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        # Root may have more than the system's limit; without it, windows keep bursts small.
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        self._socket.bind(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._waiting: deque[tuple[bytes, _Address]] = deque()
        self._processed: dict[_Address, int] = {}
        self._unanswered: set[_Address] = set()

    @property
    def address(self) -> str:
        ip, port = self._socket.getsockname()
        return f"{ip}:{port}"

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def backlog(self) -> int:
        """Frames taken from the socket that still wait: :meth:`receive` has more to do."""
        return len(self._waiting)

    def receive(self) -> None:
        """Send the frames that have arrived into the network, a batch at most."""
        for done in range(_BATCH):
            if done % _BETWEEN_PULLS == 0:
                self._pull()
            if not self._waiting:
                return
            frame, source = self._waiting.popleft()
            self._send(self.publisher, frame)
            self._processed[source] = self._processed.get(source, 0) + 1
            self._unanswered.add(source)

    def answer(self) -> None:
        """Tell each sender of the last batch its count."""
        for source in self._unanswered:
            # A sender that asked for no credit may be gone; that is its own business.
            with contextlib.suppress(OSError):
                self._socket.sendto(self._processed[source].to_bytes(8), source)
        self._unanswered.clear()

    def _pull(self) -> None:
        while len(self._waiting) < _LONGEST_QUEUE:
            try:
                self._waiting.append(self._socket.recvfrom(_LARGEST))
            except BlockingIOError:
                return

    def close(self) -> None:
        self._socket.close()
