"""Expressions of a program as Python expressions over the list of fields ``F``.

Arithmetic has no width in BMv2: values are cut where they are stored. The bounds of every value are
followed, so that what must already fit is not cut again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.bmv2.layout import Field, Header, HeaderType, Layout, Stack, Union
from lab.bmv2.source import Source, refuse

Json = Mapping[str, Any]
# A shift by more leaves nothing of any field.
MAX_SHIFT = 1 << 16


@dataclass(frozen=True)
class Place:
    """A header somewhere in ``F``. ``base``: its first slot, a number or Python. ``guard``: a
    condition to evaluate first, without which there is no such element."""

    type: HeaderType
    base: int | str
    guard: str | None = None
    siblings: tuple[tuple[int, HeaderType], ...] = ()

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
    """``F[...]`` for a slot."""
    if isinstance(base, int):
        return f"F[{base + offset}]"
    return f"F[{base} + {offset}]" if offset else f"F[{base}]"


def constant(value: int) -> Value:
    return Value(str(value) if abs(value) < 10 else hex(value), "data", value, value)


def hexstr(text: str) -> int:
    return int(text, 16)


def stored(value: Value, form: Field) -> str:
    """``value`` as a field of this form holds it."""
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


class Expressions:
    """Compiles expressions of one program. ``reads`` collects the slots that they look at, and is
    for the caller to empty; ``params`` are the values of an action's parameters."""

    def __init__(self, layout: Layout, source: Source, registers: Mapping[str, str]) -> None:
        self.layout = layout
        self.source = source
        self.registers = registers
        self.params: Sequence[Value] = ()
        self.reads: set[int] = set()
        self.reads_registers = False

    def data(self, node: Json | None) -> Value:
        return self._of("data", node)

    def condition(self, node: Json | None) -> str:
        if node is None:
            return "False"
        return self._of("bool", node).code

    def place(self, node: Json) -> Place:
        value = self._of("header", node)
        assert isinstance(value.target, Place)
        return value.target

    def stack(self, node: Json) -> Stack:
        value = self.value(node)
        if not isinstance(value.target, Stack):
            raise refuse(f"parameter {node.get('value')!r}", "a header stack is needed here")
        return value.target

    def _of(self, kind: str, node: Json | None) -> Value:
        if node is None:
            return constant(0)
        value = self.value(node)
        if value.kind != kind:
            raise refuse(f"expression {node!r}", f"it is {value.kind}, where {kind} is needed")
        return value

    def value(self, node: Json) -> Value:
        kind, value = node["type"], node["value"]
        reader = getattr(self, f"_{kind}", None)
        if reader is None:
            raise refuse(f"value of type {kind!r}", "unknown type")
        result = reader(value)
        assert isinstance(result, Value)
        return result

    # -- leaves

    def _field(self, value: Sequence[str]) -> Value:
        slot, form = self.layout.field(value[0], value[1])
        return self._read(slot, form)

    def _read(self, slot: int, form: Field) -> Value:
        self.reads.add(slot)
        return number(f"F[{slot}]", form)

    def _hexstr(self, value: str) -> Value:
        return constant(hexstr(value))

    def _bool(self, value: bool) -> Value:
        return Value(str(bool(value)), "bool")

    def _local(self, value: int) -> Value:
        return self.params[value]

    _runtime_data = _local

    def _header(self, value: str) -> Value:
        return header_value(self.layout.header(value))

    def _header_stack(self, value: str) -> Value:
        stack = self.layout.stacks.get(value) or self.layout.union_stacks.get(value)
        if stack is None:
            raise refuse(f"header stack {value!r}", "it is used but not declared")
        return Value("", "stack", target=stack)

    _header_union_stack = _header_stack

    def _header_union(self, value: str) -> Value:
        return union_value(self.layout.unions[value])

    def _stack_field(self, value: Sequence[str]) -> Value:
        stack = self.layout.stacks[value[0]]
        first = stack.headers[0]
        form = first.type.by_name[value[1]]
        self.reads.add(stack.base + form.offset)
        base = last(stack)
        return number(f"(F[{base} + {form.offset}] if F[{stack.next}] else 0)", form)

    def _union_stack_field(self, value: Sequence[str]) -> Value:
        stack = self.layout.union_stacks[value[0]]
        union = stack.elements[0]
        assert isinstance(union, Union)
        member = union.members[value[1]]
        form = member.type.by_name[value[2]]
        offset = member.base - stack.base + form.offset
        return number(f"(F[{last(stack)} + {offset}] if F[{stack.next}] else 0)", form)

    def _register(self, value: Sequence[Any]) -> Value:
        name, index = value
        if name not in self.registers:
            raise refuse(f"register {name!r}", "it is used but not declared")
        self.reads_registers = True
        array = self.registers[name]
        spot = self.source.fresh("q")
        return Value(
            f"({array}[{spot}] if 0 <= ({spot} := {self.data(index).code}) < len({array}) else 0)"
        )

    # -- operations

    def _expression(self, value: Json) -> Value:
        if "op" not in value:
            # An expression wrapped once more, as parameters of primitives are.
            return self.value(value)
        op = value["op"]
        if op in _BINARY:
            left = value.get("left")
            operands = constant(0) if left is None else self.data(left), self.data(value["right"])
            return _BINARY[op](*operands)
        if op in _COMPARISONS:
            return self._compare(_COMPARISONS[op], value["left"], value["right"])
        special = getattr(self, f"_op_{_NAMES.get(op, op)}", None)
        if special is None:
            raise refuse(f"operation {op!r}", "unknown operation in an expression")
        result = special(value)
        assert isinstance(result, Value)
        return result

    def _compare(self, sign: str, left: Json, right: Json) -> Value:
        one, other = self.value(left), self.value(right)
        if one.kind in ("data", "bool"):
            return Value(f"({one.code} {sign} {other.code})", "bool")
        if one.kind == "header":
            same = same_header(one.target, other.target)
        elif one.kind == "union":
            # Both have the same valid member, with the same fields in it.
            pairs = zip(one.target, other.target, strict=True)
            same = "(" + " or ".join(same_header(a, b) for a, b in pairs) + ")"
        else:
            raise refuse(f"comparison of {one.kind}", "only data, headers and unions compare")
        return Value(same if sign == "==" else f"(not {same})", "bool")

    def _op_and(self, value: Json) -> Value:
        return self._logical("and", value)

    def _op_or(self, value: Json) -> Value:
        return self._logical("or", value)

    def _logical(self, word: str, value: Json) -> Value:
        left, right = self.condition(value["left"]), self.condition(value["right"])
        return Value(f"({left} {word} {right})", "bool")

    def _op_not(self, value: Json) -> Value:
        return Value(f"(not {self.condition(value['right'])})", "bool")

    def _op_invert(self, value: Json) -> Value:
        operand = self.data(value["right"])
        low = None if operand.high is None else ~operand.high
        high = None if operand.low is None else ~operand.low
        return Value(f"(~{operand.code})", "data", low, high)

    def _op_d2b(self, value: Json) -> Value:
        operand = self.data(value["right"])
        # What is 0 or 1 serves as a condition as it is.
        if operand.low == 0 and operand.high == 1:
            return Value(operand.code, "bool")
        return Value(f"({operand.code} != 0)", "bool")

    def _op_b2d(self, value: Json) -> Value:
        return Value(f"(+({self.condition(value['right'])}))", "data", 0, 1)

    def _op_ternary(self, value: Json) -> Value:
        condition = self.condition(value["cond"])
        left, right = self.value(value["left"]), self.value(value["right"])
        if left.kind != right.kind or left.kind not in ("data", "bool"):
            raise refuse("operation '?'", f"between {left.kind} and {right.kind}")
        code = f"({left.code} if {condition} else {right.code})"
        low = None if left.low is None or right.low is None else min(left.low, right.low)
        high = None if left.high is None or right.high is None else max(left.high, right.high)
        return Value(code, left.kind, low, high)

    def _op_two_comp_mod(self, value: Json) -> Value:
        form = Field("", 0, self._width(value), signed=True)
        return number(stored(self.data(value["left"]), form), form)

    def _op_usat_cast(self, value: Json) -> Value:
        return self._saturated(value, 0, (1 << self._width(value)) - 1)

    def _op_sat_cast(self, value: Json) -> Value:
        half = 1 << (self._width(value) - 1)
        return self._saturated(value, -half, half - 1)

    def _saturated(self, value: Json, low: int, high: int) -> Value:
        code = f"clamp({self.data(value['left']).code}, {low:#x}, {high:#x})"
        return Value(code, "data", low, high)

    def _width(self, value: Json) -> int:
        width = self.data(value["right"])
        if width.low is None or width.low != width.high or not 0 < width.low <= MAX_SHIFT:
            raise refuse(f"operation {value['op']!r}", "its width is no constant")
        return width.low

    def _op_valid(self, value: Json) -> Value:
        place = self.place(value["right"])
        if isinstance(place.base, int):
            self.reads.add(place.base + place.type.valid)
        return Value(guarded(place, place.valid), "bool")

    def _op_valid_union(self, value: Json) -> Value:
        members = self._of("union", value["right"]).target
        return Value("(" + " or ".join(guarded(m, m.valid) for m in members) + ")", "bool")

    def _op_dereference_header_stack(self, value: Json) -> Value:
        stack = self.stack(value["left"])
        base, guard = self._element(stack, value["right"])
        header = stack.elements[0]
        assert isinstance(header, Header)
        return Value("", "header", target=Place(header.type, base, guard))

    _op_dereference_stack = _op_dereference_header_stack

    def _op_dereference_union_stack(self, value: Json) -> Value:
        stack = self.stack(value["left"])
        base, guard = self._element(stack, value["right"])
        union = stack.elements[0]
        assert isinstance(union, Union)
        places = []
        for member in union.members.values():
            offset = member.base - stack.base
            places.append(Place(member.type, plus(base, offset), guard))
        return Value("", "union", target=tuple(places))

    def _element(self, stack: Stack, index: Json) -> tuple[int | str, str | None]:
        spot = self.data(index)
        if spot.low is not None and spot.low == spot.high:
            if 0 <= spot.low < stack.size:
                return stack.base + spot.low * stack.stride, None
            return stack.base, "False"
        name = self.source.fresh("i")
        return (
            f"{stack.base} + {name} * {stack.stride}",
            f"0 <= ({name} := {spot.code}) < {stack.size}",
        )

    def _op_last_stack_index(self, value: Json) -> Value:
        stack = self.stack(value["right"])
        return Value(f"(F[{stack.next}] - 1)", "data", -1, stack.size - 1)

    def _op_size_stack(self, value: Json) -> Value:
        stack = self.stack(value["right"])
        return Value(f"F[{stack.next}]", "data", 0, stack.size)

    def _op_access_field(self, value: Json) -> Value:
        place, form = self.member(value)
        if isinstance(place.base, int):
            self.reads.add(place.base + form.offset)
        return number(guarded(place, place.slot(form.offset), "0"), form)

    def member(self, value: Json) -> tuple[Place, Field]:
        """The header and the field in it of an ``access_field``."""
        place = self.place(value["left"])
        return place, place.type.fields[value["right"]]

    def _op_access_union_header(self, value: Json) -> Value:
        members = self._of("union", value["left"]).target
        place = members[value["right"]]
        others = tuple(m for m in members if m is not place)
        siblings = tuple((m.base, m.type) for m in others)
        return Value("", "header", target=Place(place.type, place.base, place.guard, siblings))


def number(code: str, form: Field) -> Value:
    """A value with the bounds of a field."""
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


_BINARY: dict[str, Callable[[Value, Value], Value]] = {
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
_COMPARISONS = {sign: sign for sign in ("==", "!=", "<", "<=", ">", ">=")}
_NAMES = {"?": "ternary", "~": "invert"}
