"""The deparser as a Python function: checksums, valid headers in their order, payload."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from stackcast.switch.bmv2.calculations import Calculations
from stackcast.switch.bmv2.expressions import Expressions
from stackcast.switch.bmv2.layout import Header, Layout, Stack
from stackcast.switch.bmv2.primitives import Primitives
from stackcast.switch.bmv2.source import PythonSource
from stackcast.switch.bmv2.values import Value, header_value, stored
from stackcast.switch.bmv2.wire import packed, packed_variable

Json = Mapping[str, Any]
_LETTERS = {8: "B", 16: "H", 32: "I", 64: "Q"}
# A stack of fewer elements is written element by element.
_LONG = 8


class Deparsing:
    """Writes the functions' parts that deal with checksums and bytes."""

    def __init__(
        self, config: Json, layout: Layout, source: PythonSource, primitives: Primitives
    ) -> None:
        self._layout = layout
        self._source = source
        self._primitives = primitives
        self._expressions: Expressions = primitives.expressions
        self._calculations: Calculations = primitives.calculations
        self._checksums = config.get("checksums", [])
        self._deparser = config["deparsers"][0]

    def verify(self) -> None:
        """Lines that set ``checksum_error``, for the end of ``parse``."""
        slot = self._layout.slots["standard_metadata.checksum_error"]
        self._source.line(f"F[{slot}] = 0")
        for each in self._checksums:
            if not each.get("verify", True):
                continue
            header = self._layout.header(each["target"][0])
            tests = [] if header.metadata else [f"F[{header.valid}]"]
            if each.get("if_cond") is not None:
                tests.append(self._expressions.condition(each["if_cond"]))
            target, _ = self._layout.field(*each["target"])
            self._primitives.note_reads()
            with self._source.only_if(" and ".join(tests) or None):
                self._note(each)
                code = self._calculations.call(each["calculation"])
                with self._source.block(f"if {code} != F[{target}]:"):
                    self._source.line(f"F[{slot}] = 1")

    def _note(self, checksum: Json) -> None:
        if self._calculations.has_payload(checksum["calculation"]):
            self._source.line("P.impure = True")

    def write(self) -> None:
        """Lines of the body of ``deparse``."""
        line = self._source.line
        line("F = P.fields")
        for each in self._checksums:
            if each.get("update", True):
                self._update(each)
        for primitive in self._deparser.get("primitives", ()):
            self._primitives.write(primitive)
        line("B = b''")
        order = [self._layout.header(name) for name in self._deparser["order"]]
        while order:
            run = self._run(order)
            if run is not None:
                self._emit_stack(run)
                del order[: run.size]
            else:
                self._emit(order.pop(0))
        # A frame is cut where it leaves the switch, not where it is put together to go round.
        line("return B + P.data[P.payload:]")

    def _update(self, checksum: Json) -> None:
        condition = checksum.get("if_cond")
        test = None if condition is None else self._expressions.condition(condition)
        slot, form = self._layout.field(*checksum["target"])
        self._primitives.note_reads()
        with self._source.only_if(test):
            self._note(checksum)
            code = self._calculations.call(checksum["calculation"])
            high = 0xFFFF if form.width >= 16 else None
            value = Value(code, "data", 0, high) if self._is_16(checksum) else Value(code)
            self._source.line(f"F[{slot}] = {stored(value, form)}")

    def _is_16(self, checksum: Json) -> bool:
        return "16" in self._calculations.algorithm(checksum["calculation"])

    def _run(self, order: list[Header]) -> Stack | None:
        """A long stack of one-field headers whose elements come next."""
        for stack in self._layout.stacks.values():
            fields = stack.headers[0].type.fields
            if (
                stack.size >= _LONG
                and stack.headers == order[: stack.size]
                and len(fields) == 1
                and fields[0].width in _LETTERS
                and not fields[0].signed
            ):
                return stack
        return None

    def _emit_stack(self, stack: Stack) -> None:
        end = stack.base + stack.size * stack.stride
        valid = f"F[{stack.base + 1}:{end}:{stack.stride}]"
        values = f"F[{stack.base}:{end}:{stack.stride}]"
        letter = _LETTERS[stack.headers[0].type.fields[0].width]
        packs = [struct.Struct(f">{count}{letter}").pack for count in range(stack.size + 1)]
        name = self._source.constant("packs", (letter, stack.size), packs)
        self._source.line(f"v = {valid}")
        with self._source.block("if 1 in v:"):
            self._source.line(f"v = [*compress({values}, v)]")
            self._source.line(f"B += {name}[len(v)](*v)")

    def _emit(self, header: Header) -> None:
        place = header_value(header).target
        code = packed(self._source, place) if header.type.variable is None else ""
        with self._source.block(f"if {place.valid}:"):
            self._source.line(f"B += {code or packed_variable(place)}")
