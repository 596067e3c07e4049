"""One Read: the entities that a request of P4Runtime asks for, with its wildcards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from google.rpc import code_pb2

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.switch.data_plane import DataPlane
from stackcast.switch.p4runtime import replication, table_entries
from stackcast.switch.p4runtime.holdings import Holdings
from stackcast.switch.p4runtime.p4info import Cells, Table
from stackcast.switch.p4runtime.refusal import Refusal, cell, invalid, unimplemented
from stackcast.switch.p4runtime.table_entries import HeldEntry
from stackcast.udfs.switches.entry import SwitchEntry, is_default
from stackcast.udfs.switches.match import canonical

_Entity = p4runtime_pb2.Entity
# Kinds that this switch has none of, and the part of a P4Info that would have them.
_ABSENT = {
    "extern_entry": "externs",
    "action_profile_member": "action_profiles",
    "action_profile_group": "action_profiles",
    "meter_entry": "meters",
    "direct_meter_entry": "direct_meters",
    "value_set_entry": "value_sets",
    "digest_entry": "digests",
}


class EntityReader:
    """Answers the entities of a Read.

    Parameters
    ----------
    data_plane: what has counters and registers; None for a program that is not committed.
    """

    def __init__(self, holdings: Holdings, data_plane: DataPlane | None) -> None:
        self._holdings = holdings
        self._index = holdings.index
        self._data_plane = data_plane

    def read(self, entity: p4runtime_pb2.Entity) -> Iterator[p4runtime_pb2.Entity]:
        """Returns all that fits ``entity``, to be read only. Raises `Refusal` for what cannot be
        asked.

        Of a kind that the program has nothing of, everything is nothing; UNIMPLEMENTED if it has.
        """
        kind = entity.WhichOneof("entity")
        if kind is None:
            raise invalid("the Read has no entity")
        wanted = getattr(entity, kind)
        if kind in _ABSENT:
            if getattr(self._index.p4info, _ABSENT[kind]):
                raise unimplemented(f"this switch cannot read {kind}")
            return iter(())
        return {
            "table_entry": self._table_entries,
            "packet_replication_engine_entry": self._replication,
            "counter_entry": self._counters,
            "direct_counter_entry": self._direct_counters,
            "register_entry": self._registers,
        }[kind](wanted)

    def _table_entries(self, wanted: Any) -> Iterator[Any]:
        for held in self._found(wanted, wanted.is_default_action):
            if wanted.HasField("counter_data") and self._counted(held):
                entity = _Entity()
                entity.CopyFrom(held.entity)
                _fill(entity.table_entry.counter_data, self._direct_count(held))
                yield entity
            else:
                yield held.entity

    def _found(self, wanted: Any, default: bool) -> Iterable[HeldEntry]:
        """Entries by table, match, action, priority and metadata, each of them if it is given."""
        if not wanted.table_id:
            if wanted.match or wanted.HasField("action") or wanted.priority or wanted.metadata:
                raise invalid("a Read of all tables must not have other filters")
            tables = list(self._index.tables.values())
        else:
            tables = [self._index.table(wanted.table_id)]
            if wanted.HasField("counter_data") and not default and not tables[0].counted:
                raise invalid(f"table {tables[0].name!r} has no direct counter")
        if default:
            defaults = (self._holdings.default(table) for table in tables)
            return [held for held in defaults if held is not None]
        if not wanted.table_id:
            known = self._index.tables_by_name
            return [
                held
                for held in self._holdings.held.values()
                if held.entry.table in known and not held.wire.is_default_action
            ]
        return [held for held in self._keyed(tables[0], wanted) if _passes(held, wanted)]

    def _keyed(self, table: Table, wanted: Any) -> Iterable[HeldEntry]:
        if not wanted.match:
            return self._holdings.of_table(table.name)
        match = table_entries.match_of(table, wanted)
        if table.ranked and not wanted.priority:
            # Entries of all priorities have this match.
            return [
                held for held in self._holdings.of_table(table.name) if held.entry.match == match
            ]
        key = SwitchEntry(self._holdings.switch, table.name, match, "", (), wanted.priority).key
        held = self._holdings.held.get(key)
        return [] if held is None else [held]

    def _replication(self, wanted: Any) -> Iterator[Any]:
        table = replication.kind_of(wanted)
        if any(getattr(part, number) for part, number in _numbers(wanted)):
            key = replication.key_entry(self._holdings.switch, wanted).key
            if key not in self._holdings.held:
                raise Refusal(code_pb2.NOT_FOUND, f"entry {key} does not exist")
            found: Iterable[HeldEntry] = [self._holdings.held[key]]
        else:
            found = self._holdings.of_table(table)
        for held in found:
            yield held.entity

    def _counters(self, wanted: Any) -> Iterator[Any]:
        for counter, index in _chosen(
            self._index.counters.values(), wanted.counter_id, self._index.counter, wanted, "counter"
        ):
            entity = _Entity()
            entity.counter_entry.counter_id = counter.id
            entity.counter_entry.index.index = index
            _fill(entity.counter_entry.data, self._live("counters").counter(counter.name, index))
            yield entity

    def _registers(self, wanted: Any) -> Iterator[Any]:
        values: dict[str, list[int]] = {}
        for register, index in _chosen(
            self._index.registers.values(),
            wanted.register_id,
            self._index.register,
            wanted,
            "register",
        ):
            if register.name not in values:
                values = {register.name: self._live("registers").register(register.name)}
            entity = _Entity()
            entity.register_entry.register_id = register.id
            entity.register_entry.index.index = index
            entity.register_entry.data.bitstring = canonical(values[register.name][index])
            yield entity

    def _direct_counters(self, wanted: Any) -> Iterator[Any]:
        if not wanted.HasField("table_entry"):
            raise invalid("a direct counter needs its table entry")
        entry = wanted.table_entry
        if entry.is_default_action:
            raise unimplemented("default actions have no counters here")
        if entry.table_id and not self._index.table(entry.table_id).counted:
            raise invalid(f"table {self._index.table(entry.table_id).name!r} has no direct counter")
        found = [held for held in self._found(entry, False) if self._counted(held)]
        if entry.match and not found:
            raise Refusal(code_pb2.NOT_FOUND, "no entry has this match")
        for held in found:
            entity = _Entity()
            part = entity.direct_counter_entry
            part.table_entry.table_id = held.wire.table_id
            part.table_entry.match.extend(held.wire.match)
            part.table_entry.priority = held.wire.priority
            _fill(part.data, self._direct_count(held))
            yield entity

    def _counted(self, held: HeldEntry) -> bool:
        """Default actions and entries of the program itself have no counters here."""
        table = self._index.tables_by_name[held.entry.table]
        return bool(table.counted) and not held.own and not is_default(held.entry)

    def _direct_count(self, held: HeldEntry) -> tuple[int, int]:
        return self._live("direct counters").direct_counter(held.entry.table, held.entry.key)

    def _live(self, what: str) -> DataPlane:
        if self._data_plane is None:
            raise Refusal(
                code_pb2.FAILED_PRECONDITION, f"{what}: the saved program is not committed yet"
            )
        return self._data_plane


def _passes(held: HeldEntry, wanted: Any) -> bool:
    wire = held.wire
    return (
        (not wanted.priority or wire.priority == wanted.priority)
        and (not wanted.metadata or wire.metadata == wanted.metadata)
        and wanted.controller_metadata in (0, wire.controller_metadata)
        and (
            not wanted.HasField("action")
            or wire.action.action.action_id == wanted.action.action.action_id
        )
    )


def _numbers(wanted: Any) -> list[tuple[Any, str]]:
    return [
        (wanted.multicast_group_entry, "multicast_group_id"),
        (wanted.clone_session_entry, "session_id"),
    ]


def _chosen(
    known: Iterable[Cells], number: int, one: Any, wanted: Any, what: str
) -> Iterator[tuple[Cells, int]]:
    """Arrays and indices: all arrays if ``number`` is 0, all cells without an index."""
    for array in [one(number)] if number else known:
        if wanted.HasField("index"):
            yield array, cell(wanted.index.index, array.size, f"{what} {array.name!r}")
        else:
            yield from ((array, index) for index in range(array.size))


def _fill(data: Any, counts: tuple[int, int]) -> None:
    data.packet_count, data.byte_count = counts
    data.SetInParent()
