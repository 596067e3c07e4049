"""Read entries of a switch back as tables of the forwarding model; entries for session tests."""

from __future__ import annotations

import re
from collections.abc import Iterable

from paths import COMPILED_P4

from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.udfs.errors import StackError
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE, LabelFormat, SwitchTables
from stackcast.udfs.switches.entry import GROUPS, SwitchEntry, canonical, group_entry
from stackcast.udfs.switches.match import Match
from stackcast.udfs.switches.routes import ROUTE
from stackcast.udfs.switches.sources import HOST, SOURCE, TRUST
from stackcast.udfs.switches.stack_entries import HOST_PORT, TAKE_STACK_OFF, label_table

_ACTIONS = {TREE: "tree", HOP: "hop", STOP: "stop"}
_TABLE = re.compile(r"ingress\.label_([1-9]\d*)\.look_up")


def tables_from_entries(
    entries: Iterable[SwitchEntry], labels: LabelFormat = NARROW
) -> SwitchTables:
    """Returns the tables that one switch's entries amount to; groups and routes have no part in
    them.

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
    """Returns the same, position by position: label number n of a stack is looked up at n modulo
    these.

    At least one position. They differ while a switch is being written.
    Raises StackError ``BAD_ENTRY`` like :func:`tables_from_entries`.
    """
    positions = {1: SwitchTables(labels=labels)}
    host_ports: set[int] = set()
    sources: set[int] = set()
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
            elif entry.table == SOURCE and entry.action in (TRUST, HOST):
                if entry.action == TRUST:
                    sources.add(_integers(entry.match)["port"])
            elif entry.table not in (GROUPS, ROUTE):
                raise _bad(entry, "the program has no such table, or the table no such action")
        except KeyError as missing:
            raise _bad(entry, f"it has no {missing}") from None
    made = [
        positions.get(place, SwitchTables(labels=labels)) for place in range(1, max(positions) + 1)
    ]
    for tables in made:
        tables.host_ports = frozenset(host_ports)
        tables.sources = frozenset(sources)
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


PIPELINE = P4Program.read(COMPILED_P4, "virtual_trees")


def tree(number: int, ports: int = 3, position: int = 1) -> SwitchEntry:
    control = f"ingress.label_{position}."
    match = (("label", "exact", canonical(NARROW.label(TREE, number))),)
    return SwitchEntry(
        "s1", control + "look_up", match, control + "tree", (("ports", canonical(ports)),)
    )


def host_port(port: int) -> SwitchEntry:
    match = (("port", "exact", canonical(port)),)
    return SwitchEntry("s1", "egress.host_port", match, "egress.take_stack_off", ())


def route(address: int, length: int, port: int) -> SwitchEntry:
    match = Match("dst", "lpm", canonical(address), b"", length).joined()
    fields = (("dst", "lpm", match),) if length else ()
    send = "ingress.route.send"
    return SwitchEntry("s1", "ingress.route.ipv4", fields, send, (("port", canonical(port)),))


def group(number: int, *ports: int) -> SwitchEntry:
    return group_entry("s1", number, [(port, 0) for port in ports])


SOME = [
    *(tree(n) for n in range(1, 20)),
    *map(host_port, range(1, 5)),
    route(0x0A000000, 8, 1),
    route(0, 0, 2),
    group(1, 1),
    group_entry("s1", 0x1000, [(1, 1), (9, 2)]),
]
