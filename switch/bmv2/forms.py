"""The forms of tables in a BMv2 JSON: their match fields, their actions, and rows for them.

The rows of a table come from its ``const entries`` or from `SwitchEntry` values; both are checked
here and brought into the form of `stackcast.switch.bmv2.tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stackcast.switch.bmv2.source import reading, refuse
from stackcast.switch.bmv2.tables import Condition, ExactTable, RankedTable
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.match import Match

Json = Mapping[str, Any]
_KINDS = ("exact", "lpm", "ternary", "range", "optional", "valid")


@dataclass(frozen=True)
class KeyField:
    name: str
    kind: str
    width: int


@dataclass(frozen=True)
class ActionForm:
    """``params``: name and width of each."""

    number: int
    name: str
    params: tuple[tuple[str, int], ...]

    def row(self, values: Mapping[str, int], counted: bool) -> tuple[Any, ...]:
        """Returns a row of a table that calls this action."""
        data = tuple(values[name] for name, _ in self.params)
        return (self.number, *data, [0, 0]) if counted else (self.number, *data)


@dataclass(frozen=True)
class TableForm:
    """``constant``: its entries are in the program, nobody may change them. ``default``: row of
    the default action, ``(-1,)`` if there is none; ``default_constant``: it stays."""

    number: int
    name: str
    key: tuple[KeyField, ...]
    match_type: str
    actions: Mapping[str, ActionForm]
    counted: bool
    constant: bool
    default: tuple[Any, ...]
    default_constant: bool
    entries: tuple[Json, ...]

    @property
    def ranked(self) -> bool:
        """True if lookups go by rank, not by hash."""
        return any(each.kind not in ("exact", "valid") for each in self.key)

    def empty(self) -> ExactTable | RankedTable:
        if not self.ranked:
            return ExactTable()
        kinds = tuple("exact" if each.kind == "valid" else each.kind for each in self.key)
        return RankedTable(kinds, tuple(each.width for each in self.key))

    def priority(self, match: tuple[Condition, ...], priority: int) -> int:
        """Returns the priority of an entry; an lpm table goes by prefix length."""
        if self.match_type == "lpm":
            kinds = [each.kind for each in self.key]
            return match[kinds.index("lpm")][1]
        return priority

    def row(self, entry: SwitchEntry) -> tuple[tuple[Condition, ...], int, tuple[Any, ...]]:
        """Returns ``(match, priority, row)``; SwitchError ``BAD_ENTRY`` if it does not fit."""
        if self.constant:
            raise _bad(entry.key, f"the entries of table {self.name!r} are constant")
        if not self.key:
            raise _bad(entry.key, f"table {self.name!r} has no key")
        action = self.actions.get(entry.action)
        if action is None:
            raise _bad(entry.key, f"table {self.name!r} has no action {entry.action!r}")
        values = {name: int.from_bytes(value, "big") for name, value in entry.params}
        widths = dict(action.params)
        if values.keys() != widths.keys():
            raise _bad(entry.key, f"action {entry.action!r} takes {[*widths]}")
        for name, value in values.items():
            if value >> widths[name]:
                raise _bad(entry.key, f"parameter {name!r} has {widths[name]} bits")
        match = self._match(entry)
        return match, self.priority(match, entry.priority), action.row(values, self.counted)

    def _match(self, entry: SwitchEntry) -> tuple[Condition, ...]:
        given: dict[str, Match] = {}
        for name, kind, value in entry.match:
            try:
                # An optional field that is given is an exact one.
                given[name] = Match.parted(name, "exact" if kind == "optional" else kind, value)
            except ValueError as error:
                raise _bad(entry.key, f"field {name!r}: {error}") from None
        if unknown := given.keys() - {each.name for each in self.key}:
            raise _bad(entry.key, f"table {self.name!r} has no field {min(unknown)!r}")
        return tuple(self._condition(entry, each, given.get(each.name)) for each in self.key)

    def _condition(self, entry: SwitchEntry, field: KeyField, match: Match | None) -> Condition:
        every = (1 << field.width) - 1
        if match is None:
            if field.kind in ("exact", "valid"):
                raise _bad(entry.key, f"field {field.name!r} is missing")
            return (0, every) if field.kind == "range" else (0, 0)
        value = int.from_bytes(match.value, "big")
        other = int.from_bytes(match.other, "big")
        if value > every or other > every or match.prefix_length > field.width:
            raise _bad(entry.key, f"field {field.name!r} has {field.width} bits")
        if match.kind == "exact" and field.kind in ("ternary", "optional"):
            return value, every
        if match.kind != ("exact" if field.kind == "valid" else field.kind):
            raise _bad(entry.key, f"field {field.name!r} is {field.kind}, not {match.kind}")
        if field.kind == "lpm":
            return value, match.prefix_length
        return (value, value) if match.kind == "exact" else (value, other)

    def constant_rows(self) -> list[tuple[tuple[Condition, ...], int, tuple[Any, ...]]]:
        """Returns ``(match, priority, row)`` of the entries in the program."""
        numbers = {action.number: action for action in self.actions.values()}
        rows = []
        for entry in self.entries:
            call = entry["action_entry"]
            action = numbers[call["action_id"]]
            given = zip(action.params, call["action_data"], strict=True)
            values = {name: _value(value, width) for (name, width), value in given}
            parts = zip(self.key, entry["match_key"], strict=True)
            match = tuple(_constant_condition(field, part) for field, part in parts)
            # Here the lowest number wins, in P4Runtime the highest.
            priority = self.priority(match, -int(entry.get("priority") or 0))
            rows.append((match, priority, action.row(values, self.counted)))
        return rows


def _constant_condition(field: KeyField, part: Json) -> Condition:
    kind = part["match_type"]
    if kind != field.kind:
        raise ValueError(f"an entry matches {field.name!r} by {kind!r} instead of {field.kind!r}")
    if kind == "range":
        return int(part["start"], 16), int(part["end"], 16)
    value = int(part["key"]) if kind == "valid" else int(part["key"], 16)
    if kind == "lpm":
        return value, int(part["prefix_length"])
    if kind in ("ternary", "optional"):
        every = (1 << field.width) - 1
        mask = part.get("mask")
        return value, every if mask is None else int(mask, 16)
    return value, value


def _value(text: str, width: int) -> int:
    value = int(text, 16)
    if not 0 <= value < 1 << width:
        raise ValueError(f"{text} does not fit {width} bits")
    return value


def action_ids(table: Json, actions: Iterable[Json]) -> list[int]:
    """Returns the ids of a table's actions.

    Older versions of p4c tell their names alone: the first action of a name is meant.
    """
    if "action_ids" in table:
        return list(table["action_ids"])
    ids: dict[str, int] = {}
    for action in actions:
        ids.setdefault(action["name"], action["id"])
    return [ids[name] for name in table["actions"]]


def table_form(
    number: int, table: Json, actions: Mapping[int, Json], widths: tuple[int, ...]
) -> TableForm:
    """Read a table of the JSON; ``widths`` are those of its key's fields.

    Raises SwitchError ``WRONG_PROGRAM`` naming the table.
    """
    with reading(f"table {table['name']!r}"):
        return _table_form(number, table, actions, widths)


def _table_form(
    number: int, table: Json, actions: Mapping[int, Json], widths: tuple[int, ...]
) -> TableForm:
    name = table["name"]
    if table.get("type", "simple") != "simple":
        raise refuse(f"table {name!r}", "action profiles and selectors are not supported")
    forms: dict[str, ActionForm] = {}
    for action_id in action_ids(table, actions.values()):
        action = actions[action_id]
        params = tuple((each["name"], each["bitwidth"]) for each in action["runtime_data"])
        forms[action["name"]] = ActionForm(action_id, action["name"], params)
    key = tuple(
        KeyField(_key_name(each), each["match_type"], width)
        for each, width in zip(table["key"], widths, strict=True)
    )
    for each in key:
        if each.kind not in _KINDS:
            raise refuse(f"table {name!r}", f"match kind {each.kind!r} is not supported")
    counted = bool(table.get("with_counters"))
    default: tuple[Any, ...] = (-1,)
    constant = False
    if entry := table.get("default_entry"):
        called = actions[entry["action_id"]]
        widths = [each["bitwidth"] for each in called["runtime_data"]]
        data = tuple(
            _value(value, width)
            for value, width in zip(entry.get("action_data", ()), widths, strict=True)
        )
        default = (entry["action_id"], *data)
        # The data alone may be free while the action is fixed; then it is no constant.
        constant = bool(entry.get("action_entry_const"))
    entries = tuple(table.get("entries") or ())
    return TableForm(
        number,
        name,
        key,
        table["match_type"],
        forms,
        counted,
        "entries" in table and bool(entries),
        default,
        constant,
        entries,
    )


def _key_name(each: Json) -> str:
    target = each["target"]
    return str(each.get("name") or (target if isinstance(target, str) else ".".join(target)))


def _bad(key: str, why: str) -> SwitchError:
    return SwitchError("BAD_ENTRY", f"{key}: {why}", key=key)
