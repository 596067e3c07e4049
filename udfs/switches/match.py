"""Match fields in the form of P4Runtime: kind of match, values as canonical bytes."""

from __future__ import annotations

from dataclasses import dataclass


def canonical(value: int) -> bytes:
    """Returns the shortest big-endian form of an unsigned integer, one byte or more (P4Runtime
    8.4)."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


@dataclass(frozen=True, slots=True)
class Match:
    """One match field. ``other``: the high end of a range, the mask of a ternary; canonical bytes
    like ``value``. ``prefix_length`` is for lpm."""

    name: str
    kind: str
    value: bytes
    other: bytes = b""
    prefix_length: int = 0

    def joined(self) -> bytes:
        """Joins everything in one value, as table ``switch_entries`` has it.

        exact, optional: the value. range: low, then high, of equal lengths. ternary: value, then
        mask, of equal lengths. lpm: the value, then one byte of prefix length.
        """
        if self.kind in ("exact", "optional"):
            return self.value
        if self.kind == "lpm":
            return self.value + bytes([self.prefix_length])
        width = max(len(self.value), len(self.other))
        return self.value.rjust(width, b"\0") + self.other.rjust(width, b"\0")

    @classmethod
    def parted(cls, name: str, kind: str, joined: bytes) -> Match:
        """Inverts :meth:`joined`. Raises ValueError for bytes that it cannot have made."""
        if kind in ("exact", "optional"):
            return cls(name, kind, joined)
        if kind == "lpm" and len(joined) > 1:
            return cls(name, kind, joined[:-1], prefix_length=joined[-1])
        half = len(joined) // 2
        if kind not in ("range", "ternary") or not joined or len(joined) % 2:
            raise ValueError(f"{joined.hex()} is not a valid {kind} match")
        value, other = (int.from_bytes(part, "big") for part in (joined[:half], joined[half:]))
        return cls(name, kind, canonical(value), canonical(other))
