"""The check that a P4Info and a BMv2 JSON are of one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stackcast.switch.p4runtime.p4info import OPTIONAL, TERNARY, P4InfoIndex, Table
from stackcast.switch.p4runtime.program import JsonProgram, JsonTable
from stackcast.switch.p4runtime.refusal import Refusal, invalid

_ARCH = "v1model"


def check_fit(index: P4InfoIndex, program: JsonProgram) -> None:
    """Compare architecture, tables, keys, actions, parameters, sizes, defaults, counters and
    registers by name.

    Raises `Refusal` INVALID_ARGUMENT with the name that does not fit. Tables without a key, and
    tables that only hold entries of the program itself, may be in the JSON alone: p4c makes such.
    """
    # A P4Info that somebody wrote may leave it out.
    arch = index.p4info.pkg_info.arch
    if arch and arch != _ARCH:
        raise invalid(f"the P4Info is for architecture {arch!r}, but this switch runs {_ARCH!r}")
    for table in index.tables.values():
        if table.name not in program.tables:
            raise _lacks("JSON", f"table {table.name!r}")
        _check_table(table, program.tables[table.name])
    for name, other in program.tables.items():
        if other.keys and not other.own and name not in index.tables_by_name:
            raise _lacks("P4Info", f"table {name!r}")
    counters = {each.name: each.size for each in index.counters.values()}
    _check_sizes("counter", counters, program.counters)
    registers = {each.name: (each.size, each.bits) for each in index.registers.values()}
    for name in registers.keys() & program.registers.keys():
        bits, other_bits = registers[name][1], program.registers[name][1]
        if bits != other_bits:
            raise _differs(f"register {name!r}", f"{bits} bits", f"{other_bits}")
    _check_sizes(
        "register",
        {name: size for name, (size, _) in registers.items()},
        {name: size for name, (size, _) in program.registers.items()},
    )
    meters = {each.preamble.name: each.size for each in index.p4info.meters}
    _check_sizes("meter", meters, program.meters)
    for digest in index.p4info.digests:
        if digest.preamble.name not in program.digests:
            raise _lacks("JSON", f"digest {digest.preamble.name!r}")
    counted = {table.counted: table.name for table in index.tables.values() if table.counted}
    for name in sorted(counted.keys() | program.direct_counters.keys()):
        _check_names("direct counter", name, counted, program.direct_counters)
        if counted[name] != program.direct_counters[name]:
            raise _differs(
                f"direct counter {name!r}",
                f"of table {counted[name]!r}",
                f"of {program.direct_counters[name]!r}",
            )


def _check_table(table: Table, other: JsonTable) -> None:
    what = f"table {table.name!r}"
    fields = {field.name: field for field in table.fields}
    keys = {name: (kind, bits) for name, kind, bits in other.keys}
    for name in [*fields, *keys]:
        _check_names(f"{what}: match field", name, fields, keys)
        kind, bits = keys[name]
        field = fields[name]
        # p4c writes an optional match as a ternary one into the JSON.
        if field.kind != kind and (field.kind, kind) != (OPTIONAL, TERNARY):
            raise _differs(f"{what}, match field {name!r}", field.kind, kind)
        if field.bits != bits:
            raise _differs(f"{what}, match field {name!r}", f"{field.bits} bits", f"{bits}")
    if list(fields) != list(keys):
        raise _differs(what, f"matched by {list(fields)}", f"by {list(keys)}")
    actions = {action.name: action for action in table.actions.values()}
    for name in [*actions, *other.actions]:
        _check_names(f"{what}: action", name, actions, other.actions)
        params = tuple((param.name, param.bits) for param in actions[name].params)
        if params != other.actions[name]:
            raise _differs(
                f"{what}, action {name!r}",
                f"called with {_signature(params)}",
                f"with {_signature(other.actions[name])}",
            )
    if other.default is not None and table.constant_default != other.default_constant:
        words = {True: "constant", False: "free to change"}
        raise _differs(
            f"the default action of {what}",
            words[table.constant_default],
            words[other.default_constant],
        )
    if bool(table.counted) != other.counted:
        words = {True: "with a direct counter", False: "without"}
        raise _differs(what, words[bool(table.counted)], words[other.counted])
    if (table.constant or table.started) and table.started != bool(other.own):
        words = {True: "with entries of its own", False: "without"}
        raise _differs(what, words[table.started], words[bool(other.own)])
    # Where a program brings entries along, p4c writes their count into the JSON as the size.
    if not other.own and table.size != other.size:
        raise _differs(what, f"of {table.size} entries", f"of {other.size}")


def _signature(params: tuple[tuple[str, int], ...]) -> str:
    return "(" + ", ".join(f"{name}: {bits} bits" for name, bits in params) + ")"


def _check_sizes(what: str, known: Mapping[str, int], other: Mapping[str, int]) -> None:
    for name in sorted(known.keys() | other.keys()):
        _check_names(what, name, known, other)
        if known[name] != other[name]:
            raise _differs(f"{what} {name!r}", f"of {known[name]} cells", f"of {other[name]}")


def _check_names(what: str, name: str, known: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    if name not in known:
        raise _lacks("P4Info", f"{what} {name!r}")
    if name not in other:
        raise _lacks("JSON", f"{what} {name!r}")


def _lacks(where: str, what: str) -> Refusal:
    return invalid(f"P4Info and JSON do not match: {what} is missing in the {where}")


def _differs(what: str, one: str, other: str) -> Refusal:
    return invalid(
        f"P4Info and JSON do not match: {what} is {one} in the P4Info, but {other} in the JSON"
    )
