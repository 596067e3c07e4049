"""Who may send what into a switch, by port: entries of a table that every P4 program of ours has.

Only switches and publishers send what is passed on to subscribers. Any other host sends plain
traffic under its own IPv4 address. From a port without an entry nothing is taken, so a port that
nobody wrote into the tables is closed.
"""

from __future__ import annotations

from collections.abc import Iterable

from stackcast.udfs.network.network import Network
from stackcast.udfs.switches.entry import SwitchEntry, canonical

SOURCE = "ingress.source.port"
TRUST = "ingress.source.trust"
HOST = "ingress.source.host"


def sources(network: Network) -> dict[str, list[SwitchEntry]]:
    """Returns the entries of the table, by switch; every switch is there.

    A publisher is a host of that role, however many there are. Whether a link is ``up`` has no
    effect.
    """
    publishers = set(network.publishers())
    found: dict[str, list[SwitchEntry]] = {name: [] for name in sorted(network.switches)}
    for link in network.links:
        host = network.hosts.get(link.neighbor)
        if host is None or host.name in publishers:
            found[link.switch] += trusted_ports(link.switch, [link.port])
        else:
            found[link.switch].append(receiving_port(link.switch, link.port, host.ipv4))
    return found


def trusted_ports(switch: str, ports: Iterable[int]) -> list[SwitchEntry]:
    """Returns entries that take everything from these ports."""
    return [_entry(switch, port, TRUST) for port in ports]


def receiving_port(switch: str, port: int, ipv4: int) -> SwitchEntry:
    """Returns the entry of a port with a host of this address that is no publisher."""
    return _entry(switch, port, HOST, (("ipv4", canonical(ipv4)),))


def _entry(
    switch: str, port: int, action: str, params: tuple[tuple[str, bytes], ...] = ()
) -> SwitchEntry:
    return SwitchEntry(switch, SOURCE, (("port", "exact", canonical(port)),), action, params)
