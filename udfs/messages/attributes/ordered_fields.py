"""Floats and texts as fields of rules: 32 bits that sort as their values do.

A float is IEEE 754's of 32 bits, m below its sign: raw is 2^31 + m, or 2^31 - m where it is
negative, so that both zeros are one. Raw values beyond those of the infinities are no numbers, and
sort as they stand. A text has up to four characters of ASCII, padded with blanks, the first one
most significant.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.messages.attributes.attribute_field import BITS, AttributeField
from stackcast.udfs.messages.fields import Field

__all__ = ["CHARACTERS", "FloatField", "TextField", "raw_floats"]

CHARACTERS = BITS // 8
"""Most characters of a text."""

_ZERO = 1 << BITS - 1
_INFINITY = 0x7F80_0000
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_TEXT = re.compile(r"[\x20-\x7e]*")


def raw_floats(values: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Returns raw values of doubles, rounded to the nearest float; none of them may be NaN."""
    with np.errstate(over="ignore", under="ignore"):
        bits = values.astype(np.float32).view(np.uint32)
    below = bits & np.uint32(_ZERO - 1)
    return np.where(bits >> 31, np.uint32(_ZERO) - below, np.uint32(_ZERO) + below)


@dataclass(frozen=True)
class FloatField(AttributeField):
    """A float: constants are rounded as events are."""

    def numerals(self) -> tuple[int, int] | None:
        """Returns None: each constant is read by itself."""
        return None

    def encode(self, constant: str | int | Decimal) -> int:
        """Converts a number to its raw value.

        Raises SpecificationError CONSTANT_NOT_NUMBER, CONSTANT_TOO_WIDE (beyond all floats).
        """
        if not _NUMBER.fullmatch(text := str(constant)):
            raise self._refuse("NOT_NUMBER", constant, self._wanted(text))
        return self._nearest(float(text), text)

    def from_raw(self, value: object) -> int:
        """Converts an event's number in JSON to its raw value, as `encode` does."""
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise self._refuse("NOT_NUMBER", str(value), self._wanted(str(value)))
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isnan(number):
            raise self._refuse("NOT_NUMBER", str(value), self._wanted(str(value)))
        return self._nearest(number, str(value))

    def render(self, raw: int) -> str:
        """Writes the shortest number that is this float; ``inf``, ``-inf``, else ``nan``."""
        below = abs(raw - _ZERO)
        if below > _INFINITY:
            return "nan"
        (value,) = struct.unpack(">f", below.to_bytes(4))
        return str(np.float32(value if raw >= _ZERO else -value))

    def _parse(self, text: str, quoted: bool) -> tuple[int, int]:
        raw = self.encode(text)
        return raw, raw

    def _nearest(self, number: float, text: str) -> int:
        raw = int(raw_floats(np.array([number]))[0])
        if abs(raw - _ZERO) >= _INFINITY:
            raise self._refuse(
                "TOO_WIDE",
                text,
                "is beyond the range of a 32-bit float, whose maximum is 3.4028235e+38",
            )
        return raw

    def _wanted(self, text: str) -> str:
        return f"is not a number: compare '{self.name}' with a number, such as 50.25"


@dataclass(frozen=True)
class TextField(AttributeField):
    """A text: compared as it sorts, a character at a time."""

    def numerals(self) -> tuple[int, int] | None:
        """Returns None: constants are texts."""
        return None

    def encode(self, constant: str | int | Decimal) -> int:
        """Converts a text to its raw value.

        Raises SpecificationError CONSTANT_NOT_TEXT, CONSTANT_TOO_LONG, CONSTANT_NOT_ASCII.
        """
        return self._encode_text(constant, "ascii")

    def from_raw(self, value: Any) -> int:
        """Converts an event's text in JSON to its raw value, as `encode` does."""
        if isinstance(value, str) and not _TEXT.fullmatch(value):
            raise self._refuse("NOT_TEXT", value, "contains a non-printable character")
        return self._encode_text(value, "ascii")

    def render(self, raw: int) -> str:
        """Writes the text without its padding; in hex if it has a character that does not print."""
        text = raw.to_bytes(CHARACTERS).decode("latin-1").rstrip(self.padding)
        return text if _TEXT.fullmatch(text) else f"#{raw:x}"

    def _parse(self, text: str, quoted: bool) -> tuple[int, int]:
        return Field._parse(self, text, quoted)
