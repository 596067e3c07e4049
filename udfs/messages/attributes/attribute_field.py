"""An attribute, and the field that rules know it as: constants and events in its units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal, DecimalException
from fractions import Fraction
from typing import Literal

from stackcast.udfs.errors import SpecificationError
from stackcast.udfs.messages.attributes.times import seconds_of
from stackcast.udfs.messages.fields import Field

Type = Literal["unsigned", "signed", "decimal", "timestamp", "float", "text"]

BITS = 32

_EXACT = Context(prec=200)
_EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC).toordinal()
_EPOCH_YEARS = (-62_135_596_800, 253_402_300_799)
"""Seconds since 1970 of the first and the last second that ISO 8601 writes with four digits."""


@dataclass(frozen=True)
class Attribute:
    """One row of table ``attributes``. ``value = offset + raw * scale``, raw in 0..2^32 - 1.

    Raw values of a float or a text are those of
    `stackcast.udfs.messages.attributes.ordered_fields`.
    """

    id: int
    name: str
    type: Type
    scale: Decimal
    offset: Decimal

    @property
    def most(self) -> Decimal:
        """The largest value."""
        return self.value((1 << BITS) - 1)

    def value(self, raw: int) -> Decimal:
        """Returns the value of a raw value, exactly; of 64 bits, too, for sums."""
        return _EXACT.add(self.offset, _EXACT.multiply(self.scale, Decimal(raw)))

    @property
    def zero(self) -> int | None:
        """The raw value of 0, negative where the least value is above 0; None if 0 falls between
        two values."""
        raw = -Fraction(self.offset) / Fraction(self.scale)
        return int(raw) if raw.denominator == 1 else None

    @property
    def places(self) -> int:
        """The decimals that all of its values can be written with."""
        return max(0, *(-_exponent(each) for each in (self.scale, self.offset)))


@dataclass(frozen=True)
class AttributeField(Field):
    """An attribute as a field of rules: constants are in its units.

    ``bits`` may be 64, to compare a sum of it.
    """

    attribute: Attribute | None = None

    @property
    def qualified(self) -> str:
        """The name: an attribute is a header by itself, which an event may lack."""
        return self.name

    @property
    def of(self) -> Attribute:
        """The attribute."""
        assert self.attribute is not None
        return self.attribute

    @property
    def unit(self) -> Decimal:
        """That of the attribute."""
        return self.of.scale

    def numerals(self) -> tuple[int, int] | None:
        """Returns decimals to read of a plain numeral, and the raw value of 0, to convert columns.

        None where that is not exact: then each constant is read by itself.
        """
        scale, zero = self.of.scale, self.of.zero
        power = -_exponent(scale)
        if zero is None or power < 0 or scale != Decimal(1).scaleb(-power):
            return None
        return power, zero

    def encode(self, constant: str | int | Decimal) -> int:
        """Converts a number in units of the attribute to its raw value.

        Raises SpecificationError CONSTANT_NOT_NUMBER, CONSTANT_NEGATIVE (less than the least
        value), CONSTANT_TOO_WIDE (more than the largest), CONSTANT_TOO_FINE (between two values).
        """
        try:
            value = Decimal(constant)
        except (DecimalException, ValueError) as error:
            raise self._refuse("NOT_NUMBER", constant, "is not a number") from error
        if not value.is_finite():
            raise self._refuse("NOT_NUMBER", constant, "is not a number")
        return self._raw(value, constant)

    def from_raw(self, value: object) -> int:
        """Converts an event's value in JSON, a number in units of the attribute or the ISO 8601
        text of a timestamp, to its raw value: rounded to the nearest, by doubles, as events are.

        Raises SpecificationError CONSTANT_NOT_NUMBER, CONSTANT_NEGATIVE, CONSTANT_TOO_WIDE.
        """
        number: float | None = None
        if isinstance(value, str) and self.of.type == "timestamp":
            seconds = seconds_of(value)
            number = None if seconds is None else float(seconds)
        elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            number = _double(value)
        if number is None or math.isnan(number):
            raise self._refuse("NOT_NUMBER", str(value), self._wanted(str(value)))
        scaled = (number - float(self.of.offset)) / float(self.of.scale)
        if not -0.5 <= scaled <= (1 << BITS):
            raise self._outside(number < self.of.offset, str(value))
        raw = round(scaled)
        if raw >> self.bits:
            raise self._outside(False, str(value))
        return raw

    def render(self, raw: int) -> str:
        """Writes a raw value in units of the attribute: with the places of its scale, a timestamp
        as ISO 8601 in UTC."""
        value = self.of.value(raw)
        if self.of.type == "timestamp" and self.bits == BITS and _is_date(value):
            return _iso(value, self.of.places)
        return f"{value:.{self.of.places}f}"

    def show(self, raw: int) -> str:
        """Writes a raw value as a rule may ask for it: as ``render``."""
        return self.render(raw)

    def _parse(self, text: str, quoted: bool) -> tuple[int, int]:
        limit = 64
        if len(text) > limit:
            raise self._refuse(
                "TOO_LONG",
                text,
                f"has {len(text)} characters, but a number may have at most {limit}",
            )
        if not text.isascii():
            raise self._refuse(
                "NOT_ASCII", text, "contains non-ASCII characters, which no number contains"
            )
        raw = self._number(text)
        if raw is None and self.of.type == "timestamp":
            seconds = seconds_of(text)
            raw = None if seconds is None else self._raw(seconds, text)
        if raw is None:
            raise self._refuse("NOT_NUMBER", text, self._wanted(text))
        return raw, raw

    def _raw(self, value: Decimal, constant: object) -> int:
        # Checked by size first: neither 1e999999 nor 1e-999999 may become that many digits.
        if value < self.of.offset:
            raise self._outside(True, constant)
        most = self.of.value((1 << self.bits) - 1)
        if value > most:
            raise self._outside(False, constant)
        if value and _exponent(value) < -_EXACT.prec // 2:
            raise self._refuse("TOO_FINE", constant, self._fineness())
        raw = (Fraction(value) - Fraction(self.of.offset)) / Fraction(self.of.scale)
        if raw.denominator != 1:
            near = (self.render(math.floor(raw)), self.render(math.ceil(raw)))
            raise self._refuse("TOO_FINE", constant, self._fineness(near))
        return int(raw)

    def _fineness(self, near: tuple[str, str] | None = None) -> str:
        why = (
            f"is not a possible value of '{self.name}', whose values are {_plain(self.of.scale)} "
            "apart"
        )
        return f"{why}; the nearest values are {near[0]} and {near[1]}" if near else why

    def _outside(self, below: bool, constant: object) -> SpecificationError:
        if below:
            why = f"is less than {self.render(0)}, the minimum of '{self.name}'"
            return self._refuse("NEGATIVE", constant, why)
        most = self.render((1 << self.bits) - 1)
        why = f"is greater than {most}, the maximum of '{self.name}'"
        return self._refuse("TOO_WIDE", constant, why)

    def _wanted(self, text: str) -> str:
        places = min(self.of.places, 2)
        why = f"is not a number: compare '{self.name}' with a number, such as {50.25:.{places}f}"
        if self.of.type == "timestamp":
            why += ', or with a quoted time, such as "2026-01-01T00:00:00Z"'
        return why


def _exponent(value: Decimal) -> int:
    """Returns the exponent of the last digit that is not 0; 0 for 0."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return exponent + zeros if value else 0


def _double(value: int | float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_date(value: Decimal) -> bool:
    return _EPOCH_YEARS[0] <= value < _EPOCH_YEARS[1] + 1


def _iso(value: Decimal, places: int) -> str:
    whole = math.floor(value)
    days, second = divmod(whole, 86_400)
    date = datetime.fromordinal(_EPOCH_DAY + days).date()
    fraction = f"{value - whole:.{places}f}"[1:] if places else ""
    hour, minute, second = second // 3600, second // 60 % 60, second % 60
    return f"{date.isoformat()}T{hour:02d}:{minute:02d}:{second:02d}{fraction}Z"


def _plain(value: Decimal) -> str:
    return f"{value:.{max(0, -_exponent(value))}f}"
