"""Frames worked out in plain Python, by ``struct`` and brute force, and those that ways send.

Nothing of our decoder, matcher or framing is used: rules are those that the workload made, headers
the encoder's stacks (whose ways through the network are the tests' to prove).
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.pipeline.producer import orders
from benchmarks.pipeline.wire import Wire
from benchmarks.pipeline.workload import Packets, Rules
from benchmarks.support.datagrams import make_room
from benchmarks.support.ready_process import ReadyProcess
from stackcast.udfs.delivery.plan import Plan
from stackcast.udfs.messages.sequence import Topic, session_id
from stackcast.udfs.trees.header_stacks import HeaderStacks, Receivers

_COUNT, _PRICE = struct.Struct(">H"), struct.Struct(">I")
_NEW_ORDER = ord("A")
_PAUSE = 0.05


class Oracle:
    """Knows every frame that packets become: headers by receivers, hosts by stock and price."""

    def __init__(self, plan: Plan, stacks: HeaderStacks, rules: Rules) -> None:
        self._plan, self._stacks = plan, stacks
        self._ladders = rules.ladders()
        self._known: dict[Receivers, list[bytes]] = {}

    def templates(self, receivers: Receivers) -> list[bytes]:
        """Headers up to UDP, lengths and sums still 0; a frame each."""
        found = self._known.get(receivers)
        if found is None:
            template = self._plan.headers._template
            found = [template(0, part) for part in self._stacks.of(receivers).parts]
            self._known[receivers] = found
        return found

    def frames(self, packet: bytes, session: bytes, offset: int) -> Iterator[bytes]:
        groups: dict[Receivers, list[tuple[int, bytes]]] = {}
        at = 20
        for index in range(_COUNT.unpack_from(packet, 18)[0]):
            end = at + 2 + _COUNT.unpack_from(packet, at)[0]
            if packet[at + 2] == _NEW_ORDER:
                prices, sets = self._ladders.get(packet[at + 26 : at + 34], ([], [()]))
                receivers = sets[bisect_left(prices, _PRICE.unpack_from(packet, at + 34)[0])]
                if receivers:
                    groups.setdefault(receivers, []).append((index, packet[at:end]))
            at = end
        for receivers, found in groups.items():
            payload = session + struct.pack(">QH", (offset << 26) + (found[0][0] << 13), len(found))
            payload += b"".join(block for _, block in found)
            for template in self.templates(receivers):
                yield _filled(template, payload)

    def digests(self, topic: Topic, packets: Packets, count: int, partitions: int) -> set[bytes]:
        """Of all frames of a topic of ``count`` records, written as `producer.fill` does."""
        found = set()
        values = packets.values(0, packets.count)
        for partition, numbers in enumerate(orders(packets.count, count, partitions)):
            session = session_id(topic, partition)
            for offset, number in enumerate(numbers):
                found |= {digest(f) for f in self.frames(values[number], session, offset)}
        return found

    def write(self, path: Path) -> None:
        """Writes headers and prices for Delivery.java: big-endian, each list after its length."""
        sets: dict[Receivers, int] = {(): 0}
        for _, reached in self._ladders.values():
            for receivers in reached:
                sets.setdefault(receivers, len(sets))
        with path.open("wb") as file:

            def put(*numbers: int) -> None:
                file.write(struct.pack(f">{len(numbers)}i", *numbers))

            put(len(sets))
            for receivers in sets:
                templates = self.templates(receivers) if receivers else []
                put(len(templates))
                for template in templates:
                    put(len(template))
                    file.write(template)
            put(len(self._ladders))
            for stock, (prices, reached) in self._ladders.items():
                file.write(stock)
                put(len(prices), *prices, *(sets[receivers] for receivers in reached[1:]))


def _filled(template: bytes, payload: bytes) -> bytes:
    """A frame: template and payload with their lengths and sums."""
    ip = len(template) - 28
    size = 8 + len(payload)
    address = template[ip + 12 : ip + 20]
    ports = template[ip + 20 : ip + 24]
    head = bytearray(template[ip : ip + 20])
    head[2:4] = _COUNT.pack(20 + size)
    head[10:12] = _COUNT.pack(_sum(bytes(head)))
    udp = ports + struct.pack(">HH", size, 0)
    check = _sum(address + struct.pack(">HH", 17, size) + udp + payload) or 0xFFFF
    return template[:ip] + head + ports + struct.pack(">HH", size, check) + payload


def _sum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def digest(frame: bytes) -> bytes:
    return hashlib.blake2b(frame, digest_size=16).digest()


def in_one(digests: set[bytes]) -> str:
    """One digest of a set of digests, for the record."""
    return hashlib.blake2b(b"".join(sorted(digests)), digest_size=8).hexdigest()


class Capture(ReadyProcess):
    """Takes all frames at the far end of a tunnel. `taken` gives the digests of those to a UDP
    port, and how many came."""

    def __init__(self, wire: Wire, port: int) -> None:
        super().__init__(_capture, wire, port)

    def taken(self) -> tuple[set[bytes], int]:
        """Since the last call."""
        found: tuple[set[bytes], int] = self._answer()
        return found


def _capture(wire: Wire, port: int, pipe: Connection) -> None:
    far = wire.hold()
    make_room(far)
    far.settimeout(_PAUSE)
    found: set[bytes] = set()
    count = 0
    pipe.send("ready")
    while True:
        try:
            while True:
                frame = far.recv(1 << 16)
                ipv4 = 16 + 2 * _COUNT.unpack_from(frame, 14)[0]
                if _COUNT.unpack_from(frame, ipv4 + 22)[0] == port:
                    found.add(digest(frame))
                    count += 1
        except TimeoutError:
            # All that was sent has come.
            if pipe.poll():
                pipe.recv()
                pipe.send((found, count))
                found, count = set(), 0
