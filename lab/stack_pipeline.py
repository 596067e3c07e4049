"""A pipeline that forwards frames as ``udfs.stacks.forwarding`` says, without a P4 program."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from udfs.errors import SwitchError
from udfs.stacks.entries import HOST_PORT, tables_from_entries
from udfs.stacks.forwarding import SwitchTables, forward
from udfs.stacks.labels import MAX_LABELS
from udfs.switches.entry import SwitchEntry
from udfs.trees.network import MAX_PORT

CHECK_TREE, CHECK_HOP, CHECK_STOP = (f"ingress.check_{kind}" for kind in ("tree", "hop", "stop"))
ACTIONS = {
    CHECK_TREE: "ingress.set_tree_ports",
    CHECK_HOP: "ingress.set_hop_port",
    CHECK_STOP: "ingress.set_stop_port",
    HOST_PORT: "egress.take_stack_off",
}
# Distinct (port, stack) pairs that a switch remembers; beyond, it forgets all and starts anew.
_CACHE_LIMIT = 1 << 16
_STACK_AT = 16
_ETHERTYPE_STACK = b"\x99\x99"
_ETHERTYPE_IPV4 = b"\x08\x00"


@dataclass(frozen=True)
class TableForm:
    """What a program says of one table: widths in bits of its match fields and parameters."""

    match: Mapping[str, int]
    actions: Mapping[str, Mapping[str, int]]


class StackPipeline:
    """Forwards frames by their header stack (WERNECKE 5.2); drops all others.

    Reasons in ``drops``: ``truncated_frame``, ``unknown_ethertype``, ``empty_stack``,
    ``too_many_labels``, ``truncated_stack`` (fewer labels than announced),
    ``no_ipv4_after_stack`` (more or fewer labels than announced), ``invalid_label``, ``no_port``.
    """

    PROGRAM: Mapping[str, TableForm] = {
        CHECK_TREE: TableForm({"label": 16}, {ACTIONS[CHECK_TREE]: {"ports": 64}}),
        CHECK_HOP: TableForm({"label": 16}, {ACTIONS[CHECK_HOP]: {"port": 9}}),
        CHECK_STOP: TableForm({"label": 16}, {ACTIONS[CHECK_STOP]: {"port": 9}}),
        HOST_PORT: TableForm({"port": 9}, {ACTIONS[HOST_PORT]: {}}),
    }

    def __init__(self) -> None:
        self.drops: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._entries: dict[str, SwitchEntry] = {}
        self._tables: SwitchTables | None = None
        self._cache: dict[tuple[int, bytes], list[tuple[int, bytes | None]]] = {}

    def fits(self, program: Mapping[str, TableForm]) -> None:
        for table, form in self.PROGRAM.items():
            if table not in program:
                raise _wrong(f"table {table!r} is missing")
            given = program[table]
            if given.match != form.match:
                raise _wrong(f"table {table!r} matches {given.match}, not {form.match}")
            for action, parameters in form.actions.items():
                if given.actions.get(action) != parameters:
                    raise _wrong(f"table {table!r} needs action {action!r} with {parameters}")
        if unknown := sorted(program.keys() - self.PROGRAM.keys()):
            raise _wrong(f"table {unknown[0]!r} is unknown to this switch")

    def load(self, program: Mapping[str, TableForm]) -> None:
        self.fits(program)
        with self._lock:
            self._entries.clear()
            self._forget()

    def check(self, entry: SwitchEntry) -> None:
        tables = tables_from_entries([entry])
        ports = [*tables.hops.values(), *tables.stops.values(), *tables.host_ports]
        mask = sum(tables.trees.values())
        if not all(0 < port <= MAX_PORT for port in ports) or mask >> MAX_PORT:
            raise SwitchError("BAD_ENTRY", f"{entry.key}: ports are 1..{MAX_PORT}", key=entry.key)

    def apply(self, changes: Mapping[str, SwitchEntry | None]) -> None:
        with self._lock:
            for key, entry in changes.items():
                if entry is None:
                    self._entries.pop(key, None)
                else:
                    self._entries[key] = entry
            self._forget()

    def process(self, ingress_port: int, frame: bytes) -> list[tuple[int, bytes]]:
        if len(frame) < _STACK_AT:
            return self._drop("truncated_frame")
        if frame[12:14] != _ETHERTYPE_STACK:
            return self._drop("unknown_ethertype")
        count = frame[14] << 8 | frame[15]
        if not 0 < count <= MAX_LABELS:
            return self._drop("too_many_labels" if count else "empty_stack")
        end = _STACK_AT + 2 * count
        if end > len(frame):
            return self._drop("truncated_stack")
        # A count that lies makes labels of the datagram, or a datagram of labels.
        if end == len(frame) or not 0x45 <= frame[end] <= 0x4F:
            return self._drop("no_ipv4_after_stack")
        stack = frame[_STACK_AT:end]
        copies = self._cache.get((ingress_port, stack))
        if copies is None:
            copies = self._look_up(ingress_port, stack)
        if not copies:
            invalid = any(byte < 0x40 for byte in stack[::2])
            return self._drop("invalid_label" if invalid else "no_port")
        addresses, datagram = frame[:12], frame[end:]
        return [
            (port, addresses + (_ETHERTYPE_IPV4 if left is None else left) + datagram)
            for port, left in copies
        ]

    def _look_up(self, ingress_port: int, stack: bytes) -> list[tuple[int, bytes | None]]:
        labels = struct.unpack(f">{len(stack) // 2}H", stack)
        with self._lock:
            # Built by the first frame after a change: many small writes cost one building.
            if self._tables is None:
                self._tables = tables_from_entries(self._entries.values())
            copies = [
                (port, None if left is None else _stack_header(left))
                for port, left in forward(self._tables, ingress_port, labels)
            ]
            if len(self._cache) >= _CACHE_LIMIT:
                self._cache = {}
            self._cache[ingress_port, stack] = copies
        return copies

    def _forget(self) -> None:
        self._tables = None
        self._cache = {}

    def _drop(self, reason: str) -> list[tuple[int, bytes]]:
        self.drops[reason] += 1
        return []


def _stack_header(labels: tuple[int, ...]) -> bytes:
    return _ETHERTYPE_STACK + struct.pack(f">H{len(labels)}H", len(labels), *labels)


def _wrong(why: str) -> SwitchError:
    return SwitchError(
        "WRONG_PROGRAM", f"this switch runs p4/virtual_trees.p4 only, and the P4Info differs: {why}"
    )
