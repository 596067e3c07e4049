"""The primitives of actions as Python statements over the list of fields ``F`` of packet ``P``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stackcast.switch.bmv2.calculations import Calculations
from stackcast.switch.bmv2.expressions import Expressions
from stackcast.switch.bmv2.layout import Field, Layout, Stack
from stackcast.switch.bmv2.source import PythonSource, refuse
from stackcast.switch.bmv2.values import Place, Value, at, plus, stored

Json = Mapping[str, Any]
DROP_PORT = 511
# A session's number has 15 bits.
SESSIONS = 0x7FFF


class Primitives:
    """Writes primitives.

    ``tracks_length``: the bytes of headers that come and go are added up in ``P.length``.
    """

    def __init__(
        self,
        config: Json,
        layout: Layout,
        source: PythonSource,
        expressions: Expressions,
        calculations: Calculations,
    ) -> None:
        self.layout = layout
        self.source = source
        self.expressions = expressions
        self.calculations = calculations
        self.counters = {
            each["name"]: (f"counter{number}", each)
            for number, each in enumerate(config.get("counter_arrays", ()))
        }
        self.registers = {
            each["name"]: (f"register{number}", each)
            for number, each in enumerate(config.get("register_arrays", ()))
        }
        self.meters = {
            each["name"]: (f"meter{number}", each)
            for number, each in enumerate(config.get("meter_arrays", ()))
        }
        self.tracks_length = True

    def write(self, primitive: Json) -> None:
        """Write one primitive."""
        op, parameters = primitive["op"], primitive.get("parameters", [])
        writer = getattr(self, f"_{op}", None) if op in _KNOWN else None
        if writer is None:
            raise refuse(f"primitive {op!r}", "unknown primitive")
        try:
            writer(*parameters)
        except TypeError as error:
            raise refuse(f"primitive {op!r}", f"wrong number of parameters ({error})") from None

    def note_reads(self) -> None:
        """Say on the packet what the expressions since the last call depended on."""
        reads, self.expressions.reads = self.expressions.reads, set()
        if reads & self.layout.volatile or self.expressions.reads_registers:
            self.source.line("P.impure = True")
        if self.layout.slots["standard_metadata.packet_length"] in reads:
            self.source.line("P.read_length = True")
        self.expressions.reads_registers = False

    # -- parameters

    def _number(self, node: Json) -> Value:
        return self.expressions.data(node)

    def as_number(self, node: Json) -> Value:
        """Returns a number, or a condition as 0 or 1."""
        value = self.expressions.value(node)
        return value if value.kind == "data" else Value(f"(+({value.code}))", "data", 0, 1)

    def target(self, node: Json) -> tuple[str, Field, str | None]:
        """Returns where to store: the slot in Python, its form, the condition that it exists."""
        kind, value = node["type"], node["value"]
        while kind == "expression" and "op" not in value:
            kind, value = value["type"], value["value"]
        if kind == "field":
            slot, form = self.layout.field(value[0], value[1])
            return f"F[{slot}]", form, None
        if kind == "stack_field":
            stack = self.layout.stacks[value[0]]
            form = stack.headers[0].type.by_name[value[1]]
            base = f"{stack.base - stack.stride} + F[{stack.next}] * {stack.stride}"
            return at(base, form.offset), form, f"F[{stack.next}]"
        if kind == "expression" and value["op"] == "access_field":
            place, form = self.expressions.member(value)
            return place.slot(form.offset), form, place.guard
        raise refuse(f"value of type {kind!r}", "it cannot be assigned to")

    def store(self, node: Json, value: Value) -> None:
        slot, form, guard = self.target(node)
        if form.variable:
            raise refuse(f"field {form.name!r}", "a number is assigned to a field without a width")
        self.note_reads()
        with self.source.only_if(guard):
            self.source.line(f"{slot} = {_bare(stored(value, form))}")

    # -- core primitives

    def assign(self, target: Json, value: Json) -> None:
        self.store(target, self.as_number(value))

    _assign = _modify_field = assign

    def assign_variable(self, target: Json, value: Json) -> None:
        """Between fields of variable length."""
        slots = []
        for node in (target, value):
            if node["type"] == "expression":
                code, _, guard = self.target(node)
                if guard is not None:
                    raise refuse(
                        "primitive 'assign_VL'", "an element with a variable index is not supported"
                    )
                slots.append(int(code[2:-1]))
            else:
                slots.append(self.layout.field(*node["value"])[0])
        to, of = slots
        self.source.line(f"F[{to}] = F[{of}]")
        self.source.line(f"F[{to + 1}] = F[{of + 1}]")

    _assign_VL = assign_variable  # noqa: N815

    def _assign_header(self, target: Json, value: Json) -> None:
        to, of = self.expressions.place(target), self.expressions.place(value)
        self.note_reads()
        if to.type.size != of.type.size:
            raise refuse("primitive 'assign_header'", "the headers have different types")
        with self._existing(of, to):
            with self.source.block(f"if {of.valid}:"):
                self.validate(to)
                size = to.type.size
                spans = [f"F[{place.base}:{plus(place.base, size)}]" for place in (to, of)]
                self.source.line(f"{spans[0]} = {spans[1]}")
            with self.source.block("else:"):
                self.source.line(f"{to.valid} = 0")

    def _assign_union(self, target: Json, value: Json) -> None:
        members = [self.expressions.value(node).target for node in (target, value)]
        self._span(members[0], members[1])

    def _span(self, to: Sequence[Place], of: Sequence[Place]) -> None:
        for one, other in zip(to, of, strict=True):
            with self._existing(one, other):
                size = one.type.size
                spans = [f"F[{place.base}:{plus(place.base, size)}]" for place in (one, other)]
                self.source.line(f"{spans[0]} = {spans[1]}")

    def _assign_header_stack(self, target: Json, value: Json) -> None:
        to, of = self.expressions.stack(target), self.expressions.stack(value)
        size = to.size * to.stride
        self.source.line(f"F[{to.base}:{to.base + size}] = F[{of.base}:{of.base + size}]")
        self.source.line(f"F[{to.next}] = F[{of.next}]")

    _assign_union_stack = _assign_header_stack

    def _existing(self, *places: Place) -> Any:
        guards = dict.fromkeys(place.guard for place in places if place.guard)
        return self.source.only_if(" and ".join(guards) or None)

    def validate(self, place: Place) -> None:
        """Only the siblings: a union has one valid member."""
        for base, type_ in place.siblings:
            self.source.line(f"{at(base, type_.valid)} = 0")

    def _add_header(self, node: Json) -> None:
        place = self.expressions.place(node)
        self.note_reads()
        with self._existing(place), self.source.block(f"if not {place.valid}:"):
            self.validate(place)
            size = place.type.size
            end = plus(place.base, size)
            fresh = [0] * (size - 1) + [1]
            if size <= 3:
                for offset, value in enumerate(fresh):
                    self.source.line(f"{place.slot(offset)} = {value}")
            else:
                name = self.source.constant("blank", size, fresh)
                self.source.line(f"F[{place.base}:{end}] = {name}")
            if self.tracks_length:
                self.source.line(f"P.length += {place.type.bits // 8}")

    def _remove_header(self, node: Json) -> None:
        place = self.expressions.place(node)
        self.note_reads()
        with self._existing(place):
            if not self.tracks_length:
                self.source.line(f"{place.valid} = 0")
                return
            with self.source.block(f"if {place.valid}:"):
                self.source.line(f"{place.valid} = 0")
                self.source.line(f"P.length -= {header_bytes(place)}")

    def _push(self, node: Json, number: Json) -> None:
        self._shift("push", node, number)

    def _pop(self, node: Json, number: Json) -> None:
        self._shift("pop", node, number)

    def _shift(self, way: str, node: Json, number: Json) -> None:
        stack: Stack = self.expressions.stack(node)
        count = self._number(number).code
        self.note_reads()
        valid = tuple(
            header.valid - stack.base
            for header in stack.headers
            if header.base < stack.base + stack.stride
        )
        self.source.line(
            f"{way}(F, {stack.base}, {stack.stride}, {stack.size}, {stack.next}, {valid}, {count})"
        )

    def _exit(self) -> None:
        self.source.line("return True")

    def _assert(self, node: Json) -> None:
        test = self.as_number(node)
        self.note_reads()
        with self.source.block(f"if not {test.code}:"):
            self.source.line("S.failed_assertions += 1")

    _assume = _assert

    def _log_msg(self, *_: Json) -> None:
        """Nothing: messages are for those who look for faults with BMv2."""

    def _no_op(self) -> None:
        """Nothing."""

    # -- requests to the traffic manager

    def _mark_to_drop(self, node: Json) -> None:
        """Marks the metadata that is named, perhaps a copy that the switch does not look at."""
        place = self.expressions.place(node)
        fields = place.type.by_name
        if "egress_spec" not in fields:
            raise refuse("primitive 'mark_to_drop'", f"{place.type.name!r} has no egress_spec")
        self.source.line(f"{place.slot(fields['egress_spec'].offset)} = {DROP_PORT}")
        if "mcast_grp" in fields:
            self.source.line(f"{place.slot(fields['mcast_grp'].offset)} = 0")

    def _drop(self) -> None:
        self.source.line(f"F[{self.layout.slots['standard_metadata.egress_spec']}] = {DROP_PORT}")
        self.source.line(f"F[{self.layout.slots['intrinsic_metadata.mcast_grp']}] = 0")

    def _clone_ingress_pkt_to_egress(self, session: Json, fields: Json) -> None:
        code = f"P.clone = ({self._number(session).code} & {SESSIONS}, {self._number(fields).code})"
        self.note_reads()
        self.source.line(code)
        self.source.line("P.impure = True")

    _clone_egress_pkt_to_egress = _clone_ingress_pkt_to_egress

    def _resubmit(self, fields: Json) -> None:
        self.source.line(f"P.resubmit = {self._number(fields).code}")

    def _recirculate(self, fields: Json) -> None:
        self.source.line(f"P.recirculate = {self._number(fields).code}")

    def _generate_digest(self, _: Json, number: Json) -> None:
        self.source.line(f"P.digest = {self._number(number).code}")
        self.source.line("P.impure = True")

    def _truncate(self, length: Json) -> None:
        name = self.source.fresh("n")
        code = self._number(length).code
        self.note_reads()
        self.source.line(f"{name} = {code}")
        with self.source.block(f"if P.truncate is None or {name} < P.truncate:"):
            self.source.line(f"P.truncate = {name}")

    # -- state

    def _count(self, array: Json, index: Json) -> None:
        name, counter = self._array(self.counters, "counter", array)
        spot = self.source.fresh("n")
        code = self._number(index).code
        self.note_reads()
        with self.source.block(f"if ({spot} := {code}) < {counter['size']}:"):
            self.source.line(f"c = {name}[{spot}]")
            self.raise_cell()

    def raise_cell(self) -> None:
        """Count the packet in cell ``c``."""
        self.source.line("c[0] += 1")
        self.source.line("c[1] += P.ingress_length")
        self.source.line("P.counted.append(c)")

    def _register_read(self, target: Json, array: Json, index: Json) -> None:
        name, register = self._array(self.registers, "register", array)
        spot = self.source.fresh("n")
        code = self._number(index).code
        slot, form, guard = self.target(target)
        self.note_reads()
        self.source.line("P.impure = True")
        test = f"({spot} := {code}) < {register['size']}"
        with self.source.block(f"if {test}{f' and {guard}' if guard else ''}:"):
            bits = (1 << register["bitwidth"]) - 1
            value = Value(f"{name}[{spot}]", "data", 0, bits)
            self.source.line(f"{slot} = {_bare(stored(value, form))}")

    def _register_write(self, array: Json, index: Json, value: Json) -> None:
        name, register = self._array(self.registers, "register", array)
        spot = self.source.fresh("n")
        code, what = self._number(index).code, self.as_number(value)
        self.note_reads()
        self.source.line("P.impure = True")
        form = Field("", 0, register["bitwidth"])
        with self.source.block(f"if ({spot} := {code}) < {register['size']}:"):
            self.source.line(f"{name}[{spot}] = {_bare(stored(what, form))}")

    def _execute_meter(self, array: Json, index: Json, target: Json) -> None:
        name, _ = self._array(self.meters, "meter", array)
        spot = self._number(index).code
        self.source.line("P.impure = True")
        self.store(target, Value(f"{name}.execute({spot}, P.ingress_length)", "data", 0, 2))

    def _array(
        self, arrays: Mapping[str, tuple[str, Json]], what: str, node: Json
    ) -> tuple[str, Json]:
        name = node["value"]
        if name not in arrays:
            raise refuse(f"{what} {name!r}", "it is used but not declared")
        return arrays[name]

    # -- hashes and chance

    def _modify_field_with_hash_based_offset(
        self, target: Json, base: Json, calculation: Json, size: Json
    ) -> None:
        code = self.calculations.call(calculation["value"])
        modulus = self._number(size)
        divisor = modulus.code if modulus.low else f"({modulus.code} or 1)"
        start = self._number(base).code
        if self.calculations.has_payload(calculation["value"]):
            self.source.line("P.impure = True")
        self.expressions.reads |= self.calculations.reads(calculation["value"])
        self.store(target, Value(f"({code} % {divisor} + {start})"))

    def _modify_field_rng_uniform(self, target: Json, low: Json, high: Json) -> None:
        slot, form, guard = self.target(target)
        bounds = f"{self._number(low).code}, {self._number(high).code}"
        self.note_reads()
        self.source.line("P.impure = True")
        ends = [self.source.fresh("n"), self.source.fresh("n")]
        self.source.line(f"{ends[0]}, {ends[1]} = {bounds}")
        with self.source.block(f"if {ends[0]} <= {ends[1]}{f' and {guard}' if guard else ''}:"):
            value = Value(f"randint({ends[0]}, {ends[1]})")
            self.source.line(f"{slot} = {_bare(stored(value, form))}")


def header_bytes(place: Place) -> str:
    """Returns Python for the bytes of a header."""
    fixed = place.type.bits // 8
    variable = place.type.variable
    if variable is None:
        return str(fixed)
    return f"({fixed} + {place.slot(variable.offset + 1)} // 8)"


def _bare(code: str) -> str:
    """Without brackets around the whole, which cost nothing but are hard on the eye."""
    if not (code.startswith("(") and code.endswith(")")):
        return code
    depth = 0
    for position, letter in enumerate(code):
        depth += (letter == "(") - (letter == ")")
        if not depth and position < len(code) - 1:
            return code
    return code[1:-1]


_KNOWN = frozenset(
    (
        "assign",
        "modify_field",
        "assign_VL",
        "assign_header",
        "assign_union",
        "assign_header_stack",
        "assign_union_stack",
        "add_header",
        "remove_header",
        "push",
        "pop",
        "exit",
        "assert",
        "assume",
        "log_msg",
        "no_op",
        "mark_to_drop",
        "drop",
        "clone_ingress_pkt_to_egress",
        "clone_egress_pkt_to_egress",
        "resubmit",
        "recirculate",
        "generate_digest",
        "truncate",
        "count",
        "register_read",
        "register_write",
        "execute_meter",
        "modify_field_with_hash_based_offset",
        "modify_field_rng_uniform",
    )
)
