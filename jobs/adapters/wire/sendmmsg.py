"""``sendmmsg(2)`` by ctypes: up to 1,024 messages a call, straight out of one numpy buffer.

A message is a frame or, of a UDP socket, several of one size that the kernel cuts again
(`stackcast.udfs.stacks.segments`), so that they go through it but once. Vectors, message headers
and control messages are numpy records that point into the frames; nothing is copied and no Python
statement runs per frame.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket

import numpy as np
from numpy.typing import NDArray

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.udfs.errors import SinkError
from stackcast.udfs.stacks.segments import segment_bounds

BATCH = 1_024
"""Messages a call; the kernel takes no more (UIO_MAXIOV)."""

_WAIT = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)
# A kernel or an interface that cuts no messages.
_UNCUT = (errno.EIO, errno.EINVAL, errno.EMSGSIZE, errno.EOPNOTSUPP, errno.ENOPROTOOPT)
_UDP, _UDP_SEGMENT = 17, 103
# A full device queue (ENOBUFS) does not show in poll: look again after this many seconds.
_PAUSE = 0.001

_IOVEC = np.dtype([("base", np.uintp), ("length", np.uintp)], align=True)
_MSGHDR = np.dtype(
    [
        ("name", np.uintp),
        ("name_length", np.uint32),
        ("vectors", np.uintp),
        ("vectors_count", np.uintp),
        ("control", np.uintp),
        ("control_length", np.uintp),
        ("flags", np.int32),
    ],
    align=True,
)
_MMSGHDR = np.dtype([("header", _MSGHDR), ("length", np.uint32)], align=True)
# struct cmsghdr with the size of a segment, filled up as CMSG_SPACE has it.
_CONTROL = np.dtype(
    [
        ("length", np.uintp),
        ("level", np.int32),
        ("type", np.int32),
        ("segment", np.uint16),
        ("filling", "V6"),
    ]
)
_CONTROL_LENGTH = _CONTROL.itemsize - 6  # CMSG_LEN


def messages_of_one_vector() -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Returns a batch of vectors, struct iovec, and of messages, struct mmsghdr, each of which
    holds the vector of its place.

    Messages point into the array of vectors, so both live as long as either is used.
    """
    vectors, messages = np.zeros(BATCH, _IOVEC), np.zeros(BATCH, _MMSGHDR)
    header = messages["header"]
    header["vectors"] = vectors.ctypes.data + np.arange(BATCH) * _IOVEC.itemsize
    header["vectors_count"] = 1
    return vectors, messages


def _load() -> ctypes._NamedFuncPointer:
    try:
        function = ctypes.CDLL(None, use_errno=True).sendmmsg
    except AttributeError:
        raise SinkError("UNSUPPORTED", "this system has no sendmmsg: sinks require Linux") from None
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int]
    function.restype = ctypes.c_int
    return function


