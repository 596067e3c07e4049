"""Frames onto an interface by AF_XDP (Linux 5.4 and later; needs CAP_NET_RAW): about half of the
core a frame that ``sendmmsg`` takes, past the interface's queueing discipline and captures there.

Frames lie in memory that the kernel knows, and two rings of numbers, mapped into the process, say
which to send and which have gone. linux/Documentation/networking/af_xdp.rst has the layout.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import logging
import mmap
import os
import socket
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.wire.af_packet import PacketSink
from stackcast.jobs.adapters.wire.options import SinkOptions

log = logging.getLogger(__name__)

_AF_XDP, _SOL_XDP = 44, 283
_OFFSETS, _TX, _UMEM, _FILL, _COMPLETION, _BUDGET = 1, 3, 4, 5, 6, 9
_TX_PLACE, _COMPLETION_PLACE = 0x80000000, 0x180000000
_UNALIGNED, _COPY = 1, 2
_MTU = 0x8921

FRAMES = 4_096
"""Frames that may be on their way."""
LONGEST = mmap.PAGESIZE
"""Bytes of a frame at most."""
_MEMORY = 1 << 20
_SEND_BUFFER = 4 << 20
_ETHERNET = 14
_MOST_QUEUES = 256
#: Seconds without progress after which frames go the other way.
_PATIENCE = 1.0
_PAUSE = 0.0001

_DESCRIPTOR = np.dtype([("address", np.uint64), ("length", np.uint32), ("options", np.uint32)])


class XdpSink:
    """AF_XDP on ``options.interface``, as long as its process and the interface have a queue free.

    What cannot go there, goes by `PacketSink`, all frames of a call once more if need be; a line of
    the log says so. Raises SinkError as `PacketSink`.
    """

    def __init__(self, options: SinkOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._packets = PacketSink(options, clock)
        self._name = options.interface
        self._rings = _idle[_interface(options.interface)]
        self._ring: Ring | None = None
        try:
            self._ring = self._rings.pop() if self._rings else Ring(options.interface, clock)
            self._ring.read_mtu(options.interface)
        except OSError as error:
            _tell(self._name, error)

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        if self._ring is not None and self._ring.holds(offsets):
            try:
                return self._ring.send(data, offsets)
            except OSError as error:
                _tell(self._name, error)
                self._ring.close()
                self._ring = None
        return self._packets.send(data, offsets)

    def flush(self) -> None:
        """Nothing to wait for: `send` returns when the interface has taken all."""

    def close(self) -> None:
        self._packets.close()
        if self._ring is not None:
            # To open one takes 10 ms, and its queue is free again only some time after it closed.
            self._rings.append(self._ring)
            self._ring = None


_idle: defaultdict[tuple[int, int], list[Ring]] = defaultdict(list)
"""Rings of this process that no sink has, by network namespace and number of the interface."""
_told: set[tuple[str, int | None]] = set()


def _interface(name: str) -> tuple[int, int]:
    return Path("/proc/thread-self/ns/net").stat().st_ino, socket.if_nametoindex(name)


def _tell(name: str, error: OSError) -> None:
    """Logs, once a process and reason, that frames go by a packet socket."""
    if (name, error.errno) in _told:
        return
    _told.add((name, error.errno))
    log.warning(
        "interface %s does not support AF_XDP (%s): sending through a packet socket instead",
        name,
        error,
    )


class Ring:
    """An AF_XDP socket that only sends, on the first queue of an interface that nobody has.

    Raises OSError where there is none: EBUSY where all are taken.
    """

    def __init__(self, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._socket = socket.socket(_AF_XDP, socket.SOCK_RAW, 0)
        try:
            self._memory = np.frombuffer(mmap.mmap(-1, _MEMORY), np.uint8)
            self._set_up()
            self._bind(socket.if_nametoindex(name))
            self.read_mtu(name)
        except (OSError, ValueError):
            self._socket.close()
            raise
        self._submitted = 0

    def _set_up(self) -> None:
        memory = (self._memory.ctypes.data, _MEMORY, LONGEST, 0, _UNALIGNED, 0)
        self._socket.setsockopt(_SOL_XDP, _UMEM, struct.pack("=QQIIII", *memory))
        # The kernel wants one although nothing is received.
        self._socket.setsockopt(_SOL_XDP, _FILL, 2)
        self._socket.setsockopt(_SOL_XDP, _COMPLETION, FRAMES)
        self._socket.setsockopt(_SOL_XDP, _TX, FRAMES)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        with contextlib.suppress(OSError):
            # Frames a call: 32 before Linux 6.18, all from then on.
            self._socket.setsockopt(_SOL_XDP, _BUDGET, FRAMES)
        # Of each ring: producer, consumer, first place, flags.
        told = struct.unpack("=16Q", self._socket.getsockopt(_SOL_XDP, _OFFSETS, 128))
        number = self._socket.fileno()
        size = told[6] + FRAMES * _DESCRIPTOR.itemsize
        ring = mmap.mmap(number, size, offset=_TX_PLACE)
        self._filled, self._taken = _number(ring, told[4]), _number(ring, told[5])
        self._descriptors = np.frombuffer(ring, _DESCRIPTOR, FRAMES, told[6])
        ring = mmap.mmap(number, told[14] + FRAMES * 8, offset=_COMPLETION_PLACE)
        self._gone, self._seen = _number(ring, told[12]), _number(ring, told[13])

    def _bind(self, interface: int) -> None:
        # Python's own does not know such addresses.
        call = ctypes.CDLL(None, use_errno=True).bind
        for queue in range(_MOST_QUEUES):
            # Where frames are not copied, what comes in by this queue would no longer come.
            address = struct.pack("=HHIII", _AF_XDP, _COPY, interface, queue, 0)
            if call(self._socket.fileno(), address, len(address)) == 0:
                return
            code = ctypes.get_errno()
            if code == errno.EINVAL and queue:
                raise OSError(errno.EBUSY, f"all {queue} queues are in use by other sockets")
            if code != errno.EBUSY:
                raise OSError(code, os.strerror(code))
        raise OSError(errno.EBUSY, f"{_MOST_QUEUES} queues are in use by other sockets")

    def read_mtu(self, name: str) -> None:
        """Reads the longest frame that the interface takes.

        A ring does not notice if the MTU is changed, and longer frames would be lost. Raises
        OSError.
        """
        self._longest = min(LONGEST, _mtu(name) + _ETHERNET)

    def holds(self, offsets: NDArray[np.int64]) -> bool:
        """Says whether no frame is too long."""
        return offsets.size < 2 or int(np.diff(offsets).max()) <= self._longest

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        """Sends all frames; returns how many, once all have left.

        data: uint8[bytes]; offsets: int64[f+1]. Raises OSError where the interface drops one or
        takes none; any of them may be out then.
        """
        frames, sent = offsets.size - 1, 0
        while sent < frames:
            begin = int(offsets[sent])
            last = int(np.searchsorted(offsets, begin + _MEMORY, "right")) - 1
            last = min(last, sent + FRAMES)
            end = int(offsets[last])
            self._memory[: end - begin] = data[begin:end]
            self._submit(offsets[sent : last + 1] - begin)
            sent = last
        self._kick(self._gone)
        return frames

    def _submit(self, offsets: NDArray[np.int64]) -> None:
        """Hands over frames by where they lie, and returns when their memory may be used again."""
        count = offsets.size - 1
        first = self._submitted % FRAMES
        head = min(count, FRAMES - first)
        length = np.diff(offsets)
        for place, part in ((first, slice(0, head)), (0, slice(head, count))):
            rows = self._descriptors[place : place + part.stop - part.start]
            rows["address"] = offsets[:-1][part]
            rows["length"] = length[part]
        self._submitted = (self._submitted + count) & 0xFFFFFFFF
        # What a ring holds is read in calls of this thread alone: no barrier is needed.
        self._filled[0] = self._submitted
        self._kick(self._taken)

    def _kick(self, counter: NDArray[np.uint32]) -> None:
        """Lets the kernel send until a counter has come up with what was submitted."""
        before, deadline = (-1, -1), 0.0
        while True:
            # Whoever has seen what is gone makes room for more.
            self._seen[0] = self._gone[0]
            if counter[0] == self._submitted:
                return
            now = int(self._taken[0]), int(self._gone[0])
            if now != before:
                before, deadline = now, self._clock.monotonic() + _PATIENCE
            elif self._clock.monotonic() > deadline:
                raise OSError(errno.EBUSY, f"it accepted no frame for {_PATIENCE:g} s")
            else:
                self._clock.sleep(_PAUSE)
            try:
                self._socket.send(b"", socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                # It has sent as many as it does at once.
                pass
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise

    def close(self) -> None:
        self._socket.close()


def _mtu(interface: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _MTU, struct.pack("16s16x", interface.encode()))
    return int(struct.unpack_from("i", answer, 16)[0])


def _number(ring: Any, offset: int) -> NDArray[np.uint32]:
    return np.frombuffer(ring, np.uint32, 1, offset)
