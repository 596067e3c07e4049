"""P4Info as a P4Runtime server needs it: entries of the wire checked, and told by their names."""

from __future__ import annotations

from typing import Any

from google.rpc import code_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2

from lab.switch import TableForm
from udfs.switches.entry import SwitchEntry, canonical


class Refusal(Exception):  # noqa: N818 - an answer to a client, not a fault of the server
    """Why a request or an update is refused: a ``google.rpc.Code`` and words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class P4InfoIndex:
    """Tables, actions and fields of a P4Info by id.

    Raises :class:`Refusal` ``UNIMPLEMENTED`` for a match that is not exact, and
    ``INVALID_ARGUMENT`` for a table that refers to an action which is not there.
    """

    def __init__(self, p4info: p4info_pb2.P4Info) -> None:
        self.p4info = p4info
        self._actions = {action.preamble.id: action for action in p4info.actions}
        self.tables = {table.preamble.id: table for table in p4info.tables}
        for table in p4info.tables:
            for field in table.match_fields:
                if field.match_type != p4info_pb2.MatchField.EXACT:
                    raise Refusal(
                        code_pb2.UNIMPLEMENTED,
                        f"table {table.preamble.name!r}: field {field.name!r} is not exact",
                    )
            for reference in table.action_refs:
                if reference.id not in self._actions:
                    raise _invalid(
                        f"table {table.preamble.name!r} refers to action {reference.id:#x}, "
                        "which the P4Info lacks"
                    )

    def program(self) -> dict[str, TableForm]:
        """The tables by name, as a pipeline is told of them."""
        return {
            table.preamble.name: TableForm(
                {field.name: field.bitwidth for field in table.match_fields},
                {
                    self._actions[reference.id].preamble.name: {
                        param.name: param.bitwidth for param in self._actions[reference.id].params
                    }
                    for reference in table.action_refs
                },
            )
            for table in self.tables.values()
        }

    def read_entry(
        self, switch: str, wire: p4runtime_pb2.TableEntry, with_action: bool
    ) -> tuple[SwitchEntry, p4runtime_pb2.TableEntry]:
        """A table entry of the wire, by names and in canonical bytes.

        ``with_action`` is False where only the key counts: DELETE, and READ of one entry.
        Raises :class:`Refusal` naming the part that is wrong.
        """
        table = self.table(wire.table_id)
        name = table.preamble.name
        for option in ("meter_config", "counter_data", "time_since_last_hit"):
            if wire.HasField(option):
                raise _invalid(f"table {name!r} has no {option}")
        if wire.idle_timeout_ns:
            raise _invalid(f"table {name!r} has no idle timeout")
        if wire.is_default_action:
            raise _invalid(f"the default action of table {name!r} is constant")
        if wire.priority:
            raise _invalid(f"table {name!r} has exact matches only: priority must be 0")
        stored = p4runtime_pb2.TableEntry(
            table_id=wire.table_id,
            controller_metadata=wire.controller_metadata,
            metadata=wire.metadata,
        )
        match = self._match(table, wire, stored)
        action = ""
        params: list[tuple[str, bytes]] = []
        if with_action:
            action, params = self._action(table, wire, stored)
        return SwitchEntry(switch, name, tuple(match), action, tuple(params)), stored

    def table(self, number: int) -> Any:
        """The table of this id; :class:`Refusal` if there is none."""
        if number not in self.tables:
            raise _invalid(f"no table has the id {number:#x}")
        return self.tables[number]

    def _match(
        self, table: Any, wire: p4runtime_pb2.TableEntry, stored: p4runtime_pb2.TableEntry
    ) -> list[tuple[str, str, bytes]]:
        name = table.preamble.name
        given = {field.field_id: field for field in wire.match}
        if len(given) < len(wire.match):
            raise _invalid(f"table {name!r}: a match field comes twice")
        if unknown := given.keys() - {field.id for field in table.match_fields}:
            raise _invalid(f"table {name!r} has no match field of id {min(unknown)}")
        match = []
        for field in table.match_fields:
            what = f"table {name!r}, match field {field.name!r}"
            if field.id not in given:
                raise _invalid(f"{what} is missing: an exact match cannot be left out")
            if given[field.id].WhichOneof("field_match_type") != "exact":
                raise _invalid(f"{what} must be exact")
            value = _value(given[field.id].exact.value, field.bitwidth, what)
            match.append((field.name, "exact", value))
            stored.match.add(field_id=field.id).exact.value = value
        return match

    def _action(
        self, table: Any, wire: p4runtime_pb2.TableEntry, stored: p4runtime_pb2.TableEntry
    ) -> tuple[str, list[tuple[str, bytes]]]:
        name = table.preamble.name
        if wire.action.WhichOneof("type") != "action":
            raise _invalid(f"table {name!r}: an action is needed")
        number = wire.action.action.action_id
        allowed = {
            reference.id
            for reference in table.action_refs
            if reference.scope != p4info_pb2.ActionRef.DEFAULT_ONLY
        }
        if number not in allowed:
            raise _invalid(f"table {name!r} has no action of id {number:#x} for its entries")
        action = self._actions[number]
        given = {param.param_id: param for param in wire.action.action.params}
        if len(given) < len(wire.action.action.params):
            raise _invalid(f"action {action.preamble.name!r}: a parameter comes twice")
        if unknown := given.keys() - {param.id for param in action.params}:
            raise _invalid(f"action {action.preamble.name!r} has no parameter {min(unknown)}")
        stored.action.action.action_id = number
        params = []
        for param in action.params:
            what = f"action {action.preamble.name!r}, parameter {param.name!r}"
            if param.id not in given:
                raise _invalid(f"{what} is missing")
            value = _value(given[param.id].value, param.bitwidth, what)
            params.append((param.name, value))
            stored.action.action.params.add(param_id=param.id, value=value)
        return action.preamble.name, params


def _value(given: bytes, bits: int, what: str) -> bytes:
    """Canonical bytes of a value that must fit ``bits``."""
    if not given:
        raise _invalid(f"{what}: a value needs at least one byte")
    number = int.from_bytes(given)
    if number >> bits:
        raise Refusal(code_pb2.OUT_OF_RANGE, f"{what}: {number:#x} does not fit {bits} bits")
    return canonical(number)


def _invalid(message: str) -> Refusal:
    return Refusal(code_pb2.INVALID_ARGUMENT, message)
