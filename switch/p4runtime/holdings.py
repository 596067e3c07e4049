"""The entries and settings that the control side of a switch holds for one program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.switch.p4runtime.p4info import OPTIONAL, P4InfoIndex, Table
from stackcast.switch.p4runtime.program import ActionCall, JsonProgram, OwnEntry
from stackcast.switch.p4runtime.refusal import Refusal, invalid
from stackcast.switch.p4runtime.table_entries import (
    HeldEntry,
    from_names,
    key_entry,
    whole_entry,
)
from stackcast.udfs.switches.entry import (
    GROUPS,
    SESSIONS,
    SwitchEntry,
    canonical,
    default_entry,
    is_default,
)


class Holdings:
    """Entries, groups, sessions and changed default actions by `SwitchEntry.key`.

    At first there are only the entries that the program brings along. They stay: a BMv2 JSON does
    not tell which of them may change, and BMv2 lets none. ``config`` is the message that set the
    program; ``fixed`` the names of the tables that have such entries.
    """

    def __init__(
        self,
        switch: str,
        config: p4runtime_pb2.ForwardingPipelineConfig,
        index: P4InfoIndex,
        program: JsonProgram,
    ) -> None:
        self.switch = switch
        self.config = config
        self.index = index
        self.fixed: set[str] = set()
        self.held: dict[str, HeldEntry] = {}
        self.sizes: Counter[str] = Counter()
        self._defaults: dict[str, HeldEntry] = {}
        for table in index.tables.values():
            form = program.tables[table.name]
            if form.default is not None:
                self._defaults[table.name] = self._default(table, form.default)
            for own in form.own:
                held = self._own(table, own)
                self.held[held.entry.key] = held
                self.fixed.add(table.name)

    def set(self, key: str, held: HeldEntry | None) -> None:
        """Hold an entry from now on, or nothing if None."""
        before = self.held.get(key)
        for each, change in ((before, -1), (held, 1)):
            if each is not None and not is_default(each.entry):
                self.sizes[each.entry.table] += change
        if held is not None:
            self.held[key] = held
        else:
            self.held.pop(key, None)

    def of_table(self, table: str) -> Iterator[HeldEntry]:
        """Yields all entries of a table, or groups, or sessions; default actions are not among
        them.
        """
        for held in self.held.values():
            if held.entry.table == table and not is_default(held.entry):
                yield held

    def default(self, table: Table) -> HeldEntry | None:
        """Returns the default action that a table has now; None if the program names none."""
        changed = self.held.get(default_entry(self.switch, table.name, "").key)
        return changed or self._defaults.get(table.name)

    def written(self) -> dict[str, SwitchEntry]:
        """Returns what clients have written, by key."""
        return {key: held.entry for key, held in self.held.items() if not held.own}

    def take_over(self, other: Holdings) -> None:
        """Hold all that ``other`` holds for another program.

        Raises `Refusal` INVALID_ARGUMENT naming the first entry that this program has no room for.
        """
        for key, held in other.held.items():
            if held.own:
                continue
            try:
                self.set(key, self._adopted(held))
            except Refusal as refusal:
                raise invalid(f"entry {key} cannot be kept: {refusal.message}") from None
        for table in self.index.tables.values():
            if table.size and self.sizes[table.name] > table.size:
                raise invalid(
                    f"the {self.sizes[table.name]} entries of table {table.name!r} cannot be kept: "
                    f"its size is {table.size}"
                )

    def _adopted(self, held: HeldEntry) -> HeldEntry:
        entry = held.entry
        if entry.table in (GROUPS, SESSIONS):
            return held
        table = self.index.tables_by_name.get(entry.table)
        if table is None:
            raise invalid(f"table {entry.table!r} does not exist")
        if table.constant_default if is_default(entry) else entry.table in self.fixed:
            raise invalid(f"table {entry.table!r} is constant in the new program")
        wire = from_names(table, entry).wire
        wire.controller_metadata = held.wire.controller_metadata
        wire.metadata = held.wire.metadata
        return whole_entry(key_entry(self.switch, table, wire), table, wire)

    def _default(self, table: Table, call: ActionCall) -> HeldEntry:
        action, params = self._called(table, call)
        entry = default_entry(self.switch, table.name, action, params)
        return from_names(table, entry)

    def _own(self, table: Table, own: OwnEntry) -> HeldEntry:
        action, params = self._called(table, own.call)
        optional = {field.name for field in table.fields if field.kind == OPTIONAL}
        match = tuple(
            (each.name, OPTIONAL, each.value)
            if each.name in optional
            else (each.name, each.kind, each.joined())
            for each in own.match
        )
        entry = SwitchEntry(self.switch, table.name, match, action, params, own.priority)
        held = from_names(table, entry)
        held.wire.is_const = True
        return replace(held, own=True)

    @staticmethod
    def _called(table: Table, call: ActionCall) -> tuple[str, tuple[tuple[str, bytes], ...]]:
        name, values = call
        action = next((each for each in table.actions.values() if each.name == name), None)
        if action is None or len(action.params) != len(values):
            raise invalid(
                f"table {table.name!r}: the program's call of {name!r} does not match the P4Info"
            )
        return name, tuple(
            (param.name, canonical(value))
            for param, value in zip(action.params, values, strict=True)
        )
