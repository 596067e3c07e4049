"""Frames of replicated state, for hosts that are joined to a switch by a tunnel."""

from __future__ import annotations

import struct

from stackcast.udfs.states.messages import STATES_PORT, multicast_mac

_IPV4 = struct.Struct(">BBHHHBBHII")
_UDP = struct.Struct(">HHHH")
_HEADERS = 14 + _IPV4.size + _UDP.size
_TTL = 2


def pack_frame(source: int, address: int, datagram: bytes) -> bytes:
    """Returns Ethernet, IPv4 and UDP around a datagram from one IPv4 address to a group."""
    length = _UDP.size + len(datagram)
    header = _ipv4(source, address, length, 0)
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    macs = multicast_mac(address).to_bytes(6) + b"\x02\x00" + source.to_bytes(4)
    udp = _UDP.pack(STATES_PORT, STATES_PORT, length, 0)
    return macs + b"\x08\x00" + _ipv4(source, address, length, checksum) + udp + datagram


def read_frame(frame: bytes) -> tuple[int, int, bytes] | None:
    """Returns address, source and datagram of a frame; None for any other than `pack_frame` makes
    or a switch sends: of another protocol or port, cut short or damaged."""
    if len(frame) < _HEADERS or frame[12:15] != b"\x08\x00\x45":
        return None
    words = struct.unpack(">10H", frame[14:34])
    _, _, total, _, fragment, _, protocol, _, source, address = _IPV4.unpack_from(frame, 14)
    _, port, length, _ = _UDP.unpack_from(frame, 34)
    if sum(words) % 0xFFFF or fragment & 0x3FFF or protocol != 17 or port != STATES_PORT:
        return None
    if length < _UDP.size or total != _IPV4.size + length or len(frame) < 14 + total:
        return None
    return address, source, frame[_HEADERS : 34 + length]


def _ipv4(source: int, address: int, length: int, checksum: int) -> bytes:
    total = _IPV4.size + length
    return _IPV4.pack(0x45, 0, total, 0, 0, _TTL, 17, checksum, source, address)
