"""From a receiver set to header stacks (WERNECKE 5.2.7).

A stack is right by its construction. Given a delivery tree and a set of virtual trees in the
stack, every switch on the way must send out of its children's ports and no other: what the
virtual trees lack there becomes a hop label, what they have too much a stop label. So
virtual trees may overlap or close cycles between them: those ports are too much. So are ports
towards failed links, which switches keep in their trees (`udfs.trees.virtual_tree.tree_ports`): a
stop label prunes each where the notification would come by, whether the link is down or up again.

What there is to choose are the delivery tree and the virtual trees. ``greedy`` is Algorithm 5.1.
``refined`` begins with its answer and with the plain Steiner tree, and then makes the one better
for the other in turn: stored trees are added, dropped and exchanged for a delivery tree as it is,
and a delivery tree is grown by what each link adds to the stack for the stored trees as they are.
So its stacks never have more labels than greedy ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from udfs.errors import NetworkError
from udfs.stacks.labels import HOP, MAX_LABELS, STOP, TREE
from udfs.trees import kernels
from udfs.trees.network import Host, Network
from udfs.trees.steiner import check_attached
from udfs.trees.stored_trees import StoredTrees
from udfs.trees.switch_graph import SwitchGraph
from udfs.trees.virtual_tree import VirtualTree

Algorithm = Literal["refined", "greedy"]

#: Receiver sets that an encoder remembers at most, some 100 MB. It lives as long as its network and
#: trees stand, while edited subscriptions bring ever new sets. All are forgotten together: those
#: still in use are encoded again, in less than a millisecond each.
_REMEMBERED = 200_000

#: Delivery trees that the refined algorithm tries at last, by links that the searches look at.
_EFFORT = 20_000
_MOST_EFFORT = 64


@dataclass(frozen=True)
class Encoding:
    """One header stack and what it does.

    labels: as wide as the network's, trees first, then hops and stops by their switch's distance
    from the publisher: those that are used first stand first. receivers: sorted host names. edges:
    ``(u, v)`` as the notification flows, the publisher's link first.
    """

    labels: tuple[int, ...]
    receivers: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Size:
    """What one stack is made of. ``crossings``: its labels on each link that carries the stack, the
    publisher's among them, added up; hops and stops leave it on the way."""

    trees: tuple[int, ...]
    hops: int
    stops: int
    switch_links: int
    crossings: int

    @property
    def labels(self) -> int:
        return len(self.trees) + self.hops + self.stops


def encode(
    network: Network,
    publisher: str,
    receivers: frozenset[str],
    trees: Sequence[VirtualTree],
    max_labels: int = MAX_LABELS,
    algorithm: Algorithm = "refined",
) -> list[Encoding]:
    """:meth:`Encoder.encode` for a single receiver set."""
    return Encoder(network, publisher, trees, max_labels, algorithm).encode(receivers)


