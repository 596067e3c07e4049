"""Values of a program while it is compiled: their Python, where they are, what bounds they have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stackcast.switch.bmv2.layout import Field, Header, HeaderType, Stack, Union

# A shift by more leaves nothing of any field.
MAX_SHIFT = 1 << 16


@dataclass(frozen=True)
class Place:
    """A header somewhere in ``F``. ``base``: its first slot, a number or Python. ``guard``: a
    condition to evaluate first, without which there is no such element."""

    type: HeaderType
    base: int | str
    guard: str | None = None
    siblings: tuple[tuple[int | str, HeaderType], ...] = ()

    def slot(self, offset: int) -> str:
        return at(self.base, offset)

    @property
    def valid(self) -> str:
        return self.slot(self.type.valid)


@dataclass(frozen=True)
class Value:
    """Python for a value; ``low`` and ``high`` bound it where known. ``target``: the Place, Stack
    or Union that it is, if it is no number."""

    code: str
    kind: str = "data"
    low: int | None = None
    high: int | None = None
    target: Any = None

    def fits(self, form: Field) -> bool:
        if self.low is None or self.high is None:
            return False
        if form.signed:
            half = 1 << (form.width - 1)
            return -half <= self.low and self.high < half
        return self.low >= 0 and not self.high >> form.width


def at(base: int | str, offset: int) -> str:
    """Returns ``F[...]`` for a slot."""
    if isinstance(base, int):
        return f"F[{base + offset}]"
    return f"F[{base} + {offset}]" if offset else f"F[{base}]"


def constant(value: int) -> Value:
    return Value(str(value) if abs(value) < 10 else hex(value), "data", value, value)


def hexstr(text: str) -> int:
    return int(text, 16)


def stored(value: Value, form: Field) -> str:
    """Returns ``value`` as a field of this form holds it."""
    if value.fits(form):
        return value.code
    mask = (1 << form.width) - 1
    if form.saturating:
        low = -(1 << (form.width - 1)) if form.signed else 0
        return f"clamp({value.code}, {low}, {mask + low})"
    if form.signed:
        half = 1 << (form.width - 1)
        return f"(({value.code} + {half:#x} & {mask:#x}) - {half:#x})"
    return f"({value.code} & {mask:#x})"


def number(code: str, form: Field) -> Value:
    """Returns a value with the bounds of a field."""
    if form.variable:
        return Value(code)
    if form.signed:
        half = 1 << (form.width - 1)
        return Value(code, "data", -half, half - 1)
    return Value(code, "data", 0, (1 << form.width) - 1)


def plus(base: int | str, offset: int) -> int | str:
    if isinstance(base, int):
        return base + offset
    return f"{base} + {offset}" if offset else base


def guarded(place: Place, code: str, otherwise: str = "False") -> str:
    return code if place.guard is None else f"({code} if {place.guard} else {otherwise})"


def header_value(header: Header) -> Value:
    siblings = tuple((other.base, other.type) for other in header.siblings)
    return Value("", "header", target=Place(header.type, header.base, None, siblings))


def union_value(union: Union) -> Value:
    members = tuple(header_value(header).target for header in union.members.values())
    return Value("", "union", target=members)


def same_header(one: Place, other: Place) -> str:
    """Both valid, with equal fields."""
    if one.type is not other.type:
        return "False"
    size = one.type.size - 1
    parts = [place.guard for place in (one, other) if place.guard]
    parts += [one.valid, other.valid]
    spans = [f"F[{place.base}:{plus(place.base, size)}]" for place in (one, other)]
    return "bool(" + " and ".join([*parts, f"{spans[0]} == {spans[1]}"]) + ")"


def last(stack: Stack) -> str:
    """Base of the last element in use."""
    return f"{stack.base - stack.stride} + F[{stack.next}] * {stack.stride}"


# -- binary operations with the bounds of their results


def _known(*values: int | None) -> bool:
    return all(value is not None for value in values)


def _add(a: Value, b: Value) -> Value:
    low = a.low + b.low if a.low is not None and b.low is not None else None
    high = a.high + b.high if a.high is not None and b.high is not None else None
    return Value(f"({a.code} + {b.code})", "data", low, high)


def _subtract(a: Value, b: Value) -> Value:
    low = a.low - b.high if a.low is not None and b.high is not None else None
    high = a.high - b.low if a.high is not None and b.low is not None else None
    return Value(f"({a.code} - {b.code})", "data", low, high)


def _multiply(a: Value, b: Value) -> Value:
    code = f"({a.code} * {b.code})"
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Value(code)
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Value(code, "data", min(ends), max(ends))


def _natural(value: Value) -> bool:
    return value.low is not None and value.low >= 0


def _divide(a: Value, b: Value) -> Value:
    if _natural(a) and b.low is not None and b.low > 0:
        return Value(f"({a.code} // {b.code})", "data", 0, a.high)
    return Value(f"quotient({a.code}, {b.code})", "data", 0, a.high)


def _modulo(a: Value, b: Value) -> Value:
    high = None if b.high is None else max(0, b.high - 1)
    if _natural(a) and b.low is not None and b.low > 0:
        return Value(f"({a.code} % {b.code})", "data", 0, high)
    return Value(f"remainder({a.code}, {b.code})", "data", 0, high)


def _shift_left(a: Value, b: Value) -> Value:
    if b.low is not None and b.low == b.high and 0 <= b.low < MAX_SHIFT:
        low = None if a.low is None else a.low << b.low
        high = None if a.high is None else a.high << b.low
        return Value(f"({a.code} << {b.code})", "data", low, high)
    low, high = (0, None) if _natural(a) else (None, None)
    if _natural(b) and b.high is not None and b.high < 64:
        if a.high is not None and _natural(a):
            high = a.high << b.high
        return Value(f"({a.code} << {b.code})", "data", low, high)
    return Value(f"shift_left({a.code}, {b.code})", "data", low)


def _shift_right(a: Value, b: Value) -> Value:
    low, high = (0, a.high) if _natural(a) else (None, None)
    if b.low is not None and b.low == b.high and b.low >= 0 and _natural(a) and a.high is not None:
        high = a.high >> b.low
    name = "({} >> {})" if _natural(b) else "shift_right({}, {})"
    return Value(name.format(a.code, b.code), "data", low, high)


def _and(a: Value, b: Value) -> Value:
    for one, other in ((a, b), (b, a)):
        mask = one.low
        if mask is None or mask != one.high or mask < 0 or mask & (mask + 1):
            continue
        # A mask of all the bits that the other can have changes nothing.
        if _natural(other) and other.high is not None and other.high <= mask:
            return other
    tops = [v.high for v in (a, b) if _natural(v) and v.high is not None]
    natural = _natural(a) or _natural(b)
    return Value(
        f"({a.code} & {b.code})", "data", 0 if natural else None, min(tops) if tops else None
    )


def _bitwise(sign: str) -> Callable[[Value, Value], Value]:
    def combine(a: Value, b: Value) -> Value:
        code = f"({a.code} {sign} {b.code})"
        if not (_natural(a) and _natural(b)):
            return Value(code)
        if a.high is None or b.high is None:
            return Value(code, "data", 0)
        return Value(code, "data", 0, (1 << max(a.high, b.high).bit_length()) - 1)

    return combine


BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "%": _modulo,
    "<<": _shift_left,
    ">>": _shift_right,
    "&": _and,
    "|": _bitwise("|"),
    "^": _bitwise("^"),
}
