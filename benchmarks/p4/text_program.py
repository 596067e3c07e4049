"""The program of WERNECKE 5.2.6 from its listings: what a switch holds for it, and its passes.

`text/virtual_trees.p4` is compiled and run; `by_hand` says beforehand what must come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from feature_cases import entry

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE, SwitchTables, ports_of
from stackcast.udfs.switches.entry import SwitchEntry, session_entry

PROGRAM = "virtual_trees"
LABEL_TABLES = ("ingress.tree", "ingress.hop", "ingress.stop")
PASSES = "ingress.passes"
"""Its counter: passes of frames at index 0, of clones at 1."""


@dataclass(frozen=True)
class Way:
    """What becomes of a frame in one switch: its passes, clones' included, and the copies that
    leave, ``(port, labels that it still carries)`` by ascending port.
    """

    passes: int
    copies: tuple[tuple[int, tuple[int, ...]], ...]


def by_hand(tables: SwitchTables, port: int, labels: Sequence[int]) -> Way:
    """Returns what the listings make of a stack.

    A pass of the frame itself serves one port or steps over one label, so a tree of n ports here
    takes n, the ingress port and ports already served included. Each clone goes round too, a label
    a pass, until it has seen the labels after the one that made it or finds its stop. Own hops are
    taken off as they are served; all that clones see behind stays with them.
    """
    passes = served = at = 0
    stack = tuple(labels)
    copies = []
    while at < len(stack):
        kind, number = stack[at] >> NARROW.id_bits, stack[at] & NARROW.max_id
        ports = 0
        if kind == TREE:
            ports = tables.trees.get(number, 0)
        elif kind == HOP and number in tables.hops:
            ports = 1 << tables.hops[number] - 1
            stack = stack[:at] + stack[at + 1 :]
            at -= 1
        at += 1
        passes += max(1, ports.bit_count())
        fresh = ports & ~served & ~(1 << port - 1)
        served |= fresh
        for out in ports_of(fresh):
            seen, stopped = _of_clone(tables, out, stack[at:])
            passes += seen
            if not stopped:
                copies.append((out, stack))
    return Way(passes, tuple(sorted(copies)))


def _of_clone(tables: SwitchTables, port: int, behind: Sequence[int]) -> tuple[int, bool]:
    for passed, label in enumerate(behind, 1):
        if label >> NARROW.id_bits == STOP and tables.stops.get(label & NARROW.max_id) == port:
            return passed, True
    return len(behind), False


def entries(tables: SwitchTables, ports: Iterable[int]) -> list[SwitchEntry]:
    """Returns three tables of labels, and for each port a row to find it and a clone session."""
    rows = [
        entry("ingress.tree", "ingress.serve", _label(TREE, number), ports=mask)
        for number, mask in sorted(tables.trees.items())
    ]
    rows += [
        entry("ingress.hop", "ingress.serve_once", _label(HOP, number), ports=1 << port - 1)
        for number, port in sorted(tables.hops.items())
    ]
    rows += [
        entry("ingress.stop", "NoAction", _label(STOP, number), ("port", "exact", port))
        for number, port in sorted(tables.stops.items())
    ]
    for port in ports:
        lowest = ("ports", "ternary", 1 << port - 1, (1 << port) - 1)
        rows.append(entry("ingress.next_port", "ingress.take", lowest, priority=1, port=port))
        rows.append(session_entry("s", port, [(port, 0)]))
    return rows


def _label(kind: int, number: int) -> tuple[str, str, int]:
    return "label", "exact", NARROW.label(kind, number)


def text_switch(program: bytes, tables: SwitchTables, ports: Iterable[int]) -> SimpleSwitch:
    """Returns a software switch with the program and its entries."""
    switch = SimpleSwitch(cached=False)
    switch.load(program)
    switch.apply({each.key: each for each in entries(tables, ports)})
    return switch