class Encoder:
    """Encodes receiver sets of one publisher over one network and its active trees.

    It remembers the sets that it encoded, and pickles without them. ``graph`` and ``stored``, of
    this network and these trees, are made if not given: encoders of many publishers may share them.
    Equally good choices differ by publisher, so that publishers spread over the network.

    Raises NetworkError ``UNKNOWN_HOST`` (publisher), ``BAD_SIZE`` (``max_labels`` outside 1..64)
    and what trees raise that do not fit the network (``UNKNOWN_LINK``, ``DUPLICATE_TREE``,
    ``BAD_TREE_ID``).
    """

    def __init__(
        self,
        network: Network,
        publisher: str,
        trees: Iterable[VirtualTree],
        max_labels: int = MAX_LABELS,
        algorithm: Algorithm = "refined",
        graph: SwitchGraph | None = None,
        stored: StoredTrees | None = None,
    ) -> None:
        if not 0 < max_labels <= MAX_LABELS:
            raise NetworkError(
                "BAD_SIZE", f"a stack of up to {max_labels} labels: switches parse 1..{MAX_LABELS}"
            )
        self._network = network
        self._source = network.host(publisher)
        self._max_labels = max_labels
        self._refined = algorithm == "refined"
        self._graph = graph or SwitchGraph(network)
        self._stored = stored or StoredTrees(network, self._graph, trees)
        self._root = self._graph.index[self._source.switch]
        self._rotation = _rank(network, self._source)
        number = len(self._stored.ids)
        self._order = np.roll(np.arange(number, dtype=np.int64), -(self._rotation % max(number, 1)))
        self._effort = min(_MOST_EFFORT, _EFFORT // max(1, len(self._graph.links.source)))
        self._known: dict[frozenset[str], list[Encoding]] = {}
        self._memory: kernels.Work | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": {}, "_memory": None}

    def encode(self, receivers: frozenset[str]) -> list[Encoding]:
        """Stacks that bring a notification to each receiver exactly once and to nobody else.

        No receivers, no stack. More than one only where a stack would exceed ``max_labels``;
        their receivers are disjoint then (WERNECKE 3.4.1).

        Raises NetworkError ``UNKNOWN_HOST``, ``PUBLISHER_AS_RECEIVER``, ``UNREACHABLE``
        (by usable links) and ``STACK_TOO_LONG`` (one receiver alone exceeds ``max_labels``).
        """
        found = self._known.get(receivers)
        if found is None:
            found = [self._encoding(*part) for part in self._parts(self._hosts(receivers))]
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[receivers] = found
        return found

    def sizes(self, receivers: frozenset[str]) -> list[Size]:
        """Of the stacks of :meth:`encode`, in the same order. Raises as it does; remembers none."""
        return [size for _, size in self._parts(self._hosts(receivers))]

    def _hosts(self, receivers: frozenset[str]) -> list[Host]:
        hosts = [self._network.host(name) for name in sorted(receivers)]
        if self._source.name in receivers:
            raise NetworkError(
                "PUBLISHER_AS_RECEIVER",
                f"{self._source.name!r} cannot receive what it publishes itself",
                host=self._source.name,
            )
        if receivers:
            check_attached(self._network, [*receivers, self._source.name])
        return hosts

    def _parts(self, hosts: list[Host]) -> Iterator[tuple[list[Host], Size]]:
        """Receivers by stack; while one is yielded, what it does stands in the memory."""
        if not hosts:
            return
        size = self._run(hosts)
        if size.labels <= self._max_labels:
            yield hosts, size
            return
        if len(hosts) == 1:
            raise NetworkError(
                "STACK_TOO_LONG",
                f"{hosts[0].name!r} alone needs {size.labels} labels from "
                f"{self._source.name!r}, and a stack holds {self._max_labels}",
                host=hosts[0].name,
            )
        # Branch by branch of the delivery tree: receivers near each other stay together.
        place = self._depth_first(size.switch_links + 1)
        hosts.sort(key=lambda host: (place[self._graph.index[host.switch]], host.name))
        parts = min(len(hosts), -(-size.labels // self._max_labels))
        ends = [len(hosts) * part // parts for part in range(parts + 1)]
        for start, end in pairwise(ends):
            yield from self._parts(hosts[start:end])

    def _run(self, hosts: Sequence[Host]) -> Size:
        work = self._work
        wanted = np.zeros_like(work.wanted)
        for host in hosts:
            wanted[self._graph.index[host.switch]] |= 1 << host.port - 1
        work.wanted[:] = wanted
        terminals = np.flatnonzero(wanted)
        trees = np.empty(kernels.MOST_TREES, np.int64)
        count, number, hops, stops, crossings = kernels.encode(
            self._graph.links,
            self._stored.forest,
            work,
            self._root,
            1 << self._source.port - 1,
            terminals,
            self._rotation,
            self._order,
            trees,
            self._refined,
            self._effort,
            2 * self._max_labels,
        )
        if count < 0:
            raise self._graph.unreachable(self._root, terminals.tolist(), work)
        ids = tuple(self._stored.ids[at] for at in trees[:number].tolist())
        return Size(ids, hops, stops, count - 1, crossings)

    @property
    def _work(self) -> kernels.Work:
        if self._memory is None:
            self._memory = self._graph.work()
        return self._memory

    def _encoding(self, hosts: list[Host], size: Size) -> Encoding:
        """What stands in the memory."""
        work, names, links = self._work, self._graph.names, self._graph.links
        form = self._network.labels
        labels = [form.label(TREE, number) for number in size.trees]
        members = work.members[: size.switch_links + 1]
        parents = work.parent[members[1:]]
        needed, flood, ingress = work.needed[members], work.flood[members], work.ingress[members]
        for name, hops, stops in zip(
            (names[u] for u in members.tolist()),
            (needed & ~flood).tolist(),
            (flood & ~(needed | ingress)).tolist(),
            strict=True,
        ):
            for kind, mask in ((HOP, hops), (STOP, stops)):
                labels += [
                    form.label(kind, self._network.link_at(name, port).id) for port in _ports(mask)
                ]
        hosts = sorted(hosts, key=lambda host: host.name)
        between = zip(
            (names[u] for u in links.source[parents].tolist()),
            (names[v] for v in members[1:].tolist()),
            strict=True,
        )
        return Encoding(
            tuple(labels),
            tuple(host.name for host in hosts),
            (
                (self._source.name, self._source.switch),
                *between,
                *((host.switch, host.name) for host in hosts),
            ),
        )

    def _depth_first(self, count: int) -> NDArray[np.int64]:
        """By switch, its place where the delivery tree is walked branch by branch."""
        work, source = self._work, self._graph.links.source
        members = work.members[:count].tolist()
        children: dict[int, list[int]] = {u: [] for u in members}
        for v in members[1:]:
            children[int(source[work.parent[v]])].append(v)
        place = np.zeros(len(self._graph.names), np.int64)
        waiting, at = [members[0]], 0
        while waiting:
            u = waiting.pop()
            place[u] = at
            at += 1
            waiting += reversed(children[u])
        return place


def _rank(network: Network, source: Host) -> int:
    """The publisher's number among those of its role."""
    return [host.name for host in network.hosts.values() if host.role == source.role].index(
        source.name
    )


def _ports(mask: int) -> Iterator[int]:
    """Ports of a mask, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length()
        mask ^= lowest
