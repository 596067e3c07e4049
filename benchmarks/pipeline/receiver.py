"""The far end of the wire, in a process of its own: when frames arrived, and what they carry."""

from __future__ import annotations

import socket
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.pipeline.wire import Wire
from benchmarks.pipeline.workload import stamps
from benchmarks.support.datagrams import DatagramReader, make_room, stamp
from benchmarks.support.ready_process import ReadyProcess

#: Bytes of a frame that are looked at: the longest stack, headers, the first message.
LOOKED_AT = 512
#: Seconds between two looks.
PAUSE = 0.005
#: Ethernet, count of labels; then IPv4, UDP, MoldUDP64, up to the first order's reference.
_BEFORE, _BEHIND = 16, 20 + 8 + 20 + 13
_UDP_PORT = 20 + 2


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


class FrameReceiver(ReadyProcess):
    """Takes the times of frames while it is open. `taken` gives what came so far."""

    def __init__(self, wire: Wire, port: int) -> None:
        super().__init__(_receive, wire, port)

    def taken(self) -> NDArray[np.int64]:
        """int64[n, 2] since the last call: the first order's reference, when the frame arrived."""
        found: NDArray[np.int64] = self._answer()
        return found


def _receive(wire: Wire, port: int, pipe: Connection) -> None:
    if wire.kind == "udp":
        far = wire.hold()
    else:
        far = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        far.bind((wire.far, 0x0003))
    stamp(far)
    make_room(far)
    far.setblocking(False)
    reader = DatagramReader(far, LOOKED_AT)
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