class FrameSender:
    """Sends frames on one connected or bound socket, which it makes non-blocking.

    target: name of the far end, for messages. patience: seconds without progress to give up after.
    segment: bytes of frames that a UDP socket may have the kernel cut; 0: none.
    """

    def __init__(
        self,
        endpoint: socket.socket,
        target: str,
        patience: float,
        segment: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        endpoint.setblocking(False)
        self._socket = endpoint
        self._target = target
        self._patience = patience
        self._sendmmsg = _load()
        self._vectors, self._messages = messages_of_one_vector()
        self._segment = segment
        self._controls = np.zeros(BATCH if segment else 0, _CONTROL)
        self._controls["length"] = _CONTROL_LENGTH
        self._controls["level"], self._controls["type"] = _UDP, _UDP_SEGMENT
        if segment:
            places = self._controls.ctypes.data + np.arange(BATCH) * _CONTROL.itemsize
            self._messages["header"]["control"] = places

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        """Send all frames, waiting for room where there is none; returns how many.

        data: uint8[bytes], contiguous; offsets: int64[f+1]. Raises SinkError ``STALLED``,
        ``PERMISSION``, ``UNREACHABLE``, ``INTERFACE_DOWN``, ``INTERFACE_NOT_FOUND``,
        ``FRAME_TOO_LARGE``, ``SEND_FAILED`` with ``sent``, the number of frames that went out.
        """
        frames = offsets.size - 1
        sent = 0
        while sent < frames:
            if self._segment:
                bounds = segment_bounds(offsets[sent:], self._segment) + sent
            else:
                bounds = np.arange(sent, frames + 1)
            sent = self._send_messages(data, offsets, bounds)
        return frames

    def _send_messages(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], bounds: NDArray[np.int64]
    ) -> int:
        """Sends messages of the frames between each two bounds; returns how many frames are out,
        fewer than all where it turns out that the kernel cuts none."""
        header = self._messages["header"]
        for first in range(0, bounds.size - 1, BATCH):
            some = bounds[first : first + BATCH + 1]
            ahead = some.size - 1
            begin = offsets[some[:-1]]
            self._vectors["base"][:ahead] = data.ctypes.data + begin
            self._vectors["length"][:ahead] = offsets[some[1:]] - begin
            if self._segment:
                self._controls["segment"][:ahead] = offsets[some[:-1] + 1] - begin
                several = np.diff(some) > 1
                header["control_length"][:ahead] = np.where(several, _CONTROL.itemsize, 0)
            done = self._send_batch(some)
            if done < ahead:
                return int(some[done])
        return int(bounds[-1])

    def _send_batch(self, bounds: NDArray[np.int64]) -> int:
        """Returns how many messages are out: fewer than all where one should be cut, and is
        refused. From then on none should."""
        done, count = 0, bounds.size - 1
        last_progress = self._clock.monotonic()
        while done < count:
            address = self._messages.ctypes.data + done * _MMSGHDR.itemsize
            accepted = self._sendmmsg(self._socket.fileno(), address, count - done, 0)
            if accepted > 0:
                # Fewer than asked: the next call says why.
                done += accepted
                last_progress = self._clock.monotonic()
                continue
            code = ctypes.get_errno()
            if code == errno.EINTR:
                continue
            if code in _UNCUT and self._messages["header"]["control_length"][done]:
                self._messages["header"]["control_length"] = self._segment = 0
                return done
            sent = int(bounds[done])
            if code not in _WAIT:
                raise self._failure(code, sent)
            if self._clock.monotonic() - last_progress > self._patience:
                raise SinkError(
                    "STALLED",
                    f"{self._target} accepted no frame for {self._patience:g} s "
                    f"({os.strerror(code)}): the link is down or too slow",
                    sent=sent,
                )
            if code == errno.EAGAIN:
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                poll.poll(100)
            else:
                self._clock.sleep(_PAUSE)
        return done

    def _failure(self, code: int, sent: int) -> SinkError:
        what, advice = _FAILURES.get(code, ("SEND_FAILED", ""))
        return SinkError(
            what,
            f"cannot send to {self._target}: {os.strerror(code)}{advice}",
            sent=sent,
            errno=code,
        )


_NOT_FOUND = ("INTERFACE_NOT_FOUND", "; the interface no longer exists")
_NO_ROUTE = ("UNREACHABLE", "; check the address and whether the far end is listening")
NO_PERMISSION = (
    "PERMISSION",
    "; raw sockets require CAP_NET_RAW: see docs/how-to/choose-a-sink.md for how to grant it "
    "without root",
)
_FAILURES: dict[int, tuple[str, str]] = {
    errno.EPERM: NO_PERMISSION,
    errno.EACCES: NO_PERMISSION,
    errno.ENXIO: _NOT_FOUND,
    errno.ENODEV: _NOT_FOUND,
    errno.ENETDOWN: ("INTERFACE_DOWN", "; enable the interface: ip link set NAME up"),
    errno.ECONNREFUSED: _NO_ROUTE,
    errno.EHOSTUNREACH: _NO_ROUTE,
    errno.ENETUNREACH: _NO_ROUTE,
    errno.EMSGSIZE: ("FRAME_TOO_LARGE", "; reduce spark.stackcast.mtu"),
}
