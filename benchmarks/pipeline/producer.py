"""Packets into topics, as fast as the broker takes them or paced and stamped with their time.

Record batches are made once and sent again and again, so that a producer takes next to nothing of
the cores that are measured.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from itertools import count

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.pipeline.workload import REFERENCE, Packets
from stackcast.udfs.messages.record_kernels import CHECKED, HEADER, crc32c

#: Records of a batch where it goes as fast as it can; seconds of a paced one.
AT_ONCE, TICK = 512, 0.001
#: Requests that wait for their answers at most.
_UNANSWERED = 4
_PRODUCE, _VERSION, _ZSTD = 0, 7, 4


class NotWrittenError(Exception):
    """A record was not written."""


def fill(
    servers: str, topic: str, packets: Packets, count: int, partitions: int, zstd: bool = False
) -> float:
    """Write ``count`` records, the packets again and again; returns the seconds it took."""
    began = time.monotonic()
    batches = [
        RecordBatch(packets.values(begin, min(begin + AT_ONCE, packets.count)), zstd)
        for begin in range(0, packets.count, AT_ONCE)
    ]
    left = [count // partitions + (p < count % partitions) for p in range(partitions)]
    connection = _Connection(servers)
    number = 0
    while any(left):
        partition = number % partitions
        batch = batches[number // partitions % len(batches)]
        number += 1
        if left[partition] >= batch.records:
            connection.send(topic, partition, batch.data)
            left[partition] -= batch.records
        elif left[partition]:
            rest = RecordBatch(packets.values(0, left[partition]), zstd)
            connection.send(topic, partition, rest.data)
            left[partition] = 0
    connection.close()
    return time.monotonic() - began


def orders(pool: int, count: int, partitions: int) -> list[list[int]]:
    """Returns by partition the numbers of the packets that `fill` writes, in their order."""
    groups = [range(begin, min(begin + AT_ONCE, pool)) for begin in range(0, pool, AT_ONCE)]
    left = [count // partitions + (p < count % partitions) for p in range(partitions)]
    written: list[list[int]] = [[] for _ in range(partitions)]
    number = 0
    while any(left):
        partition = number % partitions
        group = groups[number // partitions % len(groups)]
        number += 1
        taken = group if left[partition] >= len(group) else range(left[partition])
        written[partition] += taken
        left[partition] -= len(taken)
    return written


def paced(
    servers: str, topic: str, packets: Packets, partitions: int, rate: float, seconds: float
) -> tuple[int, float]:
    """Write ``rate`` records a second; each message's order reference is when, ns since 1970.

    Returns how many, and the seconds of a core that it took.
    """
    each = min(packets.count, max(1, round(rate * TICK)))
    batches = [
        StampedBatch(packets, begin, begin + each)
        for begin in range(0, packets.count - each + 1, each)
    ]
    connection = _Connection(servers)
    began, worked = time.monotonic(), time.process_time()
    sent = 0
    while (passed := time.monotonic() - began) < seconds:
        early = sent * each / rate - passed
        if early > 0:
            time.sleep(early)
        batch = batches[sent % len(batches)]
        batch.stamp(time.time_ns())
        connection.send(topic, sent % partitions, batch.data)
        sent += 1
    connection.close()
    return sent * each, time.process_time() - worked


class RecordBatch:
    """A batch of Kafka's format 2 (KIP-98); data: uint8[bytes]; start: of each value in it."""

    def __init__(self, values: Sequence[bytes], zstd: bool = False) -> None:
        self.records = len(values)
        self.start: list[int] = []
        body = bytearray()
        for number, value in enumerate(values):
            head = b"\x00\x00" + _varint(number) + _varint(-1) + _varint(len(value))
            body += _varint(len(head) + len(value) + 1) + head
            self.start.append(HEADER + len(body))
            body += value + b"\x00"
        written = pa.compress(bytes(body), "zstd", asbytes=True) if zstd else bytes(body)
        now = time.time_ns() // 1_000_000
        last = self.records - 1
        rest = struct.pack(
            ">hiqqqhii", _ZSTD if zstd else 0, last, now, now, -1, -1, -1, self.records
        )
        head = struct.pack(">qiibI", 0, HEADER - 12 + len(written), -1, 2, 0)
        self.data = np.frombuffer(bytearray(head + rest + written), np.uint8)
        self.check()

    def check(self) -> None:
        """Write the checksum."""
        found = int(crc32c(self.data, CHECKED, len(self.data)))
        self.data[CHECKED - 4 : CHECKED] = np.frombuffer(found.to_bytes(4), np.uint8)


class StampedBatch(RecordBatch):
    """A batch whose orders are stamped before it leaves."""

    def __init__(self, packets: Packets, begin: int, end: int) -> None:
        super().__init__(packets.values(begin, end))
        first = packets.first[begin : end + 1]
        moved = np.array(self.start) - packets.offsets[begin:end]
        place = packets.start[first[0] : first[-1]] + np.repeat(moved, np.diff(first)) + REFERENCE
        self._places: NDArray[np.int64] = place[:, None] + np.arange(8)

    def stamp(self, number: int) -> None:
        self.data[self._places] = np.frombuffer(number.to_bytes(8), np.uint8)
        self.check()


class _Connection:
    """Produce requests to the one broker, who leads all partitions."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = count()
        self._unanswered = 0

    def send(self, topic: str, partition: int, batch: NDArray[np.uint8]) -> None:
        while self._unanswered >= _UNANSWERED:
            self._answer()
        name = topic.encode()
        head = struct.pack(">hhih", _PRODUCE, _VERSION, next(self._numbers) & 0x7FFFFFFF, -1)
        body = struct.pack(f">hhiih{len(name)}s", -1, 1, 60_000, 1, len(name), name)
        part = struct.pack(">iii", 1, partition, len(batch))
        size = len(head) + len(body) + len(part) + len(batch)
        self._socket.sendall(struct.pack(">i", size) + head + body + part)
        self._socket.sendall(batch)
        self._unanswered += 1

    def _answer(self) -> None:
        (size,) = struct.unpack(">i", self._take(4))
        answer = self._take(size)
        (name,) = struct.unpack_from(">h", answer, 8)
        partition, error = struct.unpack_from(">ih", answer, 14 + name)
        if error:
            raise NotWrittenError(f"partition {partition}: Kafka's error {error}")
        self._unanswered -= 1

    def _take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            part = self._socket.recv(size - len(taken))
            if not part:
                raise NotWrittenError("the broker has closed the connection")
            taken += part
        return taken

    def close(self) -> None:
        """Waits until all is written."""
        while self._unanswered:
            self._answer()
        self._socket.close()


def _varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
