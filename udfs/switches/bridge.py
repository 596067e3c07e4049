"""Entries that let ARP and IPv6 pass beside the subscriptions, by Ethernet address (KUNDEL III-A).

A host's address leads to it as IPv4 would. Group addresses, those of broadcasts among them, lead to
all hosts by the links of one tree, so that nothing comes twice and nothing goes in a circle.
"""

from __future__ import annotations

from stackcast.udfs.network.network import Link, Network
from stackcast.udfs.network.paths import next_links
from stackcast.udfs.switches.entry import SwitchEntry, canonical
from stackcast.udfs.switches.match import Match
from stackcast.udfs.switches.ports import port_mask

BRIDGE = "ingress.bridged.ethernet"
SEND = "ingress.bridged.send_to_ports"

_ALL = (1 << 48) - 1
_GROUP = 1 << 40
"""The bit of an Ethernet address that says it is a group's."""


def bridging(network: Network) -> dict[str, list[SwitchEntry]]:
    """Returns the entries of the bridge's table, by switch; every switch is there.

    A host that no usable link leads to has none on the switches that cannot reach it. Raises
    NetworkError TOO_MANY_PORTS.
    """
    onward = next_links(network)
    ports: dict[str, list[int]] = {name: [] for name in sorted(network.switches)}
    for link in spanning_links(network):
        ports[link.switch].append(link.port)
    found: dict[str, list[SwitchEntry]] = {name: [] for name in ports}
    for host in network.hosts.values():
        if not network.usable(network.link(host.switch, host.name)):
            continue
        ports[host.switch].append(host.port)
        for name, entries in found.items():
            if name == host.switch:
                entries.append(_entry(name, host.mac, _ALL, [host.port]))
            elif (name, host.switch) in onward:
                entries.append(_entry(name, host.mac, _ALL, [onward[name, host.switch].port]))
    for name, entries in found.items():
        if ports[name]:
            entries.append(_entry(name, _GROUP, _GROUP, ports[name]))
    return found


def spanning_links(network: Network) -> list[Link]:
    """Returns the links of a tree of the switches, both ways; of each part where there are parts.

    Those of the least weight, of these of the lowest ids.
    """
    usable = [x for x in network.links if x.neighbor in network.switches and network.usable(x)]
    part = {name: name for name in network.switches}

    def part_of(name: str) -> str:
        while part[name] != name:
            name = part[name]
        return name

    found = []
    for link in sorted(usable, key=lambda link: (link.weight, link.id)):
        one, other = part_of(link.switch), part_of(link.neighbor)
        if one != other:
            assert link.neighbor_port is not None
            part[one] = other
            found += [link, network.link_at(link.neighbor, link.neighbor_port)]
    return found


def _entry(switch: str, value: int, mask: int, ports: list[int]) -> SwitchEntry:
    match = Match("dst", "ternary", canonical(value), canonical(mask)).joined()
    params = (("ports", canonical(port_mask(ports))),)
    # No host's address is a group's, so no two entries meet.
    return SwitchEntry(switch, BRIDGE, (("dst", "ternary", match),), SEND, params, 1)
