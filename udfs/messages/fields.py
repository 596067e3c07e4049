"""Fields of headers, and the conversion of constants that people write to raw values.

See docs/reference/rule-language.md for the constants of each kind of field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Literal

from stackcast.udfs.errors import SpecificationError

Kind = Literal["integer", "string", "decimal"]
Match = Literal["range", "exact", "lpm"]
Span = tuple[int, int]

#: Wider fields have no raw value in a column of 64 bits, and are matched lane by lane.
MAX_VALUE_BITS = 64
#: Characters of a constant, unless the field needs more.
MAX_CONSTANT = 64

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
_DECIMAL = re.compile(r"[+-]?[0-9]*\.[0-9]+")
_PREFIX = re.compile(r"([^/]+)/([0-9]{1,4})")
_MAC = re.compile(r"[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}")
_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_IPV6 = re.compile(r"[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")
_TIME_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]{1,18})?))?")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9.\-]*")
_WORD_BITS = 32
_ADDRESS_BITS = {"an IPv4 address": 32, "an IPv6 address": 128, "a MAC address": 48}


@dataclass(frozen=True)
class Field:
    """One field. ``bit_offset`` counts from the start of its header; ``query``: @query_field.

    ``padding`` is the character that fills a string; ``clock`` is the number of units of the field
    in a microsecond if it tells the time of its header (@clock), else 0; ``resolution`` is the
    number of bits that a switch maps its values to before it matches them (@resolution), 0 for
    none. ``takes_text``: True if rules may compare it with text though it is not annotated, which
    is so where no field of the specification is. ``day_units``: units in a second if the field
    tells the time since midnight (@time_of_day), else 0.
    """

    header: str
    name: str
    bits: int
    bit_offset: int
    kind: Kind = "integer"
    decimals: int = 0
    match: Match = "range"
    query: bool = False
    padding: str = " "
    clock: int = 0
    resolution: int = 0
    takes_text: bool = True
    day_units: int = 0

    @property
    def qualified(self) -> str:
        """The name with its header, ``header.field``."""
        return f"{self.header}.{self.name}"

    @property
    def unit(self) -> Decimal:
        """The distance of two neighbouring values, as people write it."""
        return Decimal(1).scaleb(-self.decimals)

    def lanes(self) -> tuple[Field, ...]:
        """Returns the fields of at most 64 bits that this is matched as, most significant first.

        The field itself if it is that narrow. Else integers named like slices in P4,
        ``dst[127:64]`` and ``dst[63:0]``; the first takes what 64 does not divide.
        """
        return (self,) if self.bits <= MAX_VALUE_BITS else _lanes(self)

    def parse(self, text: str, quoted: bool = False) -> Span:
        """Returns the raw values, first and last, that a constant in a rule stands for.

        A prefix stands for many, any other constant for one. ``quoted``: it stood in quotes, which
        are not part of ``text``. A field that ``takes_text`` and is not annotated takes it if its
        width is a number of bytes and the text, unless quoted, begins with a letter.

        Raises SpecificationError CONSTANT_*, as `encode` does.
        """
        if _CONTROL.search(text):
            raise self._refuse("NOT_TEXT", text, "contains a non-printable character")
        return self._parse(text, quoted)

    def _parse(self, text: str, quoted: bool) -> Span:
        limit = max(MAX_CONSTANT, self.bits // 3 + 8)
        if len(text) > limit:
            raise self._refuse(
                "TOO_LONG", text, f"has {len(text)} characters, but at most {limit} are allowed"
            )
        if not text.isascii():
            raise self._refuse(
                "NOT_ASCII", text, "contains non-ASCII characters, which messages never contain"
            )
        if self.kind == "string":
            value: int | None = self.encode(text)
        elif self.day_units and (time := _TIME_OF_DAY.fullmatch(text)):
            value = self._time_of_day(text, time)
        else:
            value = self._number(text)
        if value is None and self.kind == "integer":
            prefix = _PREFIX.fullmatch(text)
            if prefix and (span := self._prefix(*prefix.groups())):
                return span
            value = self._address(text, quoted)
            if value is None and self._is_text and (quoted or text[:1].isalpha()):
                value = self._encode_text(text, "ascii")
        if value is None:
            raise self._refuse("NOT_NUMBER", text, self._wanted(text))
        return value, value

    def from_raw(self, value: int | str) -> int:
        """Converts a value of an event to the raw value: an integer as it is, or text.

        Text of a string may lack its padding; for other fields it is an address or a constant
        as in a rule, except that nothing is scaled.

        Raises SpecificationError CONSTANT_*.
        """
        if isinstance(value, int) and not isinstance(value, bool):
            if value < 0:
                raise self._refuse("NEGATIVE", value, "is negative, but the field is unsigned")
            if value >> self.bits:
                raise self._refuse("TOO_WIDE", value, f"does not fit in {self.bits} bits")
            return value
        if not isinstance(value, str) or self.kind == "decimal":
            raise self._refuse("NOT_NUMBER", value, "is not a raw value: write an integer")
        if self.kind == "string":
            return self._encode_text(value, "latin-1")
        low, high = self._parse(value, quoted=True)
        if low != high:
            raise self._refuse("NOT_NUMBER", value, "is a prefix, but a single value is expected")
        return low

    def encode(self, constant: str | int | Decimal) -> int:
        """Converts a constant as people write it to the raw unsigned value.

        A string field takes text (padded); others take numbers, in units of the field, so
        ``50.25`` is 502500 in a field of four decimals.

        Raises SpecificationError CONSTANT_NOT_TEXT, CONSTANT_TOO_LONG, CONSTANT_NOT_ASCII,
        CONSTANT_NOT_NUMBER, CONSTANT_TOO_FINE, CONSTANT_NEGATIVE, CONSTANT_TOO_WIDE.
        """
        if self.kind == "string":
            return self._encode_text(constant, "ascii")
        try:
            value = Decimal(constant)
        except (InvalidOperation, ValueError) as error:
            raise self._refuse("NOT_NUMBER", constant, "is not a number") from error
        if not value.is_finite():
            raise self._refuse("NOT_NUMBER", constant, "is not a number")
        if value < 0:
            raise self._refuse("NEGATIVE", constant, "is negative, but the field is unsigned")
        if not value:
            return 0
        # Checked by exponents first: neither 1e999999 nor 1e-999999 may become that many digits.
        if value.adjusted() > self.bits:
            raise self._refuse("TOO_WIDE", constant, f"does not fit in {self.bits} bits")
        _, digits, exponent = value.as_tuple()
        written = "".join(map(str, digits))
        significant = written.rstrip("0")
        shift = int(exponent) + len(written) - len(significant) + self.decimals
        if shift < 0:
            what = (
                f"has more than {self.decimals} decimal places"
                if self.decimals
                else "is not a whole number"
            )
            raise self._refuse("TOO_FINE", constant, what)
        number: int = int(significant) * 10**shift
        if number >> self.bits:
            raise self._refuse("TOO_WIDE", constant, f"does not fit in {self.bits} bits")
        return number

    def render(self, raw: int) -> str:
        """Writes a raw value for people: text without padding, decimals with all their places."""
        if self.kind == "string":
            return raw.to_bytes(self.bits // 8, "big").decode("latin-1").rstrip(self.padding)
        if self.decimals:
            whole, part = divmod(raw, 10**self.decimals)
            return f"{whole}.{part:0{self.decimals}d}"
        return str(raw)

    def show(self, raw: int) -> str:
        """Writes a raw value as a rule would ask for it: as ``render``, or as the word of its
        bytes.

        A word begins with a letter, has letters, digits, dots and signs of minus, and is padded
        with blanks. Numbers that happen to be words are rare from 32 bits on, and are words only in
        fields that are not annotated and hold neither prefixes nor times.
        """
        plain = self.kind == "integer" and self.match != "lpm" and not self.clock
        if plain and self._is_text and self.bits >= _WORD_BITS:
            text = raw.to_bytes(self.bits // 8, "big").decode("latin-1").rstrip(" ")
            if _WORD.fullmatch(text) and not _MAC.fullmatch(text):
                return text
        return self.render(raw)

    @property
    def _is_text(self) -> bool:
        return self.takes_text and self.bits % 8 == 0

    def _number(self, text: str) -> int | None:
        if _HEXADECIMAL.fullmatch(text):
            return self.encode(int(text, 16))
        if _INTEGER.fullmatch(text) or _DECIMAL.fullmatch(text):
            return self.encode(text)
        return None

    def _time_of_day(self, text: str, time: re.Match[str]) -> int:
        hours, minutes, seconds = int(time[1]), int(time[2]), Decimal(time[3] or 0)
        if hours > 23 or minutes > 59 or seconds >= 60:
            raise self._refuse("NOT_NUMBER", text, "is not a time of day")
        units = (hours * 3600 + minutes * 60 + seconds) * self.day_units
        if units != int(units):
            raise self._refuse(
                "TOO_FINE",
                text,
                f"is more precise than 1/{self.day_units} of a second, the unit of the field",
            )
        return self.encode(int(units))

    def _prefix(self, base: str, length: str) -> Span | None:
        value = self._number(base)
        if value is None:
            value = self._address(base, quoted=False)
        if value is None:
            return None
        if int(length) > self.bits:
            raise self._refuse(
                "TOO_WIDE", f"/{length}", f"is longer than the {self.bits} bits of the field"
            )
        rest = (1 << (self.bits - int(length))) - 1
        return value & ~rest, value | rest

    def _address(self, text: str, quoted: bool) -> int | None:
        """Returns the value of an address as wide as the field; in quotes, any other is text."""
        try:
            if _MAC.fullmatch(text):
                what, value = "a MAC address", int(re.sub("[:-]", "", text), 16)
            elif _IPV4.fullmatch(text):
                what, value = "an IPv4 address", int(IPv4Address(text))
            elif _IPV6.fullmatch(text):
                what, value = "an IPv6 address", int(IPv6Address(text))
            else:
                return None
        except ValueError:
            return None
        bits = _ADDRESS_BITS[what]
        if bits == self.bits:
            return value
        if quoted:
            return None
        raise self._refuse(
            "TOO_WIDE", text, f"is {what} of {bits} bits, but the field has {self.bits}"
        )

    def _wanted(self, text: str) -> str:
        why = f"is not a number: compare '{self.qualified}' with a number, such as "
        why += "50.25" if self.decimals else "09:30:00" if self.day_units else "50"
        if self.kind == "integer" and self.bits in _ADDRESS_BITS.values():
            why += ", or an address"
        elif self.kind == "integer" and self._is_text:
            why += "; if it is text, quote it"
        return why

    def _encode_text(self, constant: str | int | Decimal, encoding: str) -> int:
        if not isinstance(constant, str):
            raise self._refuse(
                "NOT_TEXT", constant, "is a number, but the field contains text: quote it"
            )
        length = self.bits // 8
        try:
            text = constant.encode(encoding)
        except UnicodeEncodeError as error:
            raise self._refuse("NOT_ASCII", constant, "contains non-ASCII characters") from error
        if len(text) > length:
            raise self._refuse(
                "TOO_LONG", constant, f"is longer than the {length} characters of the field"
            )
        return int.from_bytes(text.ljust(length, self.padding.encode()), "big")

    def _refuse(self, what: str, constant: object, why: str) -> SpecificationError:
        # A decimal prints any number of digits; an integer refuses to print more than 4,300.
        shown = str(Decimal(constant) if isinstance(constant, int) else constant)
        if len(shown) > 40:
            shown = shown[:37] + "..."
        return SpecificationError(
            f"CONSTANT_{what}", f"{shown!r} {why} ({self.qualified})", field=self.qualified
        )


@lru_cache(maxsize=4096)
def _lanes(field: Field) -> tuple[Field, ...]:
    lanes = []
    high = field.bits
    while high:
        low = (high - 1) // MAX_VALUE_BITS * MAX_VALUE_BITS
        lane = replace(
            field,
            name=f"{field.name}[{high - 1}:{low}]",
            bits=high - low,
            bit_offset=field.bit_offset + field.bits - high,
            kind="integer",
            decimals=0,
            padding=" ",
            clock=0,
            resolution=0,
            day_units=0,
        )
        lanes.append(lane)
        high = low
    return tuple(lanes)
