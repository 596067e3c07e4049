"""Frames that switches' controllers send out, from gRPC's threads to a network's loop."""

from __future__ import annotations

import contextlib
import queue
import socket

_MOST = 4096


class Injections:
    """A queue that a selector can wait for; ``lost``: frames given up as it was full."""

    def __init__(self) -> None:
        self.lost = 0
        self._waiting: queue.Queue[tuple[str, bytes]] = queue.Queue(_MOST)
        self._ready, self._waker = socket.socketpair()
        for end in (self._ready, self._waker):
            end.setblocking(False)

    def put(self, switch: str, data: bytes) -> None:
        """Leaves what a switch is to process as from its controller; any thread may."""
        try:
            self._waiting.put_nowait((switch, data))
        except queue.Full:
            self.lost += 1
            return
        # Full of wake-ups is awake enough.
        with contextlib.suppress(BlockingIOError, OSError):
            self._waker.send(b"\0")

    def fileno(self) -> int:
        return self._ready.fileno()

    def take(self) -> list[tuple[str, bytes]]:
        """Returns what waits: ``(switch, data)``."""
        with contextlib.suppress(BlockingIOError):
            self._ready.recv(_MOST)
        found = []
        with contextlib.suppress(queue.Empty):
            while len(found) < _MOST:
                found.append(self._waiting.get_nowait())
        return found

    def close(self) -> None:
        self._ready.close()
        self._waker.close()
