"""The far end of the wire, in a process of its own: when each frame arrived, and what it carries.

The kernel stamps a frame when it arrives (``SO_TIMESTAMPNS``), so reading it later costs nothing.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import socket
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.pipeline.wire import Wire
from benchmarks.pipeline.workload import stamps

BATCH = 1_024
#: Bytes of a frame that are looked at: the longest stack, headers, the first message.
LOOKED_AT = 512
#: Seconds between two looks.
PAUSE = 0.005
_CONTROL = 64
_BUFFER = 256 << 20
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
#: Ethernet, count of labels; then IPv4, UDP, MoldUDP64, up to the first order's reference.
_BEFORE, _BEHIND = 16, 20 + 8 + 20 + 13
_UDP_PORT = 20 + 2

_IOVEC = np.dtype([("base", np.uintp), ("length", np.uintp)], align=True)
_MESSAGE = np.dtype(
    [
        ("name", np.uintp),
        ("name_length", np.uint32),
        ("vectors", np.uintp),
        ("vectors_count", np.uintp),
        ("control", np.uintp),
        ("control_length", np.uintp),
        ("flags", np.int32),
        ("padding", np.int32),
        ("length", np.uint32),
    ],
    align=True,
)


def read_frames(frames: NDArray[np.uint8], port: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Finds notifications to a UDP port, bool[n], and the reference of each one's first order.

    frames: uint8[n, LOOKED_AT], virtual-tree frames with labels of two bytes.
    """
    labels = frames[:, 14].astype(np.int64) << 8 | frames[:, 15]
    labels = np.minimum(labels, 64)
    rows = np.arange(len(frames))
    ipv4 = _BEFORE + 2 * labels
    to = frames[rows, ipv4 + _UDP_PORT].astype(np.int64) << 8 | frames[rows, ipv4 + _UDP_PORT + 1]
    return to == port, stamps(frames.reshape(-1), rows * LOOKED_AT + ipv4 + _BEHIND)


class FarEnd:
    """A process that takes frames at the far end of the wire; a context manager.

    It is ready when ``__enter__`` returns, at ``began``. work: takes wire, port and a pipe, on
    which it says that it is ready, and then answers each question.
    """

    def __init__(
        self, work: Callable[[Wire, int, Connection], None], wire: Wire, port: int
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(wire, port, theirs), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self._pipe.recv()
        self.began = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.join()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def _answer(self) -> Any:
        self._pipe.send("taken")
        return self._pipe.recv()


class FrameReceiver(FarEnd):
    """Takes the times of frames while it is open. `taken` gives what came so far."""

    def __init__(self, wire: Wire, port: int) -> None:
        super().__init__(_receive, wire, port)

    def taken(self) -> NDArray[np.int64]:
        """int64[n, 2] since the last call: the first order's reference, when the frame arrived."""
        found: NDArray[np.int64] = self._answer()
        return found


def make_room(far: socket.socket) -> None:
    """Gives a socket a buffer that is as large as may be."""
    try:
        far.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    except PermissionError:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)


def _receive(wire: Wire, port: int, pipe: Connection) -> None:
    if wire.kind == "udp":
        far = wire.hold()
    else:
        far = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        far.bind((wire.far, 0x0003))
    far.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    make_room(far)
    far.setblocking(False)
    reader = _Reader(far)
    found: list[NDArray[np.int64]] = []
    pipe.send("ready")
    while True:
        while (count := reader.read()) > 0:
            mine, reference = read_frames(reader.frames[:count], port)
            found.append(np.column_stack((reference, reader.arrived(count)))[mine])
        if pipe.poll(PAUSE):
            pipe.recv()
            pipe.send(np.concatenate([np.zeros((0, 2), np.int64), *found]))
            found = []


class _Reader:
    """``recvmmsg(2)`` into arrays."""

    def __init__(self, far: socket.socket) -> None:
        self._socket = far
        self._recvmmsg = ctypes.CDLL(None, use_errno=True).recvmmsg
        self.frames = np.zeros((BATCH, LOOKED_AT), np.uint8)
        self._control = np.zeros((BATCH, _CONTROL), np.uint8)
        self._vectors = np.zeros(BATCH, _IOVEC)
        self._vectors["base"] = self.frames.ctypes.data + np.arange(BATCH) * LOOKED_AT
        self._vectors["length"] = LOOKED_AT
        self._messages = np.zeros(BATCH, _MESSAGE)
        self._messages["vectors"] = self._vectors.ctypes.data + np.arange(BATCH) * _IOVEC.itemsize
        self._messages["vectors_count"] = 1
        self._messages["control"] = self._control.ctypes.data + np.arange(BATCH) * _CONTROL

    def read(self) -> int:
        """Returns how many frames came, 0 if none."""
        self._messages["control_length"] = _CONTROL
        address = ctypes.c_void_p(self._messages.ctypes.data)
        return int(self._recvmmsg(self._socket.fileno(), address, BATCH, 0, None))

    def arrived(self, count: int) -> NDArray[np.int64]:
        """int64[count]: ns since 1970, as the kernel stamped the frames."""
        # struct cmsghdr is 16 bytes long here, struct timespec as many.
        time_of = self._control[:count, 16:32].copy().view(np.int64)
        found: NDArray[np.int64] = time_of[:, 0] * 1_000_000_000 + time_of[:, 1]
        return found


assert _MESSAGE.itemsize == struct.calcsize("@PIPNPNiiIi"), "another machine's struct mmsghdr"
