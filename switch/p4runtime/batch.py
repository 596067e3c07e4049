"""One Write: updates checked one after the other, then put into effect together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from google.rpc import code_pb2

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.switch.data_plane import DataPlane
from stackcast.switch.p4runtime import replication, table_entries
from stackcast.switch.p4runtime.holdings import Holdings
from stackcast.switch.p4runtime.p4info import Table
from stackcast.switch.p4runtime.refusal import Refusal, cell, invalid, number, unimplemented
from stackcast.switch.p4runtime.table_entries import HeldEntry
from stackcast.udfs.errors import StackcastError

_Update = p4runtime_pb2.Update
_CONSTANT = code_pb2.PERMISSION_DENIED


class WriteBatch:
    """The updates of one Write. Nothing changes before :meth:`commit`.

    Parameters
    ----------
    data_plane: what checks entries and has counters and registers; None for a program that is saved
        and not yet committed, which has none.
    """

    def __init__(self, holdings: Holdings, data_plane: DataPlane | None) -> None:
        self._holdings = holdings
        self._index = holdings.index
        self._data_plane = data_plane
        self._changes: dict[str, HeldEntry | None] = {}
        self._grown: Counter[str] = Counter()
        self._cells: list[Callable[[DataPlane], None]] = []
        self._direct: dict[str, tuple[str, int, int]] = {}

    def update(self, update: p4runtime_pb2.Update) -> None:
        """Add an update. Raises `Refusal`; the batch is then as before."""
        kind = update.entity.WhichOneof("entity")
        if kind is None:
            raise invalid("the update has no entity")
        if update.type not in (_Update.INSERT, _Update.MODIFY, _Update.DELETE):
            raise invalid(f"unknown type of update {update.type}")
        handler = {
            "table_entry": self._table_entry,
            "packet_replication_engine_entry": self._replication,
            "counter_entry": self._counter,
            "direct_counter_entry": self._direct_counter,
            "register_entry": self._register,
        }.get(kind)
        if handler is None:
            raise unimplemented(f"this switch does not support {kind}")
        handler(update.type, getattr(update.entity, kind))

    def commit(self) -> None:
        """Put all updates into effect; frames see the entries as before or as after.

        Raises `Refusal` INTERNAL, and changes nothing, if the data plane refuses them after all.
        """
        if self._data_plane is not None and self._changes:
            changes = {key: held and held.entry for key, held in self._changes.items()}
            try:
                self._data_plane.apply(changes)
            except StackcastError as error:
                raise Refusal(code_pb2.INTERNAL, error.message) from None
        for key, held in self._changes.items():
            self._holdings.set(key, held)
        if self._data_plane is not None:
            for key, (table, packets, size) in self._direct.items():
                self._data_plane.write_direct_counter(table, key, packets, size)
            for change in self._cells:
                change(self._data_plane)

    def _held(self, key: str) -> HeldEntry | None:
        return self._changes[key] if key in self._changes else self._holdings.held.get(key)

    def _table_entry(self, kind: int, wire: Any) -> None:
        table = self._index.table(wire.table_id)
        key = table_entries.key_entry(self._holdings.switch, table, wire)
        if wire.is_default_action:
            self._default(kind, table, wire, key)
            return
        name = key.entry.key
        if kind == _Update.INSERT and not table.fields:
            raise invalid(f"table {table.name!r} has no key, so it has only a default action")
        if table.constant and (kind != _Update.MODIFY or wire.HasField("action")):
            raise Refusal(_CONSTANT, f"the entries of table {table.name!r} are constant")
        fixed = table.name in self._holdings.fixed
        if fixed and not table.constant:
            raise unimplemented(
                f"table {table.name!r} contains entries of the program, so other entries cannot be "
                "added, as in BMv2"
            )
        present = self._present(kind, name)
        if kind == _Update.DELETE:
            self._change(name, None, table.name, -1)
            self._direct.pop(name, None)
            return
        held = table_entries.whole_entry(key, table, wire, present)
        counts = wire.counter_data if wire.HasField("counter_data") else None
        values = _counts(counts, name) if counts is not None else None
        if fixed:
            if values is not None:
                raise unimplemented(
                    f"table {table.name!r}: entries of the program have no counters here"
                )
            return
        if kind == _Update.INSERT:
            full = self._holdings.sizes[table.name] + self._grown[table.name] >= table.size
            if table.size and full:
                raise Refusal(
                    code_pb2.RESOURCE_EXHAUSTED,
                    f"table {table.name!r} is full: {table.size} entries",
                )
            again = self._data_plane is not None and name in self._holdings.held
            if table.counted and values is None and again:
                values = (0, 0)  # deleted earlier in this batch: it begins anew
        self._check(held)
        if values is not None:
            self._direct_cell(table.name, name, values)
        self._change(name, held, table.name, int(kind == _Update.INSERT))

    def _default(self, kind: int, table: Table, wire: Any, key: HeldEntry) -> None:
        if kind != _Update.MODIFY:
            raise invalid(
                f"table {table.name!r} always has a default action: it can only be modified"
            )
        if table.constant_default:
            raise Refusal(_CONSTANT, f"the default action of table {table.name!r} is constant")
        if wire.HasField("counter_data"):
            raise unimplemented(f"table {table.name!r}: default actions have no counters here")
        if not wire.HasField("action"):
            self._change(key.entry.key, None, table.name, 0)
            return
        held = table_entries.whole_entry(key, table, wire)
        self._check(held)
        self._change(held.entry.key, held, table.name, 0)

    def _replication(self, kind: int, wire: Any) -> None:
        key = replication.key_entry(self._holdings.switch, wire).key
        if kind == _Update.DELETE:
            self._present(kind, key)
            self._change(key, None, "", 0)
            return
        held = replication.whole_entry(self._holdings.switch, wire)
        self._present(kind, key)
        self._check(held)
        self._change(key, held, "", 0)

    def _counter(self, kind: int, wire: Any) -> None:
        counter = self._index.counter(wire.counter_id)
        self._must_be_modify(kind, f"counter {counter.name!r}")
        cells = _cells_of(wire, counter.size, f"counter {counter.name!r}")
        if not wire.HasField("data"):
            return
        packets, size = _counts(wire.data, f"counter {counter.name!r}")

        def change(data_plane: DataPlane) -> None:
            for index in cells:
                data_plane.write_counter(counter.name, index, packets, size)

        self._cells.append(change)

    def _register(self, kind: int, wire: Any) -> None:
        register = self._index.register(wire.register_id)
        what = f"register {register.name!r}"
        self._must_be_modify(kind, what)
        cells = _cells_of(wire, register.size, what)
        if wire.data.WhichOneof("data") != "bitstring":
            raise invalid(f"{what}: a bitstring of {register.bits} bits is required")
        value = number(wire.data.bitstring, register.bits, what)

        def change(data_plane: DataPlane) -> None:
            for index in cells:
                data_plane.write_register(register.name, index, value)

        self._cells.append(change)

    def _direct_counter(self, kind: int, wire: Any) -> None:
        if not wire.HasField("table_entry"):
            raise invalid("a direct counter needs its table entry")
        table = self._index.table(wire.table_entry.table_id)
        self._must_be_modify(kind, f"direct counter of table {table.name!r}")
        if not table.counted:
            raise invalid(f"table {table.name!r} has no direct counter")
        if wire.table_entry.is_default_action:
            raise unimplemented(f"table {table.name!r}: default actions have no counters here")
        key = table_entries.key_entry(self._holdings.switch, table, wire.table_entry).entry.key
        held = self._present(kind, key)
        if held is not None and held.own:
            raise unimplemented(
                f"table {table.name!r}: entries of the program have no counters here"
            )
        if wire.HasField("data"):
            self._direct_cell(table.name, key, _counts(wire.data, key))

    def _direct_cell(self, table: str, key: str, values: tuple[int, int]) -> None:
        self._must_be_live("direct counters")
        self._direct[key] = (table, *values)

    def _must_be_modify(self, kind: int, what: str) -> None:
        if kind != _Update.MODIFY:
            raise invalid(f"{what} can only be modified")
        self._must_be_live(what)

    def _must_be_live(self, what: str) -> None:
        if self._data_plane is None:
            raise Refusal(
                code_pb2.FAILED_PRECONDITION, f"{what}: the saved program is not committed yet"
            )

    def _present(self, kind: int, key: str) -> HeldEntry | None:
        held = self._held(key)
        if kind == _Update.INSERT and held is not None:
            raise Refusal(code_pb2.ALREADY_EXISTS, f"entry {key} already exists")
        if kind != _Update.INSERT and held is None:
            raise Refusal(code_pb2.NOT_FOUND, f"entry {key} does not exist")
        return held

    def _check(self, held: HeldEntry) -> None:
        if self._data_plane is None:
            return
        try:
            self._data_plane.check(held.entry)
        except StackcastError as error:
            raise invalid(error.message) from None

    def _change(self, key: str, held: HeldEntry | None, table: str, growth: int) -> None:
        self._changes[key] = held
        self._grown[table] += growth


def _cells_of(wire: Any, size: int, what: str) -> range:
    """The cells that an update is for: one, or all without an index."""
    if not wire.HasField("index"):
        return range(size)
    index = cell(wire.index.index, size, what)
    return range(index, index + 1)


def _counts(data: Any, what: str) -> tuple[int, int]:
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"{what}: counts must not be negative")
    return data.packet_count, data.byte_count
