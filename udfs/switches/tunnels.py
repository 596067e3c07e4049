"""Entries of tunnels: which links are some, and which datagrams come out of one.

Tables and actions are those of ``p4/tunnel/ends.p4``, which all programs of header stacks have.
"""

from __future__ import annotations

from udfs.network.network import Network
from udfs.switches.entry import SwitchEntry, canonical

LINK = "egress.tunnel.link"
PUT_ON = "egress.tunnel.put_on"
END = "ingress.leave.end"
TAKE_OFF = "ingress.leave.take_off"


def tunnel_entries(network: Network) -> dict[str, list[SwitchEntry]]:
    """Returns the entries of both tables, by switch; every switch is there.

    Whether a link is ``up`` has no effect.
    """
    found: dict[str, list[SwitchEntry]] = {name: [] for name in sorted(network.switches)}
    for number, (end, far, sends) in network.tunnels.items():
        link = network.link_by_id[number]
        port = ("port", "exact", canonical(link.port))
        came = port, ("src", "exact", canonical(far)), ("dst", "exact", canonical(end.ipv4))
        found[link.switch].append(SwitchEntry(link.switch, END, came, TAKE_OFF, ()))
        if sends:
            params = {"mac": end.mac, "next_hop": end.next_hop, "src": end.ipv4, "dst": far}
            put_on = tuple((name, canonical(value)) for name, value in params.items())
            found[link.switch].append(SwitchEntry(link.switch, LINK, (port,), PUT_ON, put_on))
    return found
