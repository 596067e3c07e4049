"""The encoders of stored routes: destinations, stored trees, and one of them with hops beside it.

A stored tree floods all that it leads to, so a stack may only name one whose hosts all are to
receive: those that are, but for one that a hop of the stack leads to, are the thesis' stable
receivers (WERNECKE 4.3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import HOP, MAX_LABELS, TREE
from stackcast.udfs.network.network import Host, Link, Network
from stackcast.udfs.network.paths import next_links
from stackcast.udfs.network.stored_routes import BLOCK, BLOCKS, HYBRID, PORT_BITMAPS, ROOT
from stackcast.udfs.network.virtual_tree import VirtualTree, check_ids
from stackcast.udfs.trees.encode import Edges, Encoding, stack_too_long
from stackcast.udfs.trees.steiner import check_receivers
from stackcast.udfs.trees.switch_graph import SwitchGraph

_TRIED = 4
"""Stored trees that are tried for one hybrid stack, the largest ones."""


class StoredRouteEncoder(ABC):
    """Encodes receiver sets of one publisher in an encoding of stored routes.

    Raises NetworkError ``UNKNOWN_HOST`` (publisher) and, for trees that do not fit the network,
    ``UNKNOWN_LINK`` and ``BAD_TREE_ID``.
    """

    def __init__(
        self,
        network: Network,
        publisher: str,
        trees: Iterable[VirtualTree],
        max_labels: int = MAX_LABELS,
    ) -> None:
        self._network = network
        self._max_labels = max_labels
        self._trees = tuple(tree for tree in trees if tree.state == "active")
        check_ids(self._trees, network.labels)
        self._source = network.host(publisher)

    def of(self, publisher: str) -> StoredRouteEncoder:
        """Returns the encoder of another publisher, for the same thread. Raises NetworkError
        ``UNKNOWN_HOST``."""
        made = copy(self)
        made.__dict__.pop("_usable", None)
        made._source = self._network.host(publisher)
        return made

    def encode(self, receivers: frozenset[str]) -> list[Encoding]:
        """Returns stacks that bring a notification to each receiver exactly once, to nobody else.

        Several stacks have disjoint receivers. Raises NetworkError ``UNKNOWN_HOST``,
        ``PUBLISHER_AS_RECEIVER``, ``UNREACHABLE`` (by usable links), ``STACK_TOO_LONG`` and, of
        ``tree``, ``NO_STORED_TREE``.
        """
        check_receivers(self._network, self._source.name, receivers)
        return self._stacks(receivers) if receivers else []

    @abstractmethod
    def _stacks(self, receivers: frozenset[str]) -> list[Encoding]: ...

    @cached_property
    def _usable(self) -> list[_Tree]:
        """The stored trees that the publisher may use, those of the most hosts first."""
        found = (_Tree.of(self._network, self._source, tree) for tree in self._trees)
        return sorted(
            (tree for tree in found if tree is not None),
            key=lambda tree: (-len(tree.hosts), len(tree.edges), tree.id),
        )

    def _unreachable(self, hosts: Iterable[str]) -> NetworkError:
        names = sorted(hosts)
        return NetworkError(
            "UNREACHABLE",
            f"there is no usable path from {self._source.switch!r} to {', '.join(names)}",
            receivers=names,
        )


@dataclass(frozen=True)
class _Tree:
    """A stored tree as a publisher uses it. ``hosts``: whom it leads to; ``edges`` as the
    notification flows, the publisher's link first; ``switches``: those that it passes."""

    id: int
    hosts: frozenset[str]
    edges: Edges
    switches: frozenset[str]

    @classmethod
    def of(cls, network: Network, source: Host, tree: VirtualTree) -> _Tree | None:
        """Returns None where the tree leads nowhere from there, or over a failed link."""
        beside: dict[str, list[str]] = {}
        for pair in sorted(tree.edges):
            switch, other = pair if pair[0] in network.switches else pair[::-1]
            if not network.usable(network.tree_link(switch, other)):
                return None
            beside.setdefault(switch, []).append(other)
            beside.setdefault(other, []).append(switch)
        edges, hosts = [(source.name, source.switch)], set[str]()
        waiting = [edges[0]]
        while waiting:
            u, v = waiting.pop()
            if v in network.hosts:
                hosts.add(v)
                continue
            onward = [(v, w) for w in beside.get(v, ()) if w not in (u, source.name)]
            edges += onward
            waiting += onward
        if not hosts:
            return None
        passed = frozenset(v for _, v in edges if v in network.switches)
        return cls(tree.id, frozenset(hosts), tuple(edges), passed)


