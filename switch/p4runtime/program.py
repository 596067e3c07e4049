"""The parts of a BMv2 JSON that the control side must know: tables, defaults, entries, counters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stackcast.switch.bmv2.forms import action_ids
from stackcast.switch.p4runtime.p4info import EXACT, LPM, OPTIONAL, RANGE, TERNARY
from stackcast.switch.p4runtime.refusal import Refusal, invalid
from stackcast.udfs.switches.match import Match, canonical

_KINDS = (EXACT, LPM, TERNARY, RANGE, OPTIONAL)
_VALID = "$valid$"
_MOST_BITS = 1 << 16

ActionCall = tuple[str, tuple[int, ...]]
"""An action by name and the values of its parameters."""


@dataclass(frozen=True)
class OwnEntry:
    """An entry that a program brings along. ``priority``: higher wins, as in P4Runtime."""

    match: tuple[Match, ...]
    call: ActionCall
    priority: int


@dataclass(frozen=True)
class JsonTable:
    """A table. ``keys``: ``(name, kind, bits)``; ``actions``: ``(parameter, bits)`` by name."""

    name: str
    keys: tuple[tuple[str, str, int], ...]
    actions: Mapping[str, tuple[tuple[str, int], ...]]
    size: int
    default: ActionCall | None
    default_constant: bool
    own: tuple[OwnEntry, ...]
    counted: bool


@dataclass(frozen=True)
class JsonProgram:
    """A BMv2 JSON by names. Sizes of arrays are in cells; ``registers``: ``(size, bits)``."""

    tables: Mapping[str, JsonTable]
    counters: Mapping[str, int]
    direct_counters: Mapping[str, str]
    registers: Mapping[str, tuple[int, int]]
    meters: Mapping[str, int]
    digests: frozenset[str]


def read_program(config: bytes) -> JsonProgram:
    """Raises `Refusal` INVALID_ARGUMENT for what is no BMv2 JSON, with the part that is wrong."""
    if not config:
        raise invalid("the config has no device config: it must be the program's BMv2 JSON")
    try:
        program = json.loads(config)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the device config is not valid JSON: {error}") from None
    where = "its top level"
    try:
        widths = _widths(program)
        actions = {action["id"]: action for action in program["actions"]}
        tables = {}
        for pipeline in program["pipelines"]:
            for table in pipeline["tables"]:
                where = f"table {_name(table)!r}"
                tables[_name(table)] = _table(table, actions, widths)
        where = "counters, registers, meters or digests"
        counters = program["counter_arrays"]
        meters = program["meter_arrays"]
        return JsonProgram(
            tables,
            {_name(each): _size(each["size"]) for each in counters if not each.get("is_direct")},
            {_name(each): each["binding"] for each in counters if each.get("is_direct")},
            {
                _name(each): (_size(each["size"]), _bits(each["bitwidth"]))
                for each in program["register_arrays"]
            },
            {_name(each): _size(each["size"]) for each in meters if not each.get("is_direct")},
            frozenset(_name(each) for each in program["learn_lists"]),
        )
    except Refusal:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise invalid(
            f"the device config is not BMv2 JSON: {where} cannot be read ({error!r})"
        ) from None


def _widths(program: Any) -> dict[tuple[str, str], int]:
    """Bits of each field, by header and field; members of stacks are ``name[index]``."""
    types = {
        kind["name"]: {
            # A field of varying length has no width, and cannot be matched.
            field[0]: _bits(field[1])
            for field in kind["fields"]
            if field[1] != "*"
        }
        for kind in program["header_types"]
    }
    return {
        (header["name"], field): bits
        for header in program["headers"]
        for field, bits in {**types[header["header_type"]], _VALID: 1}.items()
    }


def _table(table: Any, actions: Mapping[int, Any], widths: Mapping[Any, int]) -> JsonTable:
    keys = []
    for key in table["key"]:
        kind = key["match_type"]
        if kind not in _KINDS:
            raise invalid(f"table {table['name']!r}: this switch has no {kind!r} match")
        target = tuple(key["target"])
        if target not in widths:
            raise invalid(f"table {table['name']!r}: no header has the field {'.'.join(target)!r}")
        keys.append((key.get("name") or ".".join(target), kind, widths[target]))
    default = table.get("default_entry")
    own = table.get("entries", [])
    ranks = [entry.get("priority", 0) for entry in own]
    ranked = any(kind in (TERNARY, RANGE, OPTIONAL) for _, kind, _ in keys)
    return JsonTable(
        table["name"],
        tuple(keys),
        {
            _name(actions[number]): tuple(
                (_name(param), _bits(param["bitwidth"]))
                for param in actions[number]["runtime_data"]
            )
            for number in action_ids(table, actions.values())
        },
        _size(table["max_size"]),
        _call(default, actions) if default else None,
        bool(default and default.get("action_const")),
        tuple(
            # In the JSON the lowest number wins; the last entry is 1 in P4Runtime.
            _own(entry, keys, actions, max(ranks) + 1 - rank if ranked else 0)
            for entry, rank in zip(own, ranks, strict=True)
        ),
        bool(table.get("with_counters")),
    )


def _call(entry: Any, actions: Mapping[int, Any]) -> ActionCall:
    action = actions[entry["action_id"]]
    return _name(action), tuple(_value(value) for value in entry.get("action_data", []))


def _own(entry: Any, keys: Any, actions: Mapping[int, Any], priority: int) -> OwnEntry:
    match = []
    for (name, kind, bits), given in zip(keys, entry["match_key"], strict=True):
        value = _match(name, kind, bits, given)
        if value is not None:
            match.append(value)
    return OwnEntry(tuple(match), _call(entry["action_entry"], actions), priority)


def _match(name: str, kind: str, bits: int, given: Any) -> Match | None:
    """A match of the JSON, or None if it matches all."""
    full = (1 << bits) - 1
    if kind == RANGE:
        low, high = _value(given["start"]), _value(given["end"])
        matches_all = not low and high == full
        return None if matches_all else Match(name, kind, canonical(low), canonical(high))
    value = _value(given["key"])
    if kind == EXACT:
        return Match(name, kind, canonical(value))
    if kind == LPM:
        length = given["prefix_length"]
        value &= full << bits - length
        return Match(name, kind, canonical(value), prefix_length=length) if length else None
    mask = _value(given["mask"]) & full
    return Match(name, kind, canonical(value & mask), canonical(mask)) if mask else None


def _name(part: Any) -> str:
    name = part["name"]
    if not isinstance(name, str):
        raise ValueError(f"{name!r} is not a name")
    return name


def _size(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a size")
    return value


def _bits(value: Any) -> int:
    if _size(value) > _MOST_BITS:
        raise ValueError(f"{value} bits are too many")
    return int(value)


def _value(text: Any) -> int:
    value = int(text, 16)
    if value < 0:
        raise ValueError(f"{text} is negative")
    return value
