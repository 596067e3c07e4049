"""The forwarding model: how switches forward a frame by its header stack (WERNECKE 5.2.5, 5.2.6).

This is the reference that encoder, software switch and P4 program are held against.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import Copies, SwitchTables
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.paths import next_links
from stackcast.udfs.network.virtual_tree import VirtualTree, check_ids, stored, tree_ports

ETHERNET_BYTES = 14
COUNT_BYTES = 2


def forward(tables: SwitchTables, ingress_port: int, labels: tuple[int, ...]) -> Copies:
    """Returns the copies that a switch sends, by ascending port, as its encoding says
    (`LabelFormat.forward`).

    A stack that is empty, longer than switches parse, or comes from a host that is no publisher is
    dropped: [].
    """
    if ingress_port not in tables.sources or not 0 < len(labels) <= tables.labels.max_labels:
        return []
    return tables.labels.forward(tables, ingress_port, labels)


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
        network.labels.hold(tables[link.switch], link.id, link.port)
        if link.neighbor_port is None:
            host_ports[link.switch].add(link.port)
        if link.neighbor not in subscribers:
            sources[link.switch].add(link.port)
    for name, held in tables.items():
        held.host_ports = frozenset(host_ports[name])
        held.sources = frozenset(sources[name])
    if network.labels.to_hosts:
        _add_hosts(tables, network)
    if not network.labels.trees:
        return tables
    seen: set[int] = set()
    trees = sorted(trees, key=lambda tree: tree.id)
    check_ids(trees, network.labels)
    for tree in trees:
        if tree.id in seen:
            raise NetworkError(
                "DUPLICATE_TREE", f"two virtual trees have the id {tree.id}", tree=tree.id
            )
        seen.add(tree.id)
        for name, mask in tree_ports(network, tree).items():
            tables[name].trees[tree.id] = mask
    return tables


def _add_hosts(tables: Mapping[str, SwitchTables], network: Network) -> None:
    """Adds, for each host, the port by which the shortest path leaves each switch."""
    onward = next_links(network)
    for host in network.hosts.values():
        own, others = network.labels.labels_of_host(
            network.link(host.switch, host.name).id, network.switches[host.switch].device_id
        )
        tables[host.switch].trees |= dict.fromkeys(own, 1 << host.port - 1)
        for name, held in tables.items():
            link = onward.get((name, host.switch))
            if link is not None:
                held.trees |= dict.fromkeys(others, 1 << link.port - 1)


@dataclass(frozen=True)
class StackPath:
    """Describes the path of a frame.

    labels: one line each. leave_at: the switch at which each label leaves the stack; empty for one
    that stays, as trees do, and for one that names nothing. paths: by host, the nodes from the
    publisher to it. links: every transmission ``(from, to, labels on the link)``. copies: how many
    each host gets.
    """

    labels: tuple[str, ...]
    leave_at: tuple[str, ...]
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
        tuple(_leaving(labels, network)),
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


def _leaving(labels: Iterable[int], network: Network) -> Iterator[str]:
    switches = {switch.device_id: name for name, switch in network.switches.items()}
    switch = ""
    for label in labels:
        of, number, *_ = network.labels.meaning(label)
        if of in ("switch", "ports"):
            # Ports are those of the switch named last.
            switch = switches.get(number, "") if of == "switch" else switch
            yield switch
        else:
            link = network.link_of(label)
            yield link.switch if link else ""


def _words(label: int, network: Network, trees: Mapping[int, VirtualTree]) -> str:
    of, number, words, _ = network.labels.meaning(label)
    name: str | None = None
    if of == "tree":
        tree = trees.get(number)
        name = f"({tree.strategy}, over {len(tree.edges)} links)" if tree else "(unknown)"
    elif of == "switch":
        name = next((s.name for s in network.switches.values() if s.device_id == number), None)
    elif of != "ports" and (link := network.link_by_id.get(number)):
        by_port = f"{link.switch} to {link.neighbor} by port {link.port}"
        name = link.neighbor if of == "host" else by_port
    if of != "ports":
        words = f"{words} {name}" if name else f"no such {of} in the network"
    return f"{network.labels.describe(label)}: {words}"
