"""Parsers as one Python function: states, extraction, transitions.

``D`` is the frame, ``o`` the bytes parsed so far, ``l`` its length. A state that only one other
leads to is written where that one goes to it; the others are branches of one loop over ``s``.

As in BMv2, a ``select`` without a case for a packet accepts it: ``NoMatch`` is for programs only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from stackcast.switch.bmv2.layout import Field, Layout, Stack, Union
from stackcast.switch.bmv2.primitives import Primitives
from stackcast.switch.bmv2.source import Coverage, PythonSource, refuse
from stackcast.switch.bmv2.values import Place, Value, header_value, number, plus, stored
from stackcast.switch.bmv2.wire import read_header

Json = Mapping[str, Any]

# The errors of core.p4 that a parser raises by itself.
ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
# A frame makes a parser go round once for each of its bits at most; more is a circle.
ROUNDS = 1 << 14
# States within one another.
DEEPEST = 16


class Parsing:
    """Writes the function ``parse``."""

    def __init__(
        self,
        config: Json,
        layout: Layout,
        source: PythonSource,
        primitives: Primitives,
        coverage: Coverage,
    ) -> None:
        self._layout = layout
        self._source = source
        self._primitives = primitives
        self._expressions = primitives.expressions
        self._coverage = coverage
        self._parser = config["parsers"][0]
        self._states: dict[str, Json] = {
            state["name"]: state for state in self._parser["parse_states"]
        }
        errors = {name: number for name, number in config.get("errors", ())}
        for name in ERRORS:
            errors.setdefault(name, max(errors.values(), default=-1) + 1)
        self._errors = errors
        self._error_slot = layout.slots["standard_metadata.parser_error"]
        self.vsets: dict[str, int] = {
            each["name"]: each["compressed_bitwidth"] for each in config.get("parse_vsets", ())
        }
        # By name of the set in the compiled source: the set that it shadows, and its mask.
        self.used_vsets: dict[str, tuple[str, int | None]] = {}

    def write(self) -> None:
        """Lines of the body of ``parse`` up to the point where checksums are verified."""
        start = self._parser["init_state"]
        if start not in self._states:
            raise refuse(f"parser {self._parser['name']!r}", f"it has no state {start!r}")
        entered = Counter(
            transition["next_state"]
            for state in self._states.values()
            for transition in state["transitions"]
            if transition["next_state"] is not None
        )
        for name in entered:
            if name not in self._states:
                raise refuse(f"parser {self._parser['name']!r}", f"it has no state {name!r}")
        self._numbers = {start: 0}
        self._circles = self._in_circles()
        self._entered = entered
        bodies: dict[str, list[str]] = {}
        todo = [start]
        self._todo = todo
        while todo:
            name = todo.pop(0)
            if name in bodies:
                continue
            with self._source.aside() as lines:
                self._state(name, 0)
            bodies[name] = lines
        self._assemble(bodies, start)

    def _assemble(self, bodies: dict[str, list[str]], start: str) -> None:
        line = self._source.line
        line("D = P.data")
        line("F = P.fields")
        line("l = len(D)")
        line("o = r = 0")
        line(f"F[{self._error_slot}] = {self._errors['NoError']}")
        many = len(bodies) > 1
        if many or self._circles:
            line("s = t = 0")
        with self._source.block("while True:"):
            # Those that are entered again and again come first.
            for place, name in enumerate(sorted(bodies, key=lambda each: -self._entered[each])):
                if many:
                    head = "if" if not place else "elif"
                    with self._source.block(f"{head} s == {self._numbers[name]}:"):
                        for text in bodies[name]:
                            line(text[4:])
                else:
                    for text in bodies[name]:
                        line(text[4:])
        line("P.payload = o")
        line("P.read = o if o > r else r")

    def _in_circles(self) -> set[str]:
        """States from which the parser can come back to them."""
        after = {
            name: {each["next_state"] for each in state["transitions"]} - {None}
            for name, state in self._states.items()
        }
        circles = set()
        for name, first in after.items():
            seen: set[str] = set()
            todo = [*first]
            while todo:
                state = todo.pop()
                if state not in seen:
                    seen.add(state)
                    todo += after[state]
            if name in seen:
                circles.add(name)
        return circles

    def _go(self, name: str | None, depth: int) -> None:
        if name is None:
            self._source.line("break")
        elif name not in self._numbers and self._entered[name] == 1 and depth < DEEPEST:
            self._state(name, depth + 1)
        else:
            if name not in self._numbers:
                self._numbers[name] = len(self._numbers)
            self._todo.append(name)
            self._source.line(f"s = {self._numbers[name]}")
            if name in self._circles:
                self._source.line("t += 1")
                with self._source.block(f"if t > {ROUNDS}:"):
                    self._fail("ParserTimeout")
            self._source.line("continue")

    def _fail(self, error: str) -> None:
        if error in ("PacketTooShort", "ParserTimeout"):
            # What a longer frame with the same beginning would have done differently.
            self._source.line("r = l")
            self._source.line("P.read_length = True")
        self._source.line(f"F[{self._error_slot}] = {self._errors[error]}")
        self._source.line("break")

    def _state(self, name: str, depth: int) -> None:
        state = self._states[name]
        self._coverage.mark("state", name, state)
        for op in state["parser_ops"]:
            writer = getattr(self, f"_{op['op']}", None) if op["op"] in _OPERATIONS else None
            if writer is None:
                raise refuse(f"parser state {name!r}", f"unknown operation {op['op']!r}")
            writer(*op["parameters"])
        self._transitions(state, depth)

    # -- operations

    def _need(self, size: str) -> None:
        """Go on only if so many bytes are left."""
        with self._source.block(f"if o + {size} > l:"):
            self._fail("PacketTooShort")

    def _extract(self, target: Json) -> None:
        place, stack = self._extracted(target)
        self._source_bytes(place)
        self._took(place, stack)

    def _source_bytes(self, place: Place) -> None:
        size = place.type.bits // 8
        if place.type.bits % 8:
            raise refuse(f"header type {place.type.name!r}", "it is not a whole number of bytes")
        if place.type.variable is not None:
            raise refuse(f"header type {place.type.name!r}", "its length is missing")
        if size:
            self._need(str(size))
            read_header(self._source, place, "o")
            self._source.line(f"o += {size}")

    def _took(self, place: Place, stack: Stack | None) -> None:
        self._primitives.validate(place)
        self._source.line(f"{place.valid} = 1")
        if stack is not None:
            self._source.line(f"F[{stack.next}] += 1")

    def _extracted(self, target: Json) -> tuple[Place, Stack | None]:
        kind, name = target["type"], target["value"]
        if kind == "regular":
            place: Place = header_value(self._layout.header(name)).target
            return place, None
        if kind not in ("stack", "union_stack"):
            raise refuse(f"extraction to {name!r}", f"unknown type {kind!r}")
        stacks = self._layout.stacks if kind == "stack" else self._layout.union_stacks
        stack = stacks[name if kind == "stack" else name[0]]
        base = self._source.fresh("i")
        with self._source.block(f"if F[{stack.next}] >= {stack.size}:"):
            self._fail("StackOutOfBounds")
        self._source.line(f"{base} = {stack.base} + F[{stack.next}] * {stack.stride}")
        if kind == "stack":
            return Place(stack.headers[0].type, base), stack
        union = stack.elements[0]
        assert isinstance(union, Union)
        places = {
            member: Place(header.type, plus(base, header.base - stack.base))
            for member, header in union.members.items()
        }
        own = places.pop(name[1])
        siblings = tuple((place.base, place.type) for place in places.values())
        return Place(own.type, own.base, None, siblings), stack

    def _extract_VL(self, target: Json, length: Json) -> None:  # noqa: N802
        place, stack = self._extracted(target)
        variable = place.type.variable
        if variable is None:
            raise refuse(f"header type {place.type.name!r}", "it has no field of variable length")
        bits = self._source.fresh("n")
        code = self._expressions.data(length).code
        self._primitives.note_reads()
        self._source.line(f"{bits} = {code}")
        with self._source.block(f"if {bits} % 8:"):
            self._fail("ParserInvalidArgument")
        fixed = place.type.bits // 8
        with self._source.block(f"if {bits} < 0 or o + {fixed} + {bits} // 8 > l:"):
            self._fail("PacketTooShort")
        if place.type.max_bytes:
            with self._source.block(f"if {fixed} + {bits} // 8 > {place.type.max_bytes}:"):
                self._fail("HeaderTooShort")
        whole = self._source.fresh("n")
        end = f"o + {fixed} + {bits} // 8"
        self._source.line(f"{whole} = int.from_bytes(D[o:{end}], 'big')")
        left = place.type.bits
        before = True
        for form in place.type.fields:
            slot = place.slot(form.offset)
            if form.variable:
                before = False
                shift = f" >> {left}" if left else ""
                self._source.line(f"{slot} = {whole}{shift} & (1 << {bits}) - 1")
                self._source.line(f"{place.slot(form.offset + 1)} = {bits}")
                continue
            left -= form.width
            shift = f"({left} + {bits})" if before else str(left)
            raw = f"({whole} >> {shift} & {(1 << form.width) - 1:#x})"
            self._source.line(f"{slot} = {stored(Value(raw), form) if form.signed else raw}")
        self._source.line(f"o = {end}")
        self._took(place, stack)

    def _set(self, target: Json, value: Json) -> None:
        if value["type"] == "lookahead":
            taken = self._look(*value["value"])
            self._primitives.store(target, taken)
            return
        if value["type"] == "field":
            _, form = self._layout.field(*target["value"])
            if form.variable:
                self._primitives.assign_variable(target, value)
                return
        self._primitives.assign(target, value)

    def _look(self, offset: int, width: int) -> Value:
        """Bits from here on, without taking them."""
        first, end = offset // 8, (offset + width + 7) // 8
        self._need(str(end))
        self._source.line(f"r = o + {end} if r < o + {end} else r")
        after = end * 8 - offset - width
        if end - first == 1:
            code = f"D[o + {first}]" if first else "D[o]"
        elif end - first == 2:
            code = f"(D[o + {first}] << 8 | D[o + {first + 1}])"
        else:
            code = f"int.from_bytes(D[o + {first}:o + {end}], 'big')"
        if after:
            code = f"({code} >> {after})"
        form = Field("", 0, width)
        if offset % 8:
            code = f"({code} & {(1 << width) - 1:#x})"
        return number(code, form)

    def _verify(self, condition: Json, error: Json) -> None:
        test = self._expressions.condition(condition)
        raised = str(error) if isinstance(error, int) else self._expressions.data(error).code
        self._primitives.note_reads()
        with self._source.block(f"if not {test}:"):
            self._source.line(f"F[{self._error_slot}] = {raised}")
            self._source.line("break")

    def _shift(self, size: Any) -> None:
        count = size if isinstance(size, int) else int(size["value"], 16)
        self._need(str(count))
        self._source.line(f"o += {count}")

    def _advance(self, size: Json) -> None:
        bits = self._source.fresh("n")
        code = self._expressions.data(size)
        self._primitives.note_reads()
        if code.low is not None and code.low == code.high and not code.low % 8:
            self._shift(code.low // 8)
            return
        self._source.line(f"{bits} = {code.code}")
        with self._source.block(f"if {bits} % 8:"):
            self._fail("ParserInvalidArgument")
        with self._source.block(f"if {bits} < 0 or o + {bits} // 8 > l:"):
            self._fail("PacketTooShort")
        self._source.line(f"o += {bits} // 8")

    def _primitive(self, primitive: Json) -> None:
        self._primitives.write(primitive)

    # -- transitions

    def _transitions(self, state: Json, depth: int) -> None:
        keys = [self._key(part) for part in state["transition_key"]]
        self._primitives.note_reads()
        codes = [(code, form) for code, form in keys]
        transitions = [(_kind(each), each) for each in state["transitions"]]
        if sum(kind != "default" for kind, _ in transitions) > 1 or any(
            len(code) > 12 for code, _ in codes
        ):
            named = []
            for code, form in codes:
                name = self._source.fresh("k")
                self._source.line(f"{name} = {code}")
                named.append((name, form))
            codes = named
        tests: list[str] = []
        for place, (kind, transition) in enumerate(transitions):
            if kind == "default":
                self._go(transition["next_state"], depth)
                return
            if kind == "hexstr":
                tests.append(self._matches(codes, transition))
            elif kind == "parse_vset":
                tests.append(self._in_set(codes, transition))
            else:
                raise refuse(f"parser state {state['name']!r}", f"unknown transition {kind!r}")
            if any(
                next_kind == kind and following["next_state"] == transition["next_state"]
                for next_kind, following in transitions[place + 1 : place + 2]
            ):
                # A range came as several masks.
                continue
            with self._source.block(f"if {' or '.join(tests)}:"):
                self._go(transition["next_state"], depth)
            tests = []
        self._source.line("break")

    def _key(self, part: Json) -> tuple[str, Field]:
        kind, value = part["type"], part["value"]
        if kind == "lookahead":
            form = Field("", 0, value[1])
            code = self._look(*value).code
        elif kind == "field":
            slot, form = self._layout.field(value[0], value[1])
            self._expressions.reads.add(slot)
            code = f"F[{slot}]"
        elif kind in ("stack_field", "union_stack_field"):
            stacks = self._layout.stacks if kind == "stack_field" else self._layout.union_stacks
            stack = stacks[value[0]]
            element = stack.elements[0]
            header = element.members[value[1]] if isinstance(element, Union) else element
            form = header.type.by_name[value[-1]]
            code = self._expressions.value(part).code
        else:
            raise refuse("transition key", f"unknown type {kind!r}")
        if form.signed:
            code = f"({code} & {(1 << form.width) - 1:#x})"
        return code, form

    def _matches(self, keys: list[tuple[str, Field]], transition: Json) -> str:
        size = sum((form.width + 7) // 8 for _, form in keys)
        value = int(transition["value"], 16)
        every = (1 << 8 * size) - 1
        mask = every if transition.get("mask") is None else int(transition["mask"], 16)
        tests = []
        for code, form in reversed(keys):
            bits = (form.width + 7) // 8 * 8
            own = (1 << form.width) - 1
            part, cover = value & ((1 << bits) - 1), mask & own
            value >>= bits
            mask >>= bits
            if cover == own:
                tests.append(f"{code} == {part:#x}")
            elif cover:
                tests.append(f"{code} & {cover:#x} == {part & cover:#x}")
        return " and ".join(reversed(tests)) or "True"

    def _in_set(self, keys: list[tuple[str, Field]], transition: Json) -> str:
        name = transition["value"]
        if name not in self.vsets:
            raise refuse(f"value set {name!r}", "it is used but not declared")
        mask = None
        if transition.get("mask") is not None:
            mask = _packed(int(transition["mask"], 16), [form.width for _, form in keys])
        local = next((key for key, held in self.used_vsets.items() if held == (name, mask)), None)
        if local is None:
            local = f"vset{len(self.used_vsets)}"
            self.used_vsets[local] = (name, mask)
        code = keys[0][0]
        for other, form in keys[1:]:
            code = f"({code}) << {form.width} | {other}"
        return f"({code}){'' if mask is None else f' & {mask:#x}'} in {local}"


def _kind(transition: Json) -> str:
    """Its type, which older versions of p4c do not tell."""
    kind: str = transition.get("type", "hexstr")
    return "default" if kind == "hexstr" and transition["value"] == "default" else kind


def _packed(value: int, widths: list[int]) -> int:
    """Fields filled to whole bytes each, put together without the filling."""
    packed = shift = 0
    for width in reversed(widths):
        packed |= (value & ((1 << width) - 1)) << shift
        shift += width
        value >>= (width + 7) // 8 * 8
    return packed


_OPERATIONS = frozenset(("extract", "extract_VL", "set", "verify", "shift", "advance", "primitive"))
