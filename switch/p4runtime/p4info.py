"""P4Info as a P4Runtime server needs it: tables, actions, counters and registers by id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stackcast.schemas.p4runtime import p4info_pb2
from stackcast.switch.p4runtime.refusal import invalid, unimplemented

EXACT, LPM, TERNARY, RANGE, OPTIONAL = "exact", "lpm", "ternary", "range", "optional"
_KINDS = {
    p4info_pb2.MatchField.EXACT: EXACT,
    p4info_pb2.MatchField.LPM: LPM,
    p4info_pb2.MatchField.TERNARY: TERNARY,
    p4info_pb2.MatchField.RANGE: RANGE,
    p4info_pb2.MatchField.OPTIONAL: OPTIONAL,
}
_ROLE = re.compile(r'@p4runtime_role\("([^"]*)"\)')
_RANKED = frozenset({TERNARY, RANGE, OPTIONAL})
# A prefix length is one byte in an entry's key.
_WIDEST_LPM = 255


@dataclass(frozen=True)
class Parameter:
    """A parameter of an action; ``bits`` is its width."""

    id: int
    name: str
    bits: int


@dataclass(frozen=True)
class Action:
    """An action and its parameters."""

    id: int
    name: str
    params: tuple[Parameter, ...]


@dataclass(frozen=True)
class Field:
    """A match field: ``kind`` is one of EXACT, LPM, TERNARY, RANGE, OPTIONAL."""

    id: int
    name: str
    kind: str
    bits: int


@dataclass(frozen=True)
class Table:
    """A table. ``scopes``: the ``ActionRef.Scope`` of each action that it may have, by id.

    ``constant``: its entries are the program's own; ``constant_default``: so is its default action.
    ``counted``: name of its direct counter, or empty. ``role``: whose clients write it beside
    those of the default role, or empty.
    """

    id: int
    name: str
    fields: tuple[Field, ...]
    actions: Mapping[int, Action]
    scopes: Mapping[int, int]
    size: int
    constant: bool
    constant_default: bool
    started: bool
    counted: str
    metered: bool
    ages: bool
    role: str

    @property
    def ranked(self) -> bool:
        """True if its entries need a priority."""
        return any(field.kind in _RANKED for field in self.fields)


@dataclass(frozen=True)
class Cells:
    """An array of counters or registers. ``bits``: width of a register, 0 for counters."""

    id: int
    name: str
    size: int
    bits: int = 0


class P4InfoIndex:
    """A P4Info by ids and by names.

    ``roles``: those that a table is of. ``packet_in``, ``packet_out``: fields of the headers
    between the program and its controller; none where it has no such header.

    Raises `Refusal` with the name that is wrong: INVALID_ARGUMENT if an id or a name comes twice or
    refers to nothing, UNIMPLEMENTED for what this server cannot serve: other kinds of match, action
    profiles, translated types, registers that are no ``bit<W>``.
    """

    def __init__(self, p4info: p4info_pb2.P4Info) -> None:
        self.p4info = p4info
        self._types = p4info.type_info.new_types
        self.actions = _by_id("action", (self._action(each) for each in p4info.actions))
        counted = {each.direct_table_id: each.preamble.name for each in p4info.direct_counters}
        metered = {each.direct_table_id for each in p4info.direct_meters}
        self.tables = _by_id(
            "table",
            (
                self._table(each, counted.get(each.preamble.id, ""), each.preamble.id in metered)
                for each in p4info.tables
            ),
        )
        for number, name in counted.items():
            if number not in self.tables:
                raise invalid(
                    f"direct counter {name!r} belongs to table {number:#x}, which is missing"
                )
        self.counters = _by_id("counter", (self._cells(each) for each in p4info.counters))
        self.registers = _by_id("register", (self._register(each) for each in p4info.registers))
        self.roles = frozenset(table.role for table in self.tables.values() if table.role)
        headers = {each.preamble.name: each for each in p4info.controller_packet_metadata}
        self.packet_in = _header(headers.get("packet_in"))
        self.packet_out = _header(headers.get("packet_out"))
        self.tables_by_name = {table.name: table for table in self.tables.values()}

    def table(self, number: int) -> Table:
        """Returns the table of this id; `Refusal` if there is none."""
        return _found(self.tables, number, "table")

    def counter(self, number: int) -> Cells:
        """Returns the counter of this id; `Refusal` if there is none."""
        return _found(self.counters, number, "counter")

    def register(self, number: int) -> Cells:
        """Returns the register array of this id; `Refusal` if there is none."""
        return _found(self.registers, number, "register")

    def _action(self, action: Any) -> Action:
        name = action.preamble.name
        for param in action.params:
            self._untranslated(param.type_name.name, f"parameter {param.name!r} of action {name!r}")
        params = tuple(Parameter(each.id, each.name, each.bitwidth) for each in action.params)
        _no_twins(f"parameter of action {name!r}", params)
        return Action(action.preamble.id, name, params)

    def _table(self, table: Any, counted: str, metered: bool) -> Table:
        name = table.preamble.name
        if table.implementation_id:
            raise unimplemented(
                f"table {name!r} has an action profile, which this switch does not support"
            )
        fields = tuple(self._field(name, field) for field in table.match_fields)
        _no_twins(f"match field of table {name!r}", fields)
        for reference in table.action_refs:
            if reference.id not in self.actions:
                raise invalid(
                    f"table {name!r} refers to action {reference.id:#x}, which is not in the P4Info"
                )
        return Table(
            table.preamble.id,
            name,
            fields,
            {reference.id: self.actions[reference.id] for reference in table.action_refs},
            {reference.id: reference.scope for reference in table.action_refs},
            table.size,
            table.is_const_table,
            bool(table.const_default_action_id),
            table.has_initial_entries,
            counted,
            metered,
            table.idle_timeout_behavior != p4info_pb2.Table.NO_TIMEOUT,
            _role(table.preamble.annotations),
        )

    def _field(self, table: str, field: Any) -> Field:
        what = f"match field {field.name!r} of table {table!r}"
        kind = _KINDS.get(field.match_type) if field.WhichOneof("match") == "match_type" else None
        if kind is None:
            raise unimplemented(f"{what} has a match kind that this switch does not support")
        self._untranslated(field.type_name.name, what)
        if kind == LPM and field.bitwidth > _WIDEST_LPM:
            raise unimplemented(f"{what}: a prefix of {field.bitwidth} bits is too long")
        return Field(field.id, field.name, kind, field.bitwidth)

    def _untranslated(self, type_name: str, what: str) -> None:
        # Asked first, as to read a map of protobuf at a missing key adds the key.
        if type_name not in self._types:
            return
        if self._types[type_name].WhichOneof("representation") == "translated_type":
            raise unimplemented(f"{what} has the translated type {type_name!r}")

    @staticmethod
    def _cells(counter: Any) -> Cells:
        return Cells(counter.preamble.id, counter.preamble.name, counter.size)

    def _register(self, register: Any) -> Cells:
        name, spec = register.preamble.name, register.type_spec
        for _ in self._types:  # a chain of names is no longer, unless it goes in a circle
            if spec.WhichOneof("type_spec") == "new_type" and spec.new_type.name in self._types:
                spec = self._types[spec.new_type.name].original_type
        if spec.WhichOneof("type_spec") != "bitstring" or not spec.bitstring.HasField("bit"):
            raise unimplemented(f"register {name!r} is not an array of bit<W>")
        return Cells(register.preamble.id, name, register.size, spec.bitstring.bit.bitwidth)


def _role(annotations: Iterable[str]) -> str:
    found = (_ROLE.fullmatch(each) for each in annotations)
    return next((match[1] for match in found if match), "")


def _header(header: Any) -> tuple[Parameter, ...]:
    """The fields of a header between program and controller; none without one."""
    if header is None:
        return ()
    name = header.preamble.name
    fields = tuple(Parameter(each.id, each.name, each.bitwidth) for each in header.metadata)
    _no_twins(f"metadata of {name!r}", fields)
    if sum(field.bits for field in fields) % 8:
        raise invalid(f"the metadata of {name!r} do not add up to whole bytes")
    return fields


def _by_id(what: str, parts: Iterable[Any]) -> dict[int, Any]:
    parts = tuple(parts)
    _no_twins(what, parts)
    return {part.id: part for part in parts}


def _no_twins(what: str, parts: tuple[Any, ...]) -> None:
    ids: dict[int, str] = {}
    names: set[str] = set()
    for part in parts:
        if part.id in ids:
            raise invalid(f"{what} {part.name!r} has the id of {ids[part.id]!r}: {part.id:#x}")
        if part.name in names:
            raise invalid(f"{what} {part.name!r} occurs twice")
        ids[part.id] = part.name
        names.add(part.name)


def _found(known: Mapping[int, Any], number: int, what: str) -> Any:
    if number not in known:
        raise invalid(f"{what} with id {number:#x} does not exist")
    return known[number]
