"""Table entries of P4Runtime, checked, to and from entries by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2

from stackcast.schemas.p4runtime import p4info_pb2, p4runtime_pb2
from stackcast.switch.p4runtime.p4info import (
    EXACT,
    LPM,
    OPTIONAL,
    RANGE,
    TERNARY,
    Action,
    Field,
    Table,
)
from stackcast.switch.p4runtime.refusal import Refusal, invalid, number, unimplemented
from stackcast.udfs.switches.entry import SwitchEntry, default_entry, is_default
from stackcast.udfs.switches.match import Match, canonical

_Params = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """An entry that a switch holds: by name, and as a Read gives it back (canonical, no counters).

    ``entity``: the Entity of a Read. ``wire``: the TableEntry or PacketReplicationEngineEntry in
    it. ``own``: an entry of the program itself.
    """

    entry: SwitchEntry
    entity: Any
    wire: Any
    own: bool = False


def key_entry(switch: str, table: Table, wire: Any) -> HeldEntry:
    """Table, match and priority alone; all else of ``wire`` is ignored.

    Raises `Refusal` naming the field that breaks a rule of P4Runtime 9.1.1: don't-care fields are
    left out, bits that do not count are 0, a priority is given exactly where it counts.
    """
    entity = p4runtime_pb2.Entity()
    stored = entity.table_entry
    stored.table_id = table.id
    if wire.is_default_action:
        if wire.match or wire.priority:
            raise invalid(f"table {table.name!r}: a default action has neither match nor priority")
        stored.is_default_action = True
        return HeldEntry(default_entry(switch, table.name, ""), entity, stored)
    match = tuple(_match(table, wire, stored))
    if table.ranked and wire.priority <= 0:
        raise invalid(
            f"table {table.name!r} has ternary, range or optional matches: priority must be 1 "
            f"or more, but is {wire.priority}"
        )
    if not table.ranked and wire.priority:
        raise invalid(f"table {table.name!r} has only exact and lpm matches: priority must be 0")
    stored.priority = wire.priority
    return HeldEntry(SwitchEntry(switch, table.name, match, "", (), wire.priority), entity, stored)


def match_of(table: Table, wire: Any) -> tuple[tuple[str, str, bytes], ...]:
    """Returns the match alone, checked as by `key_entry`, as `SwitchEntry.match` has it."""
    return tuple(_match(table, wire, p4runtime_pb2.TableEntry()))


def whole_entry(
    held: HeldEntry, table: Table, wire: Any, kept: HeldEntry | None = None
) -> HeldEntry:
    """Returns an entry with its action, for INSERT and MODIFY.

    Parameters
    ----------
    held: what `key_entry` made of ``wire``; it is used up.
    kept: what the switch holds under this key; its action stays where ``wire`` has none.
    """
    _check_options(table, wire)
    stored = held.wire
    stored.controller_metadata = wire.controller_metadata
    stored.metadata = wire.metadata
    if not wire.HasField("action") and kept is not None:
        action, params = kept.entry.action, kept.entry.params
        stored.action.CopyFrom(kept.wire.action)
    else:
        action, params = _action(table, wire, stored)
    key = held.entry
    entry = SwitchEntry(key.switch, table.name, key.match, action, params, key.priority)
    return HeldEntry(entry, held.entity, stored)


def from_names(table: Table, entry: SwitchEntry) -> HeldEntry:
    """Returns an entry by name as one to hold. Raises `Refusal` naming what the table lacks."""
    entity = p4runtime_pb2.Entity()
    wire = entity.table_entry
    wire.table_id, wire.priority = table.id, entry.priority
    if is_default(entry):
        wire.is_default_action = True
    else:
        fields = {field.name: field for field in table.fields}
        for name, kind, joined in entry.match:
            field = fields.get(name)
            if field is None or field.kind != kind:
                raise invalid(f"table {table.name!r} has no {kind} match field {name!r}")
            _add_match(wire, field, Match.parted(name, kind, joined))
    action = next((each for each in table.actions.values() if each.name == entry.action), None)
    if action is None:
        raise invalid(f"table {table.name!r} has no action {entry.action!r}")
    wire.action.action.action_id = action.id
    values = dict(entry.params)
    for param in action.params:
        if param.name in values:
            wire.action.action.params.add(param_id=param.id, value=values.pop(param.name))
    if values:
        raise invalid(f"action {action.name!r} has no parameter {min(values)!r}")
    return HeldEntry(entry, entity, wire)


def _check_options(table: Table, wire: Any) -> None:
    if wire.is_const:
        raise invalid(f"table {table.name!r}: only entries of the program itself are constant")
    if wire.HasField("meter_config") or wire.HasField("meter_counter_data"):
        if not table.metered:
            raise invalid(f"table {table.name!r} has no direct meter")
        raise unimplemented(f"table {table.name!r}: this switch's meters cannot be configured")
    if wire.HasField("counter_data") and not table.counted:
        raise invalid(f"table {table.name!r} has no direct counter")
    if wire.idle_timeout_ns or wire.HasField("time_since_last_hit"):
        if not table.ages or wire.is_default_action:
            raise invalid(f"table {table.name!r} does not support idle timeouts")
        raise unimplemented(f"table {table.name!r}: this switch's entries do not age")


def _match(table: Table, wire: Any, stored: Any) -> list[tuple[str, str, bytes]]:
    given = {field.field_id: field for field in wire.match}
    if len(given) < len(wire.match):
        raise invalid(f"table {table.name!r}: a match field occurs twice")
    if unknown := given.keys() - {field.id for field in table.fields}:
        raise invalid(f"table {table.name!r} has no match field with id {min(unknown)}")
    match = []
    for field in table.fields:
        what = f"table {table.name!r}, match field {field.name!r}"
        if field.id not in given:
            if field.kind == EXACT:
                raise invalid(f"{what} is missing: an exact match cannot be omitted")
            continue
        if given[field.id].WhichOneof("field_match_type") != field.kind:
            raise invalid(f"{what} must be {field.kind}")
        value = _READERS[field.kind](getattr(given[field.id], field.kind), field, what)
        match.append((field.name, field.kind, value.joined()))
        _add_match(stored, field, value)
    return match


def _exact(given: Any, field: Field, what: str) -> Match:
    return Match(field.name, field.kind, canonical(number(given.value, field.bits, what)))


def _lpm(given: Any, field: Field, what: str) -> Match:
    value, length = number(given.value, field.bits, what), given.prefix_len
    if not 0 < length <= field.bits:
        hint = ": omit the field to match all values" if length == 0 else ""
        raise invalid(f"{what}: a prefix has 1 to {field.bits} bits, not {length}{hint}")
    if value & ((1 << field.bits - length) - 1):
        raise invalid(f"{what}: {value:#x} has bits beyond its prefix of {length}; they must be 0")
    return Match(field.name, LPM, canonical(value), prefix_length=length)


def _ternary(given: Any, field: Field, what: str) -> Match:
    value = number(given.value, field.bits, what)
    mask = number(given.mask, field.bits, f"{what}, mask")
    if not mask:
        raise invalid(f"{what}: omit the field to match all values, instead of a mask of 0")
    if value & ~mask:
        raise invalid(f"{what}: {value:#x} has bits that the mask {mask:#x} hides; they must be 0")
    return Match(field.name, TERNARY, canonical(value), canonical(mask))


def _range(given: Any, field: Field, what: str) -> Match:
    low = number(given.low, field.bits, f"{what}, low end")
    high = number(given.high, field.bits, f"{what}, high end")
    if low > high:
        raise invalid(f"{what}: low end {low:#x} is above high end {high:#x}")
    if not low and high == (1 << field.bits) - 1:
        raise invalid(f"{what}: omit the field to match all values, instead of a full range")
    return Match(field.name, RANGE, canonical(low), canonical(high))


_READERS = {EXACT: _exact, OPTIONAL: _exact, LPM: _lpm, TERNARY: _ternary, RANGE: _range}


def _add_match(wire: Any, field: Field, value: Match) -> None:
    match = wire.match.add(field_id=field.id)
    if field.kind == RANGE:
        match.range.low, match.range.high = value.value, value.other
        return
    part = getattr(match, field.kind)
    part.value = value.value
    if field.kind == LPM:
        part.prefix_len = value.prefix_length
    elif field.kind == TERNARY:
        part.mask = value.other


def _action(table: Table, wire: Any, stored: Any) -> tuple[str, _Params]:
    kind = wire.action.WhichOneof("type")
    if kind is None:
        raise invalid(f"table {table.name!r}: an action is required")
    if kind != "action":
        raise invalid(f"table {table.name!r} takes an action, not {kind}")
    chosen = wire.action.action
    action = table.actions.get(chosen.action_id)
    if action is None:
        raise invalid(f"table {table.name!r} has no action with id {chosen.action_id:#x}")
    scope = table.scopes[action.id]
    default = bool(wire.is_default_action)
    banned = p4info_pb2.ActionRef.TABLE_ONLY if default else p4info_pb2.ActionRef.DEFAULT_ONLY
    if scope == banned:
        place = "entries" if default else "the default action"
        raise Refusal(
            code_pb2.PERMISSION_DENIED,
            f"table {table.name!r} permits action {action.name!r} only for {place}",
        )
    return action.name, _parameters(action, chosen, stored.action.action)


def _parameters(action: Action, chosen: Any, stored: Any) -> _Params:
    given: Mapping[int, Any] = {param.param_id: param for param in chosen.params}
    if len(given) < len(chosen.params):
        raise invalid(f"action {action.name!r}: a parameter occurs twice")
    if unknown := given.keys() - {param.id for param in action.params}:
        raise invalid(f"action {action.name!r} has no parameter with id {min(unknown)}")
    stored.action_id = action.id
    params = []
    for param in action.params:
        what = f"action {action.name!r}, parameter {param.name!r}"
        if param.id not in given:
            raise invalid(f"{what} is missing")
        value = canonical(number(given[param.id].value, param.bits, what))
        params.append((param.name, value))
        stored.params.add(param_id=param.id, value=value)
    return tuple(params)