class DestinationsEncoder(StoredRouteEncoder):
    """Names every receiver; those behind the same links stand together."""

    def _stacks(self, receivers: frozenset[str]) -> list[Encoding]:
        paths = {host: self._path(self._network.hosts[host]) for host in sorted(receivers)}
        ordered = sorted(paths, key=lambda host: paths[host])
        return [
            self._stack(ordered[at : at + self._max_labels], paths)
            for at in range(0, len(ordered), self._max_labels)
        ]

    def _stack(self, hosts: Sequence[str], paths: Mapping[str, Edges]) -> Encoding:
        network = self._network
        labels = (network.link(network.hosts[host].switch, host).id for host in hosts)
        edges = dict.fromkeys(edge for host in hosts for edge in paths[host])
        return Encoding(tuple(labels), tuple(sorted(hosts)), tuple(edges))

    @cached_property
    def _onward(self) -> dict[str, dict[tuple[str, str], Link]]:
        return {}

    def _path(self, host: Host) -> Edges:
        """Returns the edges that a label of this host takes."""
        if host.switch not in self._onward:
            self._onward[host.switch] = next_links(self._network, {host.switch})
        onward, at = self._onward[host.switch], self._source.switch
        path = [(self._source.name, at)]
        while at != host.switch:
            link = onward.get((at, host.switch))
            if link is None:
                raise self._unreachable([host.name])
            path.append((at, link.neighbor))
            at = link.neighbor
        return (*path, (at, host.name))


class PortBitmapEncoder(DestinationsEncoder):
    """Names the receivers of each switch by whichever takes fewer labels: themselves, or their
    switch and its ports."""

    def _stacks(self, receivers: frozenset[str]) -> list[Encoding]:
        by_switch: dict[str, list[Host]] = {}
        for name in sorted(receivers):
            host = self._network.hosts[name]
            by_switch.setdefault(host.switch, []).append(host)
        paths = {host: self._path(self._network.hosts[host]) for host in sorted(receivers)}
        stacks: list[tuple[list[int], list[str]]] = [([], [])]
        for some in sorted(by_switch.values(), key=lambda hosts: paths[hosts[0].name]):
            for labels, named in self._named(some):
                if len(stacks[-1][0]) + len(labels) > self._max_labels:
                    stacks.append(([], []))
                stacks[-1][0].extend(labels)
                stacks[-1][1].extend(named)
        return [
            Encoding(
                tuple(labels),
                tuple(sorted(named)),
                tuple(dict.fromkeys(edge for host in named for edge in paths[host])),
            )
            for labels, named in stacks
        ]

    def _named(self, hosts: Sequence[Host]) -> list[tuple[list[int], list[str]]]:
        """Returns labels that name the hosts of one switch, each time with whom they name."""
        network = self._network
        beyond = [host for host in hosts if host.port > BLOCKS * BLOCK]
        if beyond and len(beyond) < len(hosts):
            within = [host for host in hosts if host not in beyond]
            return self._named(within) + self._named(beyond)
        alone = [PORT_BITMAPS.host(network.link(host.switch, host.name).id) for host in hosts]
        device = network.switches[hosts[0].switch].device_id
        mask = sum(1 << host.port - 1 for host in hosts)
        ports = [] if beyond else PORT_BITMAPS.ports(mask)
        if beyond or (None not in alone and len(hosts) <= 1 + len(ports)):
            return [
                ([label], [host.name]) for label, host in zip(alone, hosts, strict=True) if label
            ]
        most = self._max_labels - 1
        if most < 1:
            raise stack_too_long(hosts[0].name, 2, self._source.name, self._max_labels)
        found = []
        for at in range(0, len(ports), most):
            some = ports[at : at + most]
            mask = sum(PORT_BITMAPS.mask(label) for label in some)
            named = [host.name for host in hosts if mask >> host.port - 1 & 1]
            found.append(([PORT_BITMAPS.switch(device), *some], named))
        return found


class TreeEncoder(StoredRouteEncoder):
    """Names one stored tree a stack; a set that none leads to exactly is put together of several,
    the largest first."""

    def _stacks(self, receivers: frozenset[str]) -> list[Encoding]:
        found, left = [], receivers
        for tree in self._usable:
            if tree.hosts <= left:
                found.append(Encoding((tree.id,), tuple(sorted(tree.hosts)), tree.edges))
                left -= tree.hosts
        if left:
            names = ", ".join(sorted(left))
            raise NetworkError(
                "NO_STORED_TREE",
                f"no stored tree leads from {self._source.name!r} to exactly the receivers {names}",
                receivers=sorted(left),
            )
        return found


