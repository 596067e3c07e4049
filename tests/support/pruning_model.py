"""What the program of packet subscriptions does with a frame, said in plain Python: an oracle.

Knows Ethernet, IPv4, UDP, MoldUDP64, and nothing of the program. Who wants a message is asked of a
function, message by message, in the order of the packets: it may have state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from control_traffic import is_for_neighbors

MESSAGES = 64
MESSAGE_BYTES = 1_500
DATAGRAM_BYTES = 9_000
EVENT_PORT = 26_400

REASONS = (
    "NOT_DROPPED",
    "CUT_SHORT",
    "BAD_LENGTH",
    "TOO_MANY_MESSAGES",
    "TOO_LONG",
    "BAD_CHECKSUM",
    "UNWANTED",
    "NO_PORT",
    "NO_ROUTE",
    "TTL_OVER",
    "NOT_IPV4",
    "UNKNOWN_PORT",
    "NO_PUBLISHER",
    "FORGED_ADDRESS",
    "LINK_LOCAL",
)
"""By index of the counter ``ingress.dropped``."""


class DroppedError(Exception):
    """The frame goes nowhere; the argument is the reason."""


@dataclass(frozen=True)
class Route:
    """An IPv4 prefix: the port, and the MAC address of a host."""

    prefix: str
    port: int
    mac: bytes | None = None


@dataclass
class Model:
    """A switch. ``wanted``: message to ports, 1 to 64. ``lengths``: bytes by message type."""

    wanted: Callable[[bytes], set[int]]
    lengths: Mapping[int, int]
    routes: tuple[Route, ...] = ()

    def process(self, ingress_port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """The copies, by port. Raises DroppedError."""
        if len(frame) < 14:
            raise DroppedError("CUT_SHORT")
        if frame[12:14] != b"\x08\x00":
            raise DroppedError("NOT_IPV4")
        # The program looks ahead at eight bytes.
        if len(frame) < 22:
            raise DroppedError("CUT_SHORT")
        words = frame[14] & 0xF
        if frame[14] >> 4 != 4 or words < 5:
            raise DroppedError("NOT_IPV4")
        ip = frame[14 : 14 + 4 * words]
        if len(ip) < 4 * words:
            raise DroppedError("CUT_SHORT")
        whole = int.from_bytes(ip[6:8], "big") & 0x3FFF == 0
        if words == 5 and whole and ip[9] == 17:
            if len(frame) < 42:
                raise DroppedError("CUT_SHORT")
            if int.from_bytes(frame[36:38], "big") == EVENT_PORT:
                return self._datagram(ingress_port, frame)
        if checksum(ip):
            raise DroppedError("BAD_CHECKSUM")
        if is_for_neighbors(ip[9], int.from_bytes(ip[16:20], "big")):
            raise DroppedError("LINK_LOCAL")
        return self._routed(frame)

    def _datagram(self, ingress_port: int, frame: bytes) -> list[tuple[int, bytes]]:
        ip_length = int.from_bytes(frame[16:18], "big")
        length, udp_sum = struct.unpack("!HH", frame[38:42])
        if length < 28 or ip_length != length + 20:
            raise DroppedError("BAD_LENGTH")
        if length > DATAGRAM_BYTES:
            raise DroppedError("TOO_LONG")
        if len(frame) < 62:
            raise DroppedError("CUT_SHORT")
        count = int.from_bytes(frame[60:62], "big")
        end = 34 + length
        if count in (0, 0xFFFF):
            if length > 28:
                raise DroppedError("BAD_LENGTH")
            if checksum(frame[14:34]):
                raise DroppedError("BAD_CHECKSUM")
            return self._routed(frame)
        blocks = self._blocks(frame, count, end)
        if checksum(frame[14:34]):
            raise DroppedError("BAD_CHECKSUM")
        pseudo = frame[26:34] + b"\0" + frame[23:24] + frame[38:40]
        if udp_sum and checksum(pseudo + frame[34:end]):
            raise DroppedError("BAD_CHECKSUM")
        wants = [self._wants(block[2:]) for block in blocks]
        union = set().union(*wants)
        if not union:
            raise DroppedError("UNWANTED")
        if not union - {ingress_port}:
            raise DroppedError("NO_PORT")
        return [
            (port, self._copy(frame, blocks, [port in ports for ports in wants]))
            for port in sorted(union - {ingress_port})
        ]

    def _blocks(self, frame: bytes, count: int, end: int) -> list[bytes]:
        if count > MESSAGES:
            raise DroppedError("TOO_MANY_MESSAGES")
        at, found = 62, []
        for _ in range(count):
            if end - at < 2:
                raise DroppedError("BAD_LENGTH")
            if len(frame) < at + 2:
                raise DroppedError("CUT_SHORT")
            size = int.from_bytes(frame[at : at + 2], "big")
            if at + 2 + size > end:
                raise DroppedError("BAD_LENGTH")
            if size > MESSAGE_BYTES:
                raise DroppedError("TOO_LONG")
            if len(frame) < at + 2 + size:
                raise DroppedError("CUT_SHORT")
            found.append(frame[at : at + 2 + size])
            at += 2 + size
        if at != end:
            raise DroppedError("BAD_LENGTH")
        return found

    def _wants(self, message: bytes) -> set[int]:
        if not message or self.lengths.get(message[0]) != len(message):
            return set()
        return self.wanted(message)

    def _copy(self, frame: bytes, blocks: list[bytes], kept: list[bool]) -> bytes:
        if all(kept):
            return frame
        body = b"".join(block for block, keep in zip(blocks, kept, strict=True) if keep)
        removed = sum(len(block) for block in blocks) - len(body)
        length = int.from_bytes(frame[38:40], "big")
        ip = frame[14:16] + struct.pack("!H", length + 20 - removed) + frame[18:24]
        ip += struct.pack("!H", checksum(ip + frame[26:34])) + frame[26:34]
        ports, size = frame[34:38], struct.pack("!H", length - removed)
        payload = frame[42:60] + struct.pack("!H", sum(kept)) + body
        udp_sum = 0
        if frame[40:42] != b"\0\0":
            pseudo = ip[12:20] + b"\0\x11" + size
            udp_sum = checksum(pseudo + ports + size + payload) or 0xFFFF
        trailer = frame[34 + length :]
        return frame[:14] + ip + ports + size + struct.pack("!H", udp_sum) + payload + trailer

    def _routed(self, frame: bytes) -> list[tuple[int, bytes]]:
        length = int.from_bytes(frame[16:18], "big")
        end = 14 + 4 * (frame[14] & 0xF)
        if not end - 14 <= length <= len(frame) - 14:
            raise DroppedError("CUT_SHORT")
        if frame[22] <= 1:
            raise DroppedError("TTL_OVER")
        address = ip_address(frame[30:34])
        found = [route for route in self.routes if address in ip_network(route.prefix)]
        if not found:
            raise DroppedError("NO_ROUTE")
        route = max(found, key=lambda route: ip_network(route.prefix).prefixlen)
        ip = frame[14:22] + bytes([frame[22] - 1, frame[23]])
        ip += struct.pack("!H", checksum(ip + frame[26:end])) + frame[26:end]
        return [(route.port, (route.mac or frame[:6]) + frame[6:14] + ip + frame[end:])]


def checksum(octets: bytes) -> int:
    """The Internet checksum (RFC 1071): 0 over what has a right one in it."""
    total = sum(struct.unpack(f"!{(len(octets) + 1) // 2}H", octets + b"\0" * (len(octets) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def datagram(
    messages: list[bytes],
    *,
    count: int | None = None,
    udp_sum: bool = True,
    trailer: bytes = b"",
    port: int = EVENT_PORT,
) -> bytes:
    """A frame of MoldUDP64 with these messages; ``count`` may lie."""
    payload = b"SESSION001" + (77).to_bytes(8, "big")
    payload += struct.pack("!H", len(messages) if count is None else count)
    payload += b"".join(struct.pack("!H", len(message)) + message for message in messages)
    size = struct.pack("!H", len(payload) + 8)
    ports = struct.pack("!HH", 5000, port)
    addresses = bytes([10, 0, 0, 1, 233, 54, 12, 111])
    found = checksum(addresses + b"\0\x11" + size + ports + size + payload) or 0xFFFF
    udp = ports + size + (struct.pack("!H", found) if udp_sum else b"\0\0") + payload
    ip = (
        b"\x45\0" + struct.pack("!H", 20 + len(udp)) + bytes.fromhex("1234000010110000") + addresses
    )
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return bytes.fromhex("01005e360c6f02000000000a0800") + ip + udp + trailer
