"""The program and entries that tests of sessions with switches share."""

from __future__ import annotations

from paths import P4

from jobs.adapters.switches.program import P4Program
from udfs.network.labels import NARROW, TREE
from udfs.switches.entry import SwitchEntry, canonical, group_entry
from udfs.switches.match import Match

PIPELINE = P4Program.read(P4, "virtual_trees")


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
