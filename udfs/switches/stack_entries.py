"""What each switch should hold, as rows: derived from network and trees, and read back.

Tables and actions are those of ``p4/virtual_trees.p4``, compiled for labels of either width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from udfs.errors import StackError, SwitchError
from udfs.network.labels import HOP, NARROW, STOP, TREE, LabelFormat
from udfs.network.network import Network
from udfs.network.virtual_tree import VirtualTree
from udfs.stacks.forwarding import SwitchTables, network_tables
from udfs.switches.entry import GROUPS, SwitchEntry, canonical
from udfs.switches.ports import port_groups
from udfs.switches.routes import ROUTE, routes

LABELS_A_PASS = 8
"""Positions of the shipped program: labels that one pass through a switch looks at."""

HOST_PORT = "egress.host_port"
TAKE_STACK_OFF = "egress.take_stack_off"

_ACTIONS = {TREE: "tree", HOP: "hop", STOP: "stop"}
_TABLE = re.compile(r"ingress\.label_([1-9]\d*)\.look_up")


def label_table(position: int) -> str:
    """The table that a pass looks its label number ``position`` (from 1) up in."""
    return f"ingress.label_{position}.look_up"


def positions_of(tables: Iterable[str]) -> int:
    """The labels a pass of a program with these tables: the ``positions`` of `switch_entries`.

    Raises SwitchError ``WRONG_PROGRAM`` if it is none of this family.
    """
    found = {int(match[1]) for name in tables if (match := _TABLE.fullmatch(name))}
    if not found or found != set(range(1, len(found) + 1)):
        missing = next(n for n in range(1, len(found) + 2) if n not in found)
        raise SwitchError(
            "WRONG_PROGRAM",
            f"the program has no table {label_table(missing)!r}: it is no virtual_trees.p4",
            table=label_table(missing),
        )
    return len(found)


def switch_entries(
    network: Network, trees: Iterable[VirtualTree], positions: int = LABELS_A_PASS
) -> list[SwitchEntry]:
    """All entries of all switches, by switch; then groups, routes, host ports and labels.

    A switch holds every given tree that it is on (in any state), a hop and a stop label for
    each of its links, the groups of its ports, its host ports, and IPv4 routes. Labels are there
    ``positions`` times, once for each label of a pass (:func:`positions_of`). Whether a link is
    ``up`` matters to routes alone.

    Raises NetworkError ``UNKNOWN_LINK`` (a tree's edge), ``DUPLICATE_TREE`` or ``BAD_TREE_ID``.
    """
    ports: dict[str, list[int]] = {name: [] for name in network.switches}
    for link in network.links:
        ports[link.switch].append(link.port)
    onward = routes(network)
    return [
        entry
        for switch, tables in network_tables(network, trees).items()
        for entry in (
            *port_groups(switch, ports[switch]),
            *onward[switch],
            *table_entries(switch, tables, positions),
        )
    ]


def table_entries(
    switch: str, tables: SwitchTables, positions: int = LABELS_A_PASS
) -> list[SwitchEntry]:
    """The entries of one switch for stacks: its host ports, then its labels by position."""
    entries = [
        SwitchEntry(switch, HOST_PORT, (("port", "exact", canonical(port)),), TAKE_STACK_OFF, ())
        for port in sorted(tables.host_ports)
    ]
    masks = [(TREE, number, mask) for number, mask in sorted(tables.trees.items())]
    masks += [(HOP, number, 1 << port - 1) for number, port in sorted(tables.hops.items())]
    masks += [(STOP, number, 1 << port - 1) for number, port in sorted(tables.stops.items())]
    labels = [
        (
            (("label", "exact", canonical(tables.labels.label(kind, number))),),
            _ACTIONS[kind],
            (("ports", canonical(mask)),),
        )
        for kind, number, mask in masks
    ]
    for position in range(1, positions + 1):
        table = label_table(position)
        control = table.removesuffix("look_up")
        entries += [
            SwitchEntry(switch, table, match, control + action, params)
            for match, action, params in labels
        ]
    return entries


def tables_from_entries(
    entries: Iterable[SwitchEntry], labels: LabelFormat = NARROW
) -> SwitchTables:
    """The tables that one switch's entries amount to; groups and routes have no part in them.

    ``labels``: the format that its program reads.

    Raises StackError ``BAD_ENTRY`` for a table, action, field or label that the program has
    not, for two entries of one key, and for a label that means different things by position.
    """
    by_position = tables_by_position(entries, labels)
    first = by_position[0]
    for place, other in enumerate(by_position[1:], 2):
        for what in ("trees", "hops", "stops"):
            odd = dict(vars(first)[what].items() ^ vars(other)[what].items())
            if odd:
                raise StackError(
                    "BAD_ENTRY",
                    f"{what} {sorted(odd)} are not alike in {label_table(1)} and "
                    f"{label_table(place)}: positions must hold the same labels",
                )
    return first


def tables_by_position(
    entries: Iterable[SwitchEntry], labels: LabelFormat = NARROW
) -> list[SwitchTables]:
    """The same, position by position: label number n of a stack is looked up at n modulo these.

    At least one position. They differ while a switch is being written.
    Raises StackError ``BAD_ENTRY`` like :func:`tables_from_entries`.
    """
    positions = {1: SwitchTables(labels=labels)}
    host_ports: set[int] = set()
    seen: set[str] = set()
    for entry in entries:
        if entry.key in seen:
            raise _bad(entry, "a second entry of its key")
        seen.add(entry.key)
        place = _TABLE.fullmatch(entry.table)
        try:
            if place is not None:
                number = int(place[1])
                _read_label(positions.setdefault(number, SwitchTables(labels=labels)), entry)
            elif entry.table == HOST_PORT and entry.action == TAKE_STACK_OFF:
                host_ports.add(_integers(entry.match)["port"])
            elif entry.table not in (GROUPS, ROUTE):
                raise _bad(entry, "the program has no such table, or the table no such action")
        except KeyError as missing:
            raise _bad(entry, f"it lacks {missing}") from None
    made = [
        positions.get(place, SwitchTables(labels=labels)) for place in range(1, max(positions) + 1)
    ]
    for tables in made:
        tables.host_ports = frozenset(host_ports)
    return made


def _read_label(tables: SwitchTables, entry: SwitchEntry) -> None:
    kind, number = tables.labels.split(_integers(entry.match)["label"])
    mask = int.from_bytes(dict(entry.params)["ports"], "big")
    if entry.action != entry.table.removesuffix("look_up") + _ACTIONS[kind]:
        raise _bad(entry, "its action is not the one of its label's type")
    if kind == TREE:
        tables.trees[number] = mask
        return
    if mask.bit_count() != 1:
        raise _bad(entry, "a hop or stop is of one port")
    (tables.hops if kind == HOP else tables.stops)[number] = mask.bit_length()


def _integers(match: tuple[tuple[str, str, bytes], ...]) -> dict[str, int]:
    return {name: int.from_bytes(value, "big") for name, _, value in match}


def _bad(entry: SwitchEntry, why: str) -> StackError:
    return StackError(
        "BAD_ENTRY",
        f"entry {entry.key} -> {entry.action} of switch {entry.switch!r}: {why}",
        switch=entry.switch,
        key=entry.key,
    )
