"""Routes for plain IPv4 beside the subscriptions: from each switch on to a datagram's host.

Tables and actions are those that every P4 program of ours has under the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, collapse_addresses

from stackcast.udfs.network.network import Host, Network
from stackcast.udfs.network.paths import next_links
from stackcast.udfs.switches.entry import SwitchEntry, canonical
from stackcast.udfs.switches.match import Match

ROUTE = "ingress.route.ipv4"
SEND = "ingress.route.send"
DELIVER = "ingress.route.deliver"

_HOST_BITS = 32


def routes(network: Network) -> dict[str, list[SwitchEntry]]:
    """Returns the entries of the route table, by switch; every switch is there.

    The host's own switch delivers: it puts the host's MAC address in. The others send on by a
    shortest path (sum of the links' weights, then the lowest link id) over usable links;
    addresses that leave by one port share prefixes where these hold no other address. A host that
    no usable link leads to has no entry on the switches that cannot reach it.
    """
    onward = next_links(network)
    hosts: dict[str, list[tuple[Host, IPv4Network]]] = {}
    for host in network.hosts.values():
        if network.usable(network.link(host.switch, host.name)):
            hosts.setdefault(host.switch, []).append((host, IPv4Network(host.ipv4)))
    entries: dict[str, list[SwitchEntry]] = {}
    for name in sorted(network.switches):
        here: list[SwitchEntry] = []
        by_port: dict[int, list[IPv4Network]] = {}
        for goal, attached in hosts.items():
            if goal == name:
                here += [_deliver(name, host.ipv4, host.mac, host.port) for host, _ in attached]
            elif (name, goal) in onward:
                port = onward[name, goal].port
                by_port.setdefault(port, []).extend(address for _, address in attached)
        for port, addresses in sorted(by_port.items()):
            here += _sends(name, port, addresses)
        entries[name] = here
    return entries


def _sends(switch: str, port: int, addresses: Iterable[IPv4Network]) -> Iterator[SwitchEntry]:
    for prefix in collapse_addresses(addresses):
        params = (("port", canonical(port)),)
        yield _route(switch, prefix.network_address, prefix.prefixlen, SEND, params)


def _deliver(switch: str, ipv4: int, mac: int, port: int) -> SwitchEntry:
    params = (("mac", canonical(mac)), ("port", canonical(port)))
    return _route(switch, IPv4Address(ipv4), _HOST_BITS, DELIVER, params)


def _route(
    switch: str, address: IPv4Address, bits: int, action: str, params: tuple[tuple[str, bytes], ...]
) -> SwitchEntry:
    match = Match("dst", "lpm", canonical(int(address)), prefix_length=bits)
    # P4Runtime leaves a prefix of no bits out.
    matches = ((match.name, match.kind, match.joined()),) if bits else ()
    return SwitchEntry(switch, ROUTE, matches, action, params)
