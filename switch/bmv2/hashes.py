"""Hash algorithms of v1model over bytes, and the other functions that compiled programs call."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable, Sequence


def csum16(data: bytes) -> int:
    """Returns the Internet checksum (RFC 1071): complement of the ones' complement sum of 16-bit
    words.
    """
    number = int.from_bytes(data, "big") << (8 if len(data) % 2 else 0)
    total = number % 0xFFFF
    # Of a sum that is a multiple of 0xffff only that of zeros is 0.
    return 0xFFFF - total if total or not number else 0


def _crc16_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xA001 if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC16 = _crc16_table()


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005, reflected, start 0."""
    value = 0
    for byte in data:
        value = value >> 8 ^ _CRC16[(value ^ byte) & 0xFF]
    return value


def crc_ccitt(data: bytes) -> int:
    """Polynomial 0x1021, start 0xffff."""
    return binascii.crc_hqx(data, 0xFFFF)


def identity(data: bytes) -> int:
    """Returns the first 8 bytes as a number."""
    return int.from_bytes(data[:8], "big")


def _folded(width: int) -> Callable[[bytes], int]:
    def fold(data: bytes) -> int:
        value = 0
        padded = data + bytes(-len(data) % width)
        for at in range(0, len(padded), width):
            value ^= int.from_bytes(padded[at : at + width], "big")
        return value

    return fold


ALGORITHMS: dict[str, Callable[[bytes], int]] = {
    "csum16": csum16,
    "cksum16": csum16,
    "crc16": crc16,
    "crc16_custom": crc16,
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
    "crcCCITT": crc_ccitt,
    "identity": identity,
    "xor16": _folded(2),
    "xor32": _folded(4),
}


def clamp(value: int, low: int, high: int) -> int:
    """Returns the nearest number to ``value`` from low to high."""
    return low if value < low else min(value, high)


def shift_left(value: int, by: int) -> int:
    """0 where the shift is so far that no field is left of it."""
    return value << by if 0 <= by < 1 << 16 else 0


def shift_right(value: int, by: int) -> int:
    """0 for a negative shift, which P4 does not have."""
    return value >> by if by >= 0 else 0


def quotient(value: int, by: int) -> int:
    """0 where P4 says nothing: for negative numbers and division by 0."""
    return value // by if value >= 0 and by > 0 else 0


def remainder(value: int, by: int) -> int:
    """0 where P4 says nothing: for negative numbers and division by 0."""
    return value % by if value >= 0 and by > 0 else 0


def push(
    fields: list[int], base: int, stride: int, size: int, slot: int, valid: Sequence[int], by: int
) -> None:
    """Move the elements of a stack up by ``by``; the first ones become invalid."""
    by = min(by, size)
    end = base + size * stride
    fields[base + by * stride : end] = fields[base : end - by * stride]
    fields[slot] = min(size, fields[slot] + by)
    _invalidate(fields, base, stride, range(by), valid)


def pop(
    fields: list[int], base: int, stride: int, size: int, slot: int, valid: Sequence[int], by: int
) -> None:
    """Move the elements of a stack down by ``by``; the last ones become invalid."""
    by = min(by, size)
    end = base + size * stride
    fields[base : end - by * stride] = fields[base + by * stride : end]
    fields[slot] = max(0, fields[slot] - by)
    _invalidate(fields, base, stride, range(size - by, size), valid)


def _invalidate(
    fields: list[int], base: int, stride: int, elements: range, valid: Sequence[int]
) -> None:
    for element in elements:
        for offset in valid:
            fields[base + element * stride + offset] = 0
