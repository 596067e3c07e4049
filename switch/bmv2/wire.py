"""Headers from and to bytes, as Python over `struct`: what is read and written as one unit."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from stackcast.switch.bmv2.calculations import unsigned
from stackcast.switch.bmv2.layout import Field, HeaderType
from stackcast.switch.bmv2.source import PythonSource
from stackcast.switch.bmv2.values import Place, Value, stored

_UNITS = {8: "B", 16: "H", 32: "I", 64: "Q"}
# Two units that together are one field.
_PAIRS = {24: (8, 16), 40: (8, 32), 48: (16, 32), 80: (16, 64), 96: (32, 64), 128: (64, 64)}


@dataclass(frozen=True)
class Group:
    """Neighbouring fields that together begin and end at a byte."""

    fields: tuple[Field, ...]
    width: int


def groups(type_: HeaderType) -> list[Group]:
    """Returns the fields of a header without a variable part, byte by byte."""
    found: list[Group] = []
    open_: list[Field] = []
    width = 0
    for form in type_.fields:
        if not form.width:
            continue
        open_.append(form)
        width += form.width
        if not width % 8:
            found.append(Group(tuple(open_), width))
            open_, width = [], 0
    if open_:
        found.append(Group(tuple(open_), width))
    return found


def read_header(source: PythonSource, place: Place, at: str) -> None:
    """Write the lines that fill a header's fields from ``D`` at ``at``."""
    parts = groups(place.type)
    if len(parts) == 1 and parts[0].width <= 16:
        code = f"D[{at}]" if parts[0].width == 8 else f"D[{at}] << 8 | D[{at} + 1]"
        _split(source, place, parts[0], code)
        return
    letters = ""
    targets: list[str] = []
    later: list[tuple[Group, str]] = []
    for group in parts:
        alone = len(group.fields) == 1 and not group.fields[0].signed
        if group.width in _UNITS:
            letters += _UNITS[group.width]
            if alone:
                targets.append(place.slot(group.fields[0].offset))
                continue
            name = source.fresh("n")
            targets.append(name)
            later.append((group, name))
        elif group.width in _PAIRS:
            high, low = _PAIRS[group.width]
            letters += _UNITS[high] + _UNITS[low]
            names = [source.fresh("n"), source.fresh("n")]
            targets += names
            later.append((group, f"{names[0]} << {low} | {names[1]}"))
        else:
            letters += f"{group.width // 8}s"
            name = source.fresh("n")
            targets.append(name)
            later.append((group, f"int.from_bytes({name}, 'big')"))
    unpack = source.constant("unpack", letters, struct.Struct(f">{letters}").unpack_from)
    source.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {unpack}(D, {at})")
    for group, code in later:
        _split(source, place, group, code)


def _split(source: PythonSource, place: Place, group: Group, code: str) -> None:
    """Write the fields of a group from the number that holds them all."""
    if len(group.fields) > 1 and not code.isidentifier():
        name = source.fresh("n")
        source.line(f"{name} = {code}")
        code = name
    left = group.width
    for form in group.fields:
        left -= form.width
        raw = f"{code} >> {left}" if left else code
        if left + form.width < group.width:
            raw = f"({raw}) & {(1 << form.width) - 1:#x}" if left else f"{raw} & {mask(form)}"
        if form.signed:
            raw = stored(Value(f"({raw})"), form)
        source.line(f"{place.slot(form.offset)} = {raw}")


def mask(form: Field) -> str:
    return hex((1 << form.width) - 1)


def packed(source: PythonSource, place: Place) -> str:
    """Returns Python for the bytes of a header without a variable part."""
    letters = ""
    values: list[str] = []
    for group in groups(place.type):
        codes = [(unsigned(place.slot(form.offset), form), form) for form in group.fields]
        left = group.width
        terms = []
        for code, form in codes:
            left -= form.width
            terms.append(f"{code} << {left}" if left else code)
        whole = " | ".join(terms)
        if group.width in _UNITS:
            letters += _UNITS[group.width]
            values.append(whole)
        elif group.width in _PAIRS:
            high, low = _PAIRS[group.width]
            letters += _UNITS[high] + _UNITS[low]
            values += [f"({whole}) >> {low}", f"({whole}) & {(1 << low) - 1:#x}"]
        else:
            letters += f"{group.width // 8}s"
            values.append(f"({whole}).to_bytes({group.width // 8}, 'big')")
    if not values:
        return "b''"
    pack = source.constant("pack", letters, struct.Struct(f">{letters}").pack)
    return f"{pack}({', '.join(values)})"


def packed_variable(place: Place) -> str:
    """Returns Python for the bytes of a header with a variable part."""
    code = ""
    bits = "0"
    for form in place.type.fields:
        value = unsigned(place.slot(form.offset), form)
        width = place.slot(form.offset + 1) if form.variable else str(form.width)
        code = f"({code} << {width} | {value})" if code else value
        bits = width if bits == "0" else f"{bits} + {width}"
    return f"({code}).to_bytes(({bits}) // 8, 'big')"
