"""Entries of tunnels: which links are some, and which datagrams come out of one.

Tables and actions are those of ``p4/tunnel/ends.p4``, which all programs of header stacks have.
"""

from __future__ import annotations

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.tunnel import Tunnel
from stackcast.udfs.switches.entry import SwitchEntry, canonical

LINK = "egress.tunnel.link"
PUT_ON = "egress.tunnel.put_on"
END = "ingress.leave.end"
TAKE_OFF = "ingress.leave.take_off"


def tunnel_entries(network: Network) -> dict[str, list[SwitchEntry]]:
    """Returns the entries of both tables, by switch; every switch is there.

    Whether a link is ``up`` has no effect.
    """
    found: dict[str, list[SwitchEntry]] = {name: [] for name in sorted(network.switches)}
    for number, tunnel in network.tunnels.items():
        link = network.link_by_id[number]
        found[link.switch] += end_entries(link.switch, link.port, tunnel)
    return found


def end_entries(switch: str, port: int, tunnel: Tunnel) -> list[SwitchEntry]:
    """Returns the entries of a tunnel behind a port: what comes out of it, and what goes in."""
    end, far, sends = tunnel
    behind = ("port", "exact", canonical(port))
    came = behind, ("src", "exact", canonical(far)), ("dst", "exact", canonical(end.ipv4))
    entries = [SwitchEntry(switch, END, came, TAKE_OFF, ())]
    if sends:
        params = {"mac": end.mac, "next_hop": end.next_hop, "src": end.ipv4, "dst": far}
        put_on = tuple((name, canonical(value)) for name, value in params.items())
        entries.append(SwitchEntry(switch, LINK, (behind,), PUT_ON, put_on))
    return entries
