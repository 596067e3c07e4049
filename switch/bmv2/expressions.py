"""Expressions of a program as Python expressions over the list of fields ``F``.

Arithmetic has no width in BMv2: values are cut where they are stored. The bounds of every value are
followed, so that what must already fit is not cut again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stackcast.switch.bmv2.layout import Field, Header, Layout, Stack, Union
from stackcast.switch.bmv2.source import PythonSource, refuse
from stackcast.switch.bmv2.values import (
    BINARY,
    MAX_SHIFT,
    Place,
    Value,
    constant,
    guarded,
    header_value,
    hexstr,
    last,
    number,
    plus,
    same_header,
    stored,
    union_value,
)

Json = Mapping[str, Any]


class Expressions:
    """Compiles expressions of one program. ``reads`` collects the slots that they look at, and is
    for the caller to empty; ``params`` are the values of an action's parameters."""

    def __init__(self, layout: Layout, source: PythonSource, registers: Mapping[str, str]) -> None:
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
            raise refuse(f"parameter {node.get('value')!r}", "a header stack is required here")
        return value.target

    def _of(self, kind: str, node: Json | None) -> Value:
        if node is None:
            return constant(0)
        value = self.value(node)
        if value.kind != kind:
            raise refuse(f"expression {node!r}", f"it is {value.kind}, but {kind} is required")
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

    def _field(self, value: Sequence[Any]) -> Value:
        if isinstance(value[0], Mapping):
            # So p4c asks for the validity of an element that is chosen at run time.
            place = self.place({"type": "expression", "value": value[0]})
            form = place.type.by_name.get(value[1], Field("$valid$", place.type.valid, 1))
            return number(guarded(place, place.slot(form.offset), "0"), form)
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
        if value in self.layout.unions:
            # p4c calls a union a header where it asks whether one of its members is valid.
            return self._header_union(value)
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
        if op in BINARY:
            left = value.get("left")
            operands = constant(0) if left is None else self.data(left), self.data(value["right"])
            return BINARY[op](*operands)
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
            raise refuse(
                f"comparison of {one.kind}", "only data, headers and unions can be compared"
            )
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
            raise refuse(f"operation {value['op']!r}", "its width is not a constant")
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
        """Returns the header and the field in it of an ``access_field``."""
        place = self.place(value["left"])
        return place, place.type.fields[value["right"]]

    def _op_access_union_header(self, value: Json) -> Value:
        members = self._of("union", value["left"]).target
        place = members[value["right"]]
        others = tuple(m for m in members if m is not place)
        siblings = tuple((m.base, m.type) for m in others)
        return Value("", "header", target=Place(place.type, place.base, place.guard, siblings))


_COMPARISONS = {sign: sign for sign in ("==", "!=", "<", "<=", ">", ">=")}
_NAMES = {"?": "ternary", "~": "invert"}
