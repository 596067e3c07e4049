"""The forwarding model: how switches forward a frame by its header stack (WERNECKE 5.2.5, 5.2.6).

This is the reference that encoder, software switch and P4 program are held against.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from udfs.errors import NetworkError
from udfs.network.labels import (
    HOP,
    NARROW,
    STOP,
    TREE,
    LabelFormat,
    TypedLabels,
)
from udfs.network.network import MAX_PORT, Link, Network
from udfs.network.paths import next_links
from udfs.network.source_routes import HopLabels, SourceRoute, SwitchLabels
from udfs.network.stored_routes import (
    DESTINATIONS,
    HYBRID,
    PORT_BITMAPS,
    PORTS,
    ROOT,
    BitmapLabels,
    StoredRoute,
)
from udfs.network.virtual_tree import VirtualTree, check_ids, stored, tree_ports
from udfs.stacks.source_routes import forward_route
from udfs.stacks.stored_routes import StoredTables, forward_stored

ETHERNET_BYTES = 14
COUNT_BYTES = 2


@dataclass
class SwitchTables:
    """Holds the tables of one switch for stacks.

    trees: tree id → port bitmask (bit port - 1); of `destinations`, a host's link id → the same, of
    `port_bitmaps` the label of a host or of another switch.
    hops, stops: link id → egress port, of this switch's own links. host_ports: ports before which
    the stack is taken off. sources: ports that stacks may come in by, those of switches and
    publishers. labels: the format of the stacks that its program reads. own: of source routes, what
    own labels are looked up by → the ports that they may name; of `port_bitmaps`, its device id →
    the same. device: its id, which roots of hybrid stacks name.
    """

    trees: dict[int, int] = field(default_factory=dict)
    hops: dict[int, int] = field(default_factory=dict)
    stops: dict[int, int] = field(default_factory=dict)
    host_ports: frozenset[int] = frozenset()
    sources: frozenset[int] = frozenset(range(1, MAX_PORT + 1))
    labels: LabelFormat = NARROW
    own: dict[int, int] = field(default_factory=dict)
    device: int = 0


def forward(
    tables: SwitchTables, ingress_port: int, labels: tuple[int, ...]
) -> list[tuple[int, tuple[int, ...] | None]]:
    """Returns the copies that a switch sends: ``(egress port, labels left)``, by ascending port.

    All labels are examined. Known trees and own hop labels choose ports, each served once and
    never the ingress port; an own stop label prunes its port wherever it stands. Own hop and
    stop labels leave every copy, all else stays. ``None`` for the labels: a host port, where
    the copy leaves as a plain IPv4 frame.

    A stack that is empty, longer than switches parse, has a label of type 00, or comes from a host
    that is no publisher is dropped: []. Source routes are forwarded as
    `udfs.stacks.source_routes.forward_route` says, stored ones as
    `udfs.stacks.stored_routes.forward_stored`.
    """
    if ingress_port not in tables.sources or not 0 < len(labels) <= tables.labels.max_labels:
        return []
    if isinstance(tables.labels, SourceRoute):
        return forward_route(tables.labels, tables.own, tables.host_ports, ingress_port, labels)
    if isinstance(tables.labels, StoredRoute):
        ports = tables.own.get(tables.device, 0)
        held = StoredTables(tables.trees, tables.hops, tables.device, ports)
        return forward_stored(tables.labels, held, tables.host_ports, ingress_port, labels)
    assert isinstance(tables.labels, TypedLabels)
    id_bits, max_id = tables.labels.id_bits, tables.labels.max_id
    ports = pruned = 0
    left: list[int] = []
    for label in labels:
        kind, number = label >> id_bits, label & max_id
        if kind == TREE:
            ports |= tables.trees.get(number, 0)
        elif kind == HOP:
            if number in tables.hops:
                ports |= 1 << tables.hops[number] - 1
                continue
        elif kind == STOP:
            if number in tables.stops:
                pruned |= 1 << tables.stops[number] - 1
                continue
        else:
            return []
        left.append(label)
    ports &= ~(pruned | 1 << ingress_port - 1)
    stack = tuple(left)
    copies: list[tuple[int, tuple[int, ...] | None]] = []
    while ports:
        lowest = ports & -ports
        port = lowest.bit_length()
        copies.append((port, None if port in tables.host_ports else stack))
        ports ^= lowest
    return copies


@dataclass(frozen=True)
class ForwardingResult:
    """Holds the ways that a frame took.

    hosts: copies that each host received as a plain frame. links: every transmission
    ``(u, v, labels on the link)`` in the order of distance from the publisher, with its own
    link first; 0 labels towards hosts. loop: some copy came back to a switch that it had been
    through (it ends there), or copies multiplied beyond any use (a storm, cut off).
    """

    hosts: Counter[str]
    links: list[tuple[str, str, int]]
    loop: bool


class ForwardingModel:
    """Models a network whose switches hold ``tables``.

    A switch that reads other labels than the network's drops what has a stack: it does not know the
    EtherType.
    """

    def __init__(self, network: Network, tables: Mapping[str, SwitchTables]) -> None:
        self._network = network
        nothing = SwitchTables(labels=network.labels)
        self._tables = {
            name: held if held.labels == network.labels else nothing
            for name, held in ((name, tables.get(name, nothing)) for name in network.switches)
        }
        self._ends = {
            (link.switch, link.port): (link.neighbor, link.neighbor_port)
            for link in network.links
            if network.usable(link)
        }
        self._storm = 16 * len(network.links) + 16

    def deliver(self, publisher: str, labels: tuple[int, ...]) -> ForwardingResult:
        """Sends one frame from ``publisher`` and follows every copy to its end.

        Copies out of a failed or unplugged port are lost; a host whose port is not marked as
        one in its switch's tables understands no stack and receives nothing.
        A host that is no publisher by the tables gets nothing through.
        Raises NetworkError ``UNKNOWN_HOST``.
        """
        source = self._network.host(publisher)
        hosts: Counter[str] = Counter()
        if (source.switch, source.port) not in self._ends:
            return ForwardingResult(hosts, [], False)
        links = [(publisher, source.switch, len(labels))]
        loop = False
        start = (source.switch, source.port, labels, (source.switch,))
        waiting: deque[tuple[str, int, tuple[int, ...], tuple[str, ...]]] = deque([start])
        while waiting:
            switch, ingress, stack, path = waiting.popleft()
            for port, left in forward(self._tables[switch], ingress, stack):
                end = self._ends.get((switch, port))
                if end is None:
                    continue
                neighbor, neighbor_port = end
                links.append((switch, neighbor, len(left or ())))
                if neighbor_port is None:
                    if left is None:
                        hosts[neighbor] += 1
                elif neighbor in path or len(links) > self._storm:
                    loop = True
                elif left:
                    waiting.append((neighbor, neighbor_port, left, (*path, neighbor)))
        return ForwardingResult(hosts, links, loop)


def network_tables(network: Network, trees: Iterable[VirtualTree]) -> dict[str, SwitchTables]:
    """Returns what each switch holds for stacks: host ports, sources, and what labels of the
    network's encoding name: these stored trees, hops and stops, or its own labels of source routes,
    or all destinations.

    Raises NetworkError ``UNKNOWN_LINK`` (a tree's edge), ``DUPLICATE_TREE`` or ``BAD_TREE_ID``.
    """
    tables = {
        name: SwitchTables(labels=network.labels, device=switch.device_id)
        for name, switch in sorted(network.switches.items())
    }
    host_ports: dict[str, set[int]] = {name: set() for name in tables}
    sources: dict[str, set[int]] = {name: set() for name in tables}
    subscribers = set(network.subscribers())
    for link in network.links:
        _add_link(tables[link.switch], network, link)
        if link.neighbor_port is None:
            host_ports[link.switch].add(link.port)
        if link.neighbor not in subscribers:
            sources[link.switch].add(link.port)
    for name, held in tables.items():
        held.host_ports = frozenset(host_ports[name])
        held.sources = frozenset(sources[name])
    if network.labels in (DESTINATIONS, PORT_BITMAPS):
        _add_destinations(tables, network)
    if isinstance(network.labels, SourceRoute) or network.labels in (DESTINATIONS, PORT_BITMAPS):
        return tables
    seen: set[int] = set()
    trees = sorted(trees, key=lambda tree: tree.id)
    check_ids(trees, network.labels)
    for tree in trees:
        if tree.id in seen:
            raise NetworkError("DUPLICATE_TREE", f"two trees have the id {tree.id}", tree=tree.id)
        seen.add(tree.id)
        for name, mask in tree_ports(network, tree).items():
            tables[name].trees[tree.id] = mask
    return tables


def _add_link(held: SwitchTables, network: Network, link: Link) -> None:
    """Adds what names a port."""
    if isinstance(held.labels, HopLabels):
        held.own[link.id] = 1 << link.port - 1
    elif isinstance(held.labels, SourceRoute | BitmapLabels):
        device = network.switches[link.switch].device_id
        held.own[device] = held.own.get(device, 0) | 1 << link.port - 1
    elif isinstance(held.labels, StoredRoute):
        if held.labels == HYBRID:
            held.hops[link.id] = link.port
    else:
        held.hops[link.id] = held.stops[link.id] = link.port


def _add_destinations(tables: Mapping[str, SwitchTables], network: Network) -> None:
    """Adds, for each host, the port by which the shortest path leaves each switch; of port bitmaps
    also for each switch with hosts."""
    onward = next_links(network)
    bitmaps = network.labels if isinstance(network.labels, BitmapLabels) else None
    for host in network.hosts.values():
        found = network.link(host.switch, host.name).id
        number = bitmaps.host(found) if bitmaps else found
        named = [number] if number else []
        for label in named:
            tables[host.switch].trees[label] = 1 << host.port - 1
        if bitmaps:
            named.append(bitmaps.switch(network.switches[host.switch].device_id))
        for name, held in tables.items():
            link = onward.get((name, host.switch))
            if link is not None:
                held.trees |= dict.fromkeys(named, 1 << link.port - 1)


@dataclass(frozen=True)
class StackPath:
    """Describes the path of a frame.

    labels: one line each. paths: by host, the nodes from the publisher to it. links: every
    transmission ``(from, to, labels on the link)``. copies: how many each host gets.
    """

    labels: tuple[str, ...]
    paths: dict[str, tuple[str, ...]]
    links: tuple[tuple[str, str, int], ...]
    copies: dict[str, int]


def path_of_stack(
    network: Network, trees: Iterable[VirtualTree], publisher: str, labels: Sequence[int]
) -> StackPath:
    """Follows a stack through the network, by the forwarding model.

    The switches hold ``trees`` but for the retired ones. Errors: those of `network_tables`, and
    NetworkError UNKNOWN_HOST.
    """
    held = {tree.id: tree for tree in stored(trees)}
    model = ForwardingModel(network, network_tables(network, held.values()))
    went = model.deliver(publisher, tuple(labels))
    before: dict[str, str] = {}
    for u, v, _ in went.links:
        before.setdefault(v, u)
    return StackPath(
        tuple(_words(label, network, held) for label in labels),
        {host: _path(host, publisher, before) for host in sorted(went.hosts)},
        tuple(went.links),
        dict(sorted(went.hosts.items())),
    )


def _path(host: str, publisher: str, before: dict[str, str]) -> tuple[str, ...]:
    nodes = [host]
    # A stack that leads in a circle ends here as well: each node is passed once.
    while nodes[-1] != publisher and before[nodes[-1]] not in nodes:
        nodes.append(before[nodes[-1]])
    return tuple(reversed(nodes))


def _words(label: int, network: Network, trees: dict[int, VirtualTree]) -> str:
    name = network.labels.describe(label)
    if isinstance(network.labels, SwitchLabels):
        device, _, _ = network.labels.split(label)
        names = [s.name for s in network.switches.values() if s.device_id == device]
        return f"{name}: copies from {names[0]}" if names else f"{name}: no switch of the network"
    if network.labels == DESTINATIONS:
        to = network.link_by_id.get(label)
        return f"{name}: the path to {to.neighbor}" if to else f"{name}: no host of the network"
    if isinstance(network.labels, TypedLabels | StoredRoute):
        kind, number = network.labels.split(label)
        if network.labels == PORT_BITMAPS:
            return _of_bitmaps(name, kind, number, network)
    else:
        kind, number = HOP, label
    if kind == ROOT:
        names = [s.name for s in network.switches.values() if s.device_id == number]
        return f"{name}: hops from {names[0] if names else 'no switch of the network'}"
    if kind == TREE:
        tree = trees.get(number)
        what = "unknown" if tree is None else f"{tree.strategy}, over {len(tree.edges)} links"
        return f"{name}: the stored tree ({what})"
    link = network.link_by_id.get(number)
    if link is None:
        return f"{name}: no link of the network"
    copy = "a copy" if kind == HOP else "no copy"
    return f"{name}: {copy} from {link.switch} to {link.neighbor} by port {link.port}"


def _of_bitmaps(name: str, kind: int, number: int, network: Network) -> str:
    if kind == PORTS:
        return f"{name}: copies by these ports of the switch before"
    if kind == ROOT:
        names = [s.name for s in network.switches.values() if s.device_id == number]
        return f"{name}: the path to {names[0] if names else 'no switch of the network'}"
    to = network.link_by_id.get(number)
    return f"{name}: the path to {to.neighbor}" if to else f"{name}: no host of the network"
