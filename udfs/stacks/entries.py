"""What each switch should hold, as rows: derived from network and trees, and read back.

Tables and actions are those of ``p4/virtual_trees.p4info.txtpb``.
"""

from __future__ import annotations

from collections.abc import Iterable

from udfs.errors import NetworkError, StackError
from udfs.stacks.forwarding import SwitchTables
from udfs.stacks.labels import HOP, STOP, TREE, label, split
from udfs.switches.entry import SwitchEntry, canonical
from udfs.trees.network import Network
from udfs.trees.virtual_tree import VirtualTree, tree_ports

CHECK_TREE = "ingress.check_tree"
CHECK_HOP = "ingress.check_hop"
CHECK_STOP = "ingress.check_stop"
HOST_PORT = "egress.host_port"

ACTIONS = {
    CHECK_TREE: "ingress.set_tree_ports",
    CHECK_HOP: "ingress.set_hop_port",
    CHECK_STOP: "ingress.set_stop_port",
    HOST_PORT: "egress.take_stack_off",
}


def switch_entries(network: Network, trees: Iterable[VirtualTree]) -> list[SwitchEntry]:
    """All entries of all switches, sorted by switch, table and match.

    A switch holds every given tree that it is on (in any state), a hop and a stop label for
    each of its links, and its host ports. Edges of trees over failed links are left out.

    Raises NetworkError ``UNKNOWN_LINK`` (a tree's edge) or ``DUPLICATE_TREE``.
    """
    return [
        entry
        for switch, tables in network_tables(network, trees).items()
        for entry in _entries_of(switch, tables)
    ]


def network_tables(network: Network, trees: Iterable[VirtualTree]) -> dict[str, SwitchTables]:
    """The same as :func:`switch_entries` in the form of the forwarding model, by switch."""
    tables = {name: SwitchTables() for name in sorted(network.switches)}
    host_ports: dict[str, set[int]] = {name: set() for name in tables}
    for link in network.links:
        tables[link.switch].hops[link.id] = link.port
        tables[link.switch].stops[link.id] = link.port
        if link.neighbor_port is None:
            host_ports[link.switch].add(link.port)
    for name, ports in host_ports.items():
        tables[name].host_ports = frozenset(ports)
    seen: set[int] = set()
    for tree in sorted(trees, key=lambda tree: tree.id):
        if tree.id in seen:
            raise NetworkError("DUPLICATE_TREE", f"two trees have the id {tree.id}", tree=tree.id)
        seen.add(tree.id)
        for name, mask in tree_ports(network, tree).items():
            tables[name].trees[tree.id] = mask
    return tables


def _entries_of(switch: str, tables: SwitchTables) -> Iterable[SwitchEntry]:
    for port in sorted(tables.host_ports):
        yield _entry(switch, HOST_PORT, ("port", port))
    for number, port in sorted(tables.hops.items()):
        yield _entry(switch, CHECK_HOP, ("label", label(HOP, number)), ("port", port))
    for number, port in sorted(tables.stops.items()):
        yield _entry(switch, CHECK_STOP, ("label", label(STOP, number)), ("port", port))
    for number, mask in sorted(tables.trees.items()):
        yield _entry(switch, CHECK_TREE, ("label", label(TREE, number)), ("ports", mask))


def _entry(
    switch: str, table: str, match: tuple[str, int], *params: tuple[str, int]
) -> SwitchEntry:
    return SwitchEntry(
        switch,
        table,
        ((match[0], "exact", canonical(match[1])),),
        ACTIONS[table],
        tuple((name, canonical(value)) for name, value in params),
    )


def tables_from_entries(entries: Iterable[SwitchEntry]) -> SwitchTables:
    """The tables that one switch's entries amount to.

    Raises StackError ``BAD_ENTRY`` for a table, action, field or label that the pipeline has
    not, and for two entries of one key.
    """
    tables = SwitchTables()
    host_ports: set[int] = set()
    seen: set[str] = set()
    for entry in entries:
        if ACTIONS.get(entry.table) != entry.action or entry.key in seen:
            raise _bad(entry, "unknown table, wrong action for it, or a second entry of its key")
        seen.add(entry.key)
        match = {name: int.from_bytes(value, "big") for name, _, value in entry.match}
        params = {name: int.from_bytes(value, "big") for name, value in entry.params}
        try:
            if entry.table == HOST_PORT:
                host_ports.add(match["port"])
                continue
            kind, number = split(match["label"])
            if (entry.table, kind) == (CHECK_TREE, TREE):
                tables.trees[number] = params["ports"]
            elif (entry.table, kind) == (CHECK_HOP, HOP):
                tables.hops[number] = params["port"]
            elif (entry.table, kind) == (CHECK_STOP, STOP):
                tables.stops[number] = params["port"]
            else:
                raise _bad(entry, "its label is of another type than its table")
        except KeyError as missing:
            raise _bad(entry, f"it lacks {missing}") from None
    tables.host_ports = frozenset(host_ports)
    return tables


def _bad(entry: SwitchEntry, why: str) -> StackError:
    return StackError(
        "BAD_ENTRY",
        f"entry {entry.key} -> {entry.action} of switch {entry.switch!r}: {why}",
        switch=entry.switch,
        key=entry.key,
    )
