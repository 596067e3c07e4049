"""The subscriber: a process with a UDP socket that finds the orders of interest in what comes.

One takes a datagram at a time and walks its messages, as a plain program does; the other takes all
that wait and has our compiled loops decode and match them. Both look for themselves, whoever
filtered before. Frames are whole, as a tunnel carries them.
"""

from __future__ import annotations

import gc
import select
import socket
import struct
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.camus.workloads import BLOCK, HEADERS, RULE, STOCK
from benchmarks.p4.workloads import itch
from benchmarks.pipeline.wire import Wire
from benchmarks.support.datagrams import CONTROL, DatagramReader, make_room, stamp
from benchmarks.support.ready_process import ReadyProcess
from stackcast.lab.traffic.packets import MOST_MESSAGES
from stackcast.udfs.filters.compiler.compile import compile_texts
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.messages.moldudp64 import decode_by, layout_of

_COUNT = HEADERS - 2
#: Of a message, from its length on: where its type is, its reference, its stock.
_TYPE, _REFERENCE, _STOCK = 2, 13, 26
_LARGEST = HEADERS + MOST_MESSAGES * BLOCK
_PATIENCE_S = 0.2


class Seen(NamedTuple):
    """What came to a host. arrived, read, done: int64[p], ns since 1970 at which the kernel had
    each packet, the program had it, and was through with it. messages: int64[p] of each. reference,
    packet: int64[m] of the orders of interest, by number of the packet here."""

    arrived: NDArray[np.int64]
    read: NDArray[np.int64]
    done: NDArray[np.int64]
    messages: NDArray[np.int64]
    reference: NDArray[np.int64]
    packet: NDArray[np.int64]

    @classmethod
    def of(cls, packets: list[NDArray[np.int64]], orders: list[NDArray[np.int64]]) -> Seen:
        """packets: arrays int64[., 4]. orders: arrays int64[., 2] of what was found."""
        every = np.concatenate([np.zeros((0, 4), np.int64), *packets])
        found = np.concatenate([np.zeros((0, 2), np.int64), *orders])
        return cls(*every.T, *found.T)


class Receiver(ReadyProcess):
    """A host at a UDP port. kernels: it filters by our compiled loops, else message by message."""

    def __init__(self, endpoint: str, kernels: bool) -> None:
        super().__init__(_kernels if kernels else _plain, Wire("udp", endpoint, endpoint))

    def taken(self) -> Seen:
        """Returns what came since the last call."""
        found: Seen = self._answer()
        return found


def _open(wire: Wire) -> socket.socket:
    far = wire.hold()
    stamp(far)
    make_room(far)
    far.setblocking(False)
    gc.disable()
    return far


def _plain(wire: Wire, pipe: Connection) -> None:
    far, stock = _open(wire), STOCK.encode().ljust(8)
    packets: list[tuple[int, int, int, int]] = []
    orders: list[tuple[int, int]] = []
    time_of = struct.Struct("=qq")
    pipe.send("ready")
    while True:
        try:
            frame, control, _, _ = far.recvmsg(_LARGEST, CONTROL)
        except BlockingIOError:
            if pipe in select.select([far, pipe], [], [], _PATIENCE_S)[0]:
                pipe.recv()
                pipe.send(Seen.of([_pairs(packets, 4)], [_pairs(orders, 2)]))
                packets, orders = [], []
            continue
        read = time.time_ns()
        count, at = int.from_bytes(frame[_COUNT:HEADERS]), HEADERS
        for _ in range(count):
            if frame[at + _TYPE] == 65 and frame[at + _STOCK : at + _STOCK + 8] == stock:
                reference = int.from_bytes(frame[at + _REFERENCE : at + _REFERENCE + 8])
                orders.append((reference, len(packets)))
            at += 2 + int.from_bytes(frame[at : at + 2])
        done = time.time_ns()
        seconds, rest = time_of.unpack(control[0][2])
        packets.append((seconds * 1_000_000_000 + rest, read, done, count))


def _pairs(rows: list[tuple[int, ...]], width: int) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(-1, width)


class Filter:
    """The rule in our compiled loops: finds orders of interest in packets."""

    def __init__(self) -> None:
        specification = itch()
        self._matcher = Matcher(compile_texts([f"{RULE} : fwd(h1)"], specification))
        fields = (*self._matcher.fields, "add_order.order_reference_number")
        self._layout = layout_of(specification, [specification.field(name) for name in fields], ())
        self._wanted = np.array([bool(each) for each in self._matcher.receivers])
        self(np.zeros(0, np.uint8), np.zeros(1, np.int64))  # compiled and warm

    def __call__(
        self, data: NDArray[np.uint8], borders: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Returns messages of each packet, reference and packet of each order of interest.

        data, borders: MoldUDP64 packets one behind the other, int64[n + 1].
        """
        messages = decode_by(self._layout, borders, data)
        leaf = self._matcher.match(messages.message_type, messages.values[:-1])
        hits = np.flatnonzero(self._wanted[leaf])
        reference = messages.values[-1, hits].astype(np.int64)
        return messages.count.astype(np.int64), reference, messages.packet[hits].astype(np.int64)


def packets_in(
    frames: NDArray[np.uint8], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the UDP payloads of frames, one behind the other, and their borders.

    frames: uint8[n, bytes], each with Ethernet, IPv4 and UDP before it. lengths: int64[n] of them.
    """
    before = HEADERS - 20
    column = np.arange(frames.shape[1])
    data = frames[(column >= before) & (column < lengths[:, None])]
    return data, np.concatenate(([0], np.cumsum(lengths - before)))


def _kernels(wire: Wire, pipe: Connection) -> None:
    far, find = _open(wire), Filter()
    reader = DatagramReader(far, _LARGEST)
    packets: list[NDArray[np.int64]] = []
    orders: list[NDArray[np.int64]] = []
    before = 0
    pipe.send("ready")
    while True:
        count = reader.read()
        if count <= 0:
            if pipe in select.select([far, pipe], [], [], _PATIENCE_S)[0]:
                pipe.recv()
                pipe.send(Seen.of(packets, orders))
                packets, orders, before = [], [], 0
            continue
        read = time.time_ns()
        data, borders = packets_in(reader.frames[:count], reader.lengths(count))
        messages, reference, packet = find(data, borders)
        done = time.time_ns()
        alike = np.full(count, read), np.full(count, done)
        packets.append(np.column_stack((reader.arrived(count), *alike, messages)))
        orders.append(np.column_stack((reference, packet + before)))
        before += count
