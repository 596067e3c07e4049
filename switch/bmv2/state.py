"""The state of one switch: table entries, registers, counters and meters, groups and sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stackcast.switch.bmv2.forms import TableForm
from stackcast.switch.bmv2.packet import Packet
from stackcast.switch.bmv2.tables import Condition, ExactTable, RankedTable, Row
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import GROUPS, SwitchEntry, group_id, replicas, session_length

GREEN, YELLOW, RED = 0, 1, 2


class MeterArray:
    """Meters of v1model by index: two rates, three colors (RFC 2698), each a bucket of tokens.

    A packet is green where no rates were given.

    ``by_bytes``: the rates are bytes a second, not packets.
    """

    def __init__(self, size: int, by_bytes: bool) -> None:
        self.size = size
        self._by_bytes = by_bytes
        self._buckets: dict[int, list[list[float]]] = {}

    def set_rates(self, index: int, rates: Sequence[tuple[float, float]]) -> None:
        """``(rate a second, burst)`` of the committed and the peak bucket; none: green again."""
        now = time.monotonic()
        self._buckets.pop(index, None)
        if rates:
            self._buckets[index] = [[rate, burst, burst, now] for rate, burst in rates]

    def execute(self, index: int, size: int) -> int:
        """Returns the color of a packet of ``size`` bytes."""
        buckets = self._buckets.get(index)
        if buckets is None:
            return GREEN
        now = time.monotonic()
        need = size if self._by_bytes else 1
        # The peak first: a packet beyond it takes nothing from the committed rate.
        for color, bucket in zip((RED, YELLOW), reversed(buckets), strict=False):
            rate, burst, tokens, last = bucket
            tokens = min(burst, tokens + (now - last) * rate)
            bucket[3] = now
            bucket[2] = tokens if tokens < need else tokens - need
            if tokens < need:
                return color
        return GREEN

    def reset(self) -> None:
        self._buckets.clear()


Json = Mapping[str, Any]


class Cells(dict[int, list[int]]):
    """Cells ``[packets, bytes]`` of a counter; those that nobody asked for take no room."""

    def __missing__(self, index: int) -> list[int]:
        cell = self[index] = [0, 0]
        return cell


class SwitchState:
    """Tables, registers and counters of one switch, and the program's functions bound to them.

    ``registers``: values by name of a register array. ``failed_assertions``: packets for which an
    ``assert`` or ``assume`` of the program did not hold (BMv2 would end there). Names are those of
    the JSON (and of the P4Info).
    """

    parse: Callable[[Packet], None]
    ingress: Callable[[Packet], None]
    egress: Callable[[Packet], None]
    deparse: Callable[[Packet], bytes]

    def __init__(
        self,
        forms: Mapping[str, TableForm],
        counters: Mapping[str, int],
        registers: Mapping[str, tuple[int, int]],
        meters: Mapping[str, tuple[int, bool]],
        vsets: Mapping[str, int],
        shadows: Mapping[str, tuple[str, int | None]],
    ) -> None:
        self._forms = forms
        self._counter_sizes = counters
        self._register_widths = {name: width for name, (_, width) in registers.items()}
        self._vset_widths = vsets
        self._shadows = shadows
        self.tables: dict[str, ExactTable | RankedTable] = {
            name: form.empty() for name, form in forms.items()
        }
        self.defaults: list[Row] = [form.default for form in forms.values()]
        self.counters = {name: Cells() for name in counters}
        self.registers = {name: [0] * size for name, (size, _) in registers.items()}
        self.meters = {name: MeterArray(size, unit) for name, (size, unit) in meters.items()}
        self.vsets: dict[str, set[int]] = {local: set() for local in shadows}
        self.failed_assertions = 0
        self._rows: dict[str, tuple[TableForm, tuple[Condition, ...], int, Row]] = {}
        self._fill()

    def _fill(self) -> None:
        for name, form in self._forms.items():
            for match, priority, row in form.constant_rows():
                self.tables[name].insert(match, priority, row)

    def check(self, entry: SwitchEntry) -> None:
        """Raise SwitchError ``BAD_ENTRY`` if ``entry`` fits no table of the program."""
        self._form(entry.table).row(entry)

    def _form(self, table: str) -> TableForm:
        form = self._forms.get(table)
        if form is None:
            raise SwitchError("BAD_ENTRY", f"the program has no table {table!r}", table=table)
        return form

    def apply(self, changes: Mapping[str, SwitchEntry | None]) -> None:
        """Make each key (`SwitchEntry.key`) hold its entry, or nothing if None.

        All or nothing: raises SwitchError ``BAD_ENTRY`` before anything is changed. The counter of
        an entry that was there before goes on.
        """
        rows = {}
        for key, entry in changes.items():
            if entry is not None:
                form = self._form(entry.table)
                rows[key] = (form, *form.row(entry))
        for key in changes:
            held = self._rows.pop(key, None)
            new = rows.get(key)
            if held is not None and (new is None or held[1:3] != new[1:3]):
                self.tables[held[0].name].remove(held[1], held[2])
            if new is None:
                continue
            form, match, priority, row = new
            if held is not None and form.counted:
                row = (*row[:-1], held[3][-1])
            self._rows[key] = (form, match, priority, row)
            self.tables[form.name].insert(match, priority, row)

    def set_default(self, table: str, action: str, params: Mapping[str, int]) -> None:
        """Change a table's default action; SwitchError ``BAD_ENTRY`` if it is const or unknown."""
        form = self._form(table)
        if form.default_constant:
            raise SwitchError("BAD_ENTRY", f"the default action of {table!r} is const", table=table)
        called = form.actions.get(action)
        if called is None or params.keys() != dict(called.params).keys():
            raise SwitchError("BAD_ENTRY", f"{table!r} has no action {action!r} with {[*params]}")
        for name, width in called.params:
            if not 0 <= params[name] < 1 << width:
                raise SwitchError("BAD_ENTRY", f"{table!r}: {name!r} has {width} bits")
        self.defaults[form.number] = called.row(params, counted=False)

    def reset_default(self, table: str) -> None:
        """Give a table the default action of the program again."""
        form = self._form(table)
        self.defaults[form.number] = form.default

    def counter(self, name: str, index: int) -> tuple[int, int]:
        """Returns ``(packets, bytes)`` of an indexed counter."""
        self._within(name, index)
        packets, size = self.counters[name].get(index, (0, 0))
        return packets, size

    def counter_size(self, name: str) -> int:
        """Returns cells of an indexed counter."""
        if name not in self._counter_sizes:
            raise SwitchError("BAD_ENTRY", f"the program has no counter {name!r}", name=name)
        return self._counter_sizes[name]

    def _within(self, name: str, index: int) -> None:
        if not 0 <= index < self.counter_size(name):
            raise SwitchError("BAD_ENTRY", f"counter {name!r} has no cell {index}", name=name)

    def write_counter(self, name: str, index: int, packets: int, size: int) -> None:
        """Set a cell of an indexed counter."""
        self._within(name, index)
        self.counters[name][index][:] = packets, size

    def direct_counter(self, table: str, key: str) -> tuple[int, int]:
        """Returns ``(packets, bytes)`` of an entry (`SwitchEntry.key`) of a table with a direct
        counter.
        """
        packets, size = self._cell(table, key)
        return packets, size

    def write_direct_counter(self, table: str, key: str, packets: int, size: int) -> None:
        """Set the counter of an entry."""
        self._cell(table, key)[:] = packets, size

    def _cell(self, table: str, key: str) -> list[int]:
        held = self._rows.get(key)
        if held is None or held[0].name != table or not held[0].counted:
            raise SwitchError(
                "BAD_ENTRY", f"table {table!r} has no counter for entry {key!r}", key=key
            )
        cell: list[int] = held[3][-1]
        return cell

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set a cell of a register array, cut to its width."""
        if name not in self.registers or not 0 <= index < len(self.registers[name]):
            raise SwitchError("BAD_ENTRY", f"register {name}[{index}] does not exist", name=name)
        self.registers[name][index] = value & ((1 << self._register_widths[name]) - 1)

    def set_parse_vset(self, name: str, values: Iterable[int]) -> None:
        """Sets the members of a value set: the fields of each as one number, first one highest."""
        if name not in self._vset_widths:
            raise SwitchError("BAD_ENTRY", f"the program has no value set {name!r}", name=name)
        members = set(values)
        for local, (owner, mask) in self._shadows.items():
            if owner == name:
                held = self.vsets[local]
                held.clear()
                held.update(members if mask is None else {value & mask for value in members})

    def reset(self) -> None:
        """Empty tables, registers and counters."""
        self._rows.clear()
        for table in self.tables.values():
            table.clear()
        self.defaults[:] = [form.default for form in self._forms.values()]
        for cells in self.counters.values():
            cells.clear()
        for values in self.registers.values():
            values[:] = [0] * len(values)
        for meter in self.meters.values():
            meter.reset()
        for held in self.vsets.values():
            held.clear()
        self.failed_assertions = 0
        self._fill()


_MAX_GROUP = 0xFFFF
_MAX_SESSION = 0x7FFF
_MAX_PORT = 511
_MAX_INSTANCE = 0xFFFF


class CloneSession(NamedTuple):
    """A clone session: ``(egress port, instance)`` of each copy, and most bytes, None for all."""

    replicas: tuple[tuple[int, int], ...]
    length: int | None


class Replication:
    """The packet replication engine: multicast groups and clone sessions by number.

    They are kept as entries (`stackcast.udfs.switches.entry`).

    ``groups``: ``(egress port, instance)`` of each copy, by instance, then by port.
    """

    def __init__(self) -> None:
        self.groups: dict[int, tuple[tuple[int, int], ...]] = {}
        self.sessions: dict[int, CloneSession] = {}

    def check(self, entry: SwitchEntry) -> None:
        """Raise SwitchError ``BAD_ENTRY`` for numbers out of range, and for a copy named twice."""
        group = entry.table == GROUPS
        number, copies = group_id(entry), replicas(entry)
        lowest, highest = (1, _MAX_GROUP) if group else (0, _MAX_SESSION)
        if not lowest <= number <= highest:
            what = "groups" if group else "clone sessions"
            raise _bad(entry, f"{what} are numbered {lowest}..{highest}")
        for port, instance in copies:
            if port > _MAX_PORT or instance > _MAX_INSTANCE:
                raise _bad(entry, f"ports are 0..{_MAX_PORT}, instances 0..{_MAX_INSTANCE}")
        if len(set(copies)) < len(copies):
            raise _bad(entry, "the same port and instance occur twice")

    def set(self, key: str, entry: SwitchEntry | None) -> None:
        """Make the group or session of a key be that of ``entry``, or none."""
        table, _, number = key.partition("|")
        index = int(number.rpartition("=")[2], 16)
        if table == GROUPS:
            if entry is None:
                self.groups.pop(index, None)
            else:
                self.groups[index] = tuple(replicas(entry))
        elif entry is None:
            self.sessions.pop(index, None)
        else:
            self.sessions[index] = CloneSession(
                tuple(replicas(entry)), session_length(entry) or None
            )

    def clear(self) -> None:
        """Forget all groups and sessions."""
        self.groups.clear()
        self.sessions.clear()


def _bad(entry: SwitchEntry, why: str) -> SwitchError:
    return SwitchError("BAD_ENTRY", f"{entry.key}: {why}", key=entry.key)
