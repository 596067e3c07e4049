"""Entries of the switches that forward by header stacks, derived from network and trees.

Tables and actions are those of ``p4/virtual_trees.p4``, ``p4/source_routes.p4`` and
``p4/stored_routes.p4``, compiled for the labels of each format.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from stackcast.udfs.errors import SwitchError
from stackcast.udfs.network.labels import SwitchTables
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import network_tables
from stackcast.udfs.switches.entry import SwitchEntry, canonical, group_entry
from stackcast.udfs.switches.ports import port_groups
from stackcast.udfs.switches.routes import routes
from stackcast.udfs.switches.sources import sources
from stackcast.udfs.switches.tunnels import tunnel_entries

LABELS_A_PASS = 8
"""Positions of the shipped program: labels that one pass through a switch looks at."""

HOST_PORT = "egress.host_port"
TAKE_STACK_OFF = "egress.take_stack_off"

SPLIT = 0x1100
"""The group of source routes that makes two copies of a frame; both come by again."""
_COPIES = 65, 66

_TABLE = re.compile(r"ingress\.label_([1-9]\d*)\.look_up")


def label_table(position: int) -> str:
    """Returns the table that a pass looks its label number ``position`` (from 1) up in."""
    return f"ingress.label_{position}.look_up"


def positions_of(tables: Iterable[str]) -> int:
    """Counts the labels a pass of a program with these tables: ``positions`` of `switch_entries`.

    Raises SwitchError ``WRONG_PROGRAM`` if it is none of this family.
    """
    found = {int(match[1]) for name in tables if (match := _TABLE.fullmatch(name))}
    if not found or found != set(range(1, len(found) + 1)):
        missing = next(n for n in range(1, len(found) + 2) if n not in found)
        raise SwitchError(
            "WRONG_PROGRAM",
            f"the program of the switch has no table {label_table(missing)!r}, so it cannot read "
            "header stacks",
            table=label_table(missing),
        )
    return len(found)


def switch_entries(
    network: Network, trees: Iterable[VirtualTree], positions: int = LABELS_A_PASS
) -> list[SwitchEntry]:
    """Returns all entries of all switches: groups, sources, routes, tunnels, host ports, labels.

    A switch holds every given tree that it is on (in any state), a hop and a stop label for
    each of its links, or what it looks its own labels of source routes up by; the groups of its
    ports, its host ports, its ends of tunnels, and IPv4 routes. Labels are there
    ``positions`` times, once for each label of a pass (:func:`positions_of`). Whether a link is
    ``up`` matters to routes alone.

    Raises NetworkError ``UNKNOWN_LINK`` (a tree's edge), ``DUPLICATE_TREE`` or ``BAD_TREE_ID``.
    """
    ports: dict[str, list[int]] = {name: [] for name in network.switches}
    for link in network.links:
        ports[link.switch].append(link.port)
    allowed, onward, ends = sources(network), routes(network), tunnel_entries(network)
    return [
        entry
        for switch, tables in network_tables(network, trees).items()
        for entry in (
            *port_groups(switch, ports[switch]),
            *(splitting(switch, ports[switch]) if network.labels.splits else ()),
            *allowed[switch],
            *onward[switch],
            *ends[switch],
            *table_entries(switch, tables, positions),
        )
    ]


def splitting(switch: str, ports: Collection[int]) -> list[SwitchEntry]:
    """Returns the group that makes two frames of one: for one run of labels, and for the rest."""
    return [group_entry(switch, SPLIT, [(min(ports), copy) for copy in _COPIES])] if ports else []


def table_entries(
    switch: str, tables: SwitchTables, positions: int = LABELS_A_PASS
) -> list[SwitchEntry]:
    """Returns the entries of one switch for stacks: its host ports, then its labels by position."""
    entries = [
        SwitchEntry(switch, HOST_PORT, (("port", "exact", canonical(port)),), TAKE_STACK_OFF, ())
        for port in sorted(tables.host_ports)
    ]
    rows = list(tables.labels.rows(tables))
    for position in range(1, positions + 1):
        table = label_table(position)
        control = table.removesuffix("look_up")
        entries += [
            SwitchEntry(
                switch,
                table,
                ((row.field, "exact", canonical(row.key)),),
                control + row.action,
                tuple((name, canonical(value)) for name, value in row.params.items()),
            )
            for row in rows
        ]
    return entries
