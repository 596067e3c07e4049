"""Checksums and hashes of a program as functions ``calculation(P, F)``.

Fields of headers that are not valid are left out of the input, as BMv2 does; the bits that are left
are put together and filled with zeros to whole bytes; then comes the payload, if it is part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stackcast.switch.bmv2.hashes import ALGORITHMS
from stackcast.switch.bmv2.layout import Field, Header, Layout
from stackcast.switch.bmv2.source import PythonSource, refuse

Json = Mapping[str, Any]
_CHECKSUMS = ("csum16", "cksum16")
_PAYLOAD = "P.data[P.payload:] if P.truncate is None else P.data[P.payload:][:P.truncate]"


class Calculations:
    """Writes calculations as they are first used, to ``functions``."""

    def __init__(
        self, config: Json, layout: Layout, source: PythonSource, functions: list[list[str]]
    ) -> None:
        self._calculations = {each["name"]: each for each in config.get("calculations", ())}
        self._layout = layout
        self._source = source
        self._functions = functions
        self._made: dict[str, str] = {}

    def has_payload(self, name: str) -> bool:
        return any(part["type"] == "payload" for part in self._input(name))

    def algorithm(self, name: str) -> str:
        """Returns the hash algorithm, by BMv2's name."""
        return str(self._calculations[name]["algo"])

    def reads(self, name: str) -> set[int]:
        """Slots of the fields in the input."""
        return {
            self._layout.field(*part["value"])[0]
            for part in self._input(name)
            if part["type"] == "field"
        }

    def call(self, name: str) -> str:
        """Returns Python for the result."""
        if name not in self._made:
            self._made[name] = self._source.fresh("calculation")
            head = f"def {self._made[name]}(P, F):"
            with self._source.aside() as lines, self._source.block(head):
                self._write(name)
            self._functions.append(lines)
        return f"{self._made[name]}(P, F)"

    def _input(self, name: str) -> list[Json]:
        if name not in self._calculations:
            raise refuse(f"calculation {name!r}", "it is used but not declared")
        return list(self._calculations[name]["input"])

    def _write(self, name: str) -> None:
        algorithm = self._calculations[name]["algo"]
        if algorithm not in ALGORITHMS:
            raise refuse(f"calculation {name!r}", f"unknown algorithm {algorithm!r}")
        groups = self._groups(name)
        widths = [sum(width for _, _, width in parts) for _, parts in groups]
        fixed = all(form is None or not form.variable for _, ps in groups for _, form, _ in ps)
        if algorithm in _CHECKSUMS and fixed and all(not width % 16 for width in widths):
            self._checksum(groups, self.has_payload(name))
        else:
            self._general(groups, algorithm, self.has_payload(name))

    def _groups(self, name: str) -> list[tuple[Header | None, list[tuple[str, Field | None, int]]]]:
        """Neighbours in the input that are of one header: ``(code, form, bits)`` each."""
        groups: list[tuple[Header | None, list[tuple[str, Field | None, int]]]] = []
        for part in self._input(name):
            kind, value = part["type"], part["value"]
            header: Header | None = None
            parts: list[tuple[str, Field | None, int]] = []
            if kind == "field":
                header = self._layout.header(value[0])
                slot, form = self._layout.field(value[0], value[1])
                parts = [(unsigned(f"F[{slot}]", form), form, form.width)]
            elif kind == "header":
                header = self._layout.header(value)
                for form in header.type.fields:
                    code = unsigned(f"F[{header.base + form.offset}]", form)
                    parts.append((code, form, form.width))
            elif kind == "hexstr":
                width = part["bitwidth"]
                parts = [(str(int(value, 16) & ((1 << width) - 1)), None, width)]
            elif kind == "payload":
                continue
            else:
                raise refuse(f"calculation {name!r}", f"unknown input of type {kind!r}")
            if header is not None and header.metadata:
                header = None
            if groups and groups[-1][0] is header:
                groups[-1][1].extend(parts)
            else:
                groups.append((header, parts))
        return groups

    def _checksum(self, groups: list[Any], payload: bool) -> None:
        """Modulo 0xffff a shift by 16 bits changes nothing, so the numbers can stay small."""
        line = self._source.line
        line("s = 0")
        for header, parts in groups:
            left = sum(width for _, _, width in parts)
            terms = []
            for code, _, width in parts:
                left -= width
                terms += _words(code, width, left)
            with self._source.only_if(None if header is None else f"F[{header.valid}]"):
                line(f"s += {' + '.join(terms) or 0}")
        if payload:
            line(f"b = {_PAYLOAD}")
            line("s += int.from_bytes(b, 'big') << (8 if len(b) & 1 else 0)")
        line("m = s % 65535")
        line("return 65535 - m if m or not s else 0")

    def _general(self, groups: list[Any], algorithm: str, payload: bool) -> None:
        line = self._source.line
        line("x = w = 0")
        for header, parts in groups:
            with self._source.only_if(None if header is None else f"F[{header.valid}]"):
                for code, form, width in parts:
                    bits = str(width)
                    if form is not None and form.variable:
                        slot = int(code[2:-1])
                        bits = f"F[{slot + 1}]"
                    line(f"x = x << {bits} | {code}")
                    line(f"w += {bits}")
        line("b = (x << (-w % 8)).to_bytes((w + 7) // 8, 'big')")
        if payload:
            line(f"b += {_PAYLOAD}")
        name = self._source.constant("hash_", algorithm, ALGORITHMS[algorithm])
        line(f"return {name}(b)")


def unsigned(code: str, form: Field) -> str:
    """Returns the bits of a field as a natural number."""
    return f"({code} & {(1 << form.width) - 1:#x})" if form.signed else code


def _words(code: str, width: int, left: int) -> list[str]:
    """Terms of a sum that is ``code << left`` modulo 0xffff."""
    shift = left % 16
    return [f"({code} << {shift})" if shift else code] if width else []