class HybridEncoder(StoredRouteEncoder):
    """Names at most one stored tree, and hops to the receivers that it does not lead to."""

    def _stacks(self, receivers: frozenset[str]) -> list[Encoding]:
        fitting = [tree for tree in self._usable if tree.hosts <= receivers]
        tried = [self._parts(tree, receivers) for tree in (*fitting[:_TRIED], None)]
        return min(tried, key=lambda stacks: (len(stacks), sum(len(s.labels) for s in stacks)))

    @cached_property
    def _graph(self) -> SwitchGraph:
        return SwitchGraph(self._network)

    def _parts(self, tree: _Tree | None, receivers: frozenset[str]) -> list[Encoding]:
        """Encodes receivers, those of the tree among them, in as many stacks as are needed."""
        others = receivers - tree.hosts if tree else receivers
        above = self._attach(tree.switches if tree else {self._source.switch}, others)
        parts = self._subtrees(above)
        labels = [HYBRID.label(TREE, tree.id)] if tree else []
        for root, edges in parts:
            if root != self._source.switch:
                labels.append(HYBRID.label(ROOT, self._network.switches[root].device_id))
            labels += [HYBRID.label(HOP, self._network.link(*edge).id) for edge in edges]
        hops = [edge for _, edges in parts for edge in edges]
        if len(labels) <= self._max_labels:
            first = tree.edges if tree else ((self._source.name, self._source.switch),)
            return [Encoding(tuple(labels), tuple(sorted(receivers)), (*first, *hops))]
        ordered = [v for _, v in hops if v in others]
        if len(ordered) == 1 and not tree:
            raise stack_too_long(ordered[0], len(labels), self._source.name, self._max_labels)
        middle = len(ordered) // 2
        first_half = frozenset(ordered[:middle]) | (tree.hosts if tree else frozenset())
        return self._parts(tree, first_half) + self._parts(None, frozenset(ordered[middle:]))

    def _attach(self, inside: Iterable[str], hosts: Iterable[str]) -> dict[str, str]:
        """Joins hosts to a tree, the nearest switch first (Takahashi and Matsuyama, as in
        `stackcast.udfs.trees.steiner`); returns of each node that is added the one above it."""
        graph = self._graph
        by_switch: dict[int, list[str]] = {}
        for host in sorted(hosts):
            by_switch.setdefault(graph.index[self._network.hosts[host].switch], []).append(host)
        member = {graph.index[name] for name in inside}
        distance = dict.fromkeys(member, 0)
        before: dict[int, int] = {}
        heap = [(0, u) for u in sorted(member)]
        left = by_switch.keys() - member
        found = {host: graph.names[u] for u, some in by_switch.items() for host in some}
        while left:
            if not heap:
                apart = [host for u in left for host in by_switch[u]]
                raise self._unreachable(apart)
            reached, u = heappop(heap)
            if reached > distance[u]:
                continue
            if u in left:
                left.discard(u)
                while u not in member:
                    member.add(u)
                    distance[u] = 0
                    heappush(heap, (0, u))
                    found[graph.names[u]] = graph.names[before[u]]
                    u = before[u]
                continue
            for v, _, cost in graph.adjacency[u]:
                if v not in member and reached + cost < distance.get(v, reached + cost + 1):
                    distance[v], before[v] = reached + cost, u
                    heappush(heap, (reached + cost, v))
        return found

    def _subtrees(self, above: Mapping[str, str]) -> list[tuple[str, list[tuple[str, str]]]]:
        """Returns the roots of what was attached, the publisher's switch first, each with the edges
        below it in preorder."""
        children: dict[str, list[str]] = {}
        for node, parent in above.items():
            children.setdefault(parent, []).append(node)
        roots = sorted(
            children.keys() - above.keys(), key=lambda name: (name != self._source.switch, name)
        )
        return [(root, list(self._walk(children, root))) for root in roots]

    def _walk(self, children: Mapping[str, Sequence[str]], root: str) -> Iterator[tuple[str, str]]:
        def port(edge: tuple[str, str]) -> int:
            return self._network.link(*edge).port

        waiting = sorted(((root, v) for v in children[root]), key=port, reverse=True)
        while waiting:
            edge = waiting.pop()
            yield edge
            below = ((edge[1], v) for v in children.get(edge[1], ()))
            waiting += sorted(below, key=port, reverse=True)
