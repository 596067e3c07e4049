"""Entries of the switches that carry replicated state (STARE III-E), derived from the network.

Tables and actions are those of ``p4/state_replication.p4``. Who subscribed is in no entry: switches
learn it from messages, and keep it in registers, or in a table that is their own controller's.
"""

from __future__ import annotations

from collections.abc import Iterable

from stackcast.udfs.network.network import Network
from stackcast.udfs.switches.bridge import spanning_links
from stackcast.udfs.switches.entry import SwitchEntry, canonical
from stackcast.udfs.switches.ports import NARROW_PORTS, port_groups, port_mask
from stackcast.udfs.switches.routes import routes
from stackcast.udfs.switches.sources import SOURCE, receiving_port, trusted_ports

TREE = "ingress.tree"
SPAN = "ingress.span"
PUBLISHER = "ingress.source.publisher"
PROTOCOL = 239

STATE = "ingress.states.state"
STATE_SEND = "ingress.states.send"
STATES_ROLE = "states"
"""The role of P4Runtime that writes table `STATE`: the switch's own controller."""

LEASE = 27
"""A subscription is kept for 2**27 to 2**28 microseconds, 134 to 268 seconds, after it was last
refreshed: three of the refreshes of every 30 seconds may be lost."""


def state_entries(network: Network, lease: int = LEASE) -> list[SwitchEntry]:
    """Returns all entries of all switches: groups, sources, routes, and the tree of each.

    lease: subscriptions are kept for one to two times 2**lease microseconds. The tree joins all
    switches that usable links join, by links of the least weight.
    """
    links: dict[str, list[int]] = {name: [] for name in sorted(network.switches)}
    ports: dict[str, list[int]] = {name: [] for name in links}
    hosts: dict[str, list[int]] = {name: [] for name in links}
    allowed: dict[str, list[SwitchEntry]] = {name: [] for name in links}
    publishers = set(network.publishers())
    for link in spanning_links(network):
        links[link.switch].append(link.port)
    for link in network.links:
        ports[link.switch].append(link.port)
        host = network.hosts.get(link.neighbor)
        if host is None:
            allowed[link.switch] += trusted_ports(link.switch, [link.port])
            continue
        hosts[link.switch].append(link.port)
        make = publishing_port if host.name in publishers else receiving_port
        allowed[link.switch].append(make(link.switch, link.port, host.ipv4))
    return [
        entry
        for switch, onward in routes(network).items()
        for entry in (
            *port_groups(switch, ports[switch]),
            *allowed[switch],
            *onward,
            spanning(switch, links[switch], hosts[switch], lease),
        )
    ]


def spanning(
    switch: str, links: Iterable[int], hosts: Iterable[int], lease: int = LEASE
) -> SwitchEntry:
    """Returns the entry that tells a switch its ports of the tree, and those before hosts."""
    params = (
        ("links", canonical(port_mask(list(links), NARROW_PORTS))),
        ("hosts", canonical(port_mask(list(hosts), NARROW_PORTS))),
        ("lease", canonical(lease)),
    )
    return SwitchEntry(switch, TREE, (("protocol", "exact", canonical(PROTOCOL)),), SPAN, params)


def publishing_port(switch: str, port: int, ipv4: int) -> SwitchEntry:
    """Returns the entry of a port with a host of this address that may publish states."""
    entry = receiving_port(switch, port, ipv4)
    return SwitchEntry(switch, SOURCE, entry.match, PUBLISHER, entry.params)


def state_row(switch: str, state: int, ports: int) -> SwitchEntry:
    """Returns the row of a state for the controller's table: ``ports`` is a mask."""
    match = (("state", "exact", canonical(state)),)
    return SwitchEntry(switch, STATE, match, STATE_SEND, (("ports", canonical(ports)),))
