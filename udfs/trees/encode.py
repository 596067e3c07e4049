"""From a receiver set to header stacks: the greedy encoder (WERNECKE 5.2.7, Algorithm 5.1).

A stack is right by its construction. Given a delivery tree and a set of virtual trees in the
stack, every switch on the way must send out of its children's ports and no other: what the
virtual trees lack there becomes a hop label, what they have too much a stop label. So
virtual trees may overlap or close cycles between them: those ports are too much. So are ports
towards failed links, which switches keep in their trees (`udfs.trees.virtual_tree.tree_ports`): a
stop label prunes each where the notification would come by, whether the link is down or up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from udfs.errors import NetworkError
from udfs.stacks.entries import network_tables
from udfs.stacks.forwarding import ForwardingModel
from udfs.stacks.labels import MAX_LABELS
from udfs.trees.delivery_tree import DeliveryTree, StoredTree
from udfs.trees.network import Network
from udfs.trees.steiner import SwitchGraph, check_attached
from udfs.trees.virtual_tree import VirtualTree, stored

#: Receiver sets that an encoder remembers at most, some 100 MB. It lives as long as its network and
#: trees stand, while edited subscriptions bring ever new sets. All are forgotten together: those
#: still in use are encoded again, in less than a millisecond each.
_REMEMBERED = 200_000


@dataclass(frozen=True)
class Encoding:
    """One header stack and what it does.

    labels: 16-bit labels, trees first, then hops and stops in the order of the flow. receivers:
    sorted host names. edges: ``(u, v)`` as the notification flows, the publisher's link first.
    """

    labels: tuple[int, ...]
    receivers: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]


def encode(
    network: Network,
    publisher: str,
    receivers: frozenset[str],
    trees: Sequence[VirtualTree],
    max_labels: int = MAX_LABELS,
) -> list[Encoding]:
    """:meth:`Encoder.encode` for a single receiver set."""
    return Encoder(network, publisher, trees, max_labels).encode(receivers)


class Encoder:
    """Encodes receiver sets of one publisher over one network and its active trees.

    It remembers the sets that it encoded, and pickles. Raises NetworkError ``UNKNOWN_HOST``
    (publisher), ``BAD_SIZE`` (``max_labels`` outside 1..64) and what trees raise that do not fit
    the network (``UNKNOWN_LINK``, ``DUPLICATE_TREE``).
    """

    def __init__(
        self,
        network: Network,
        publisher: str,
        trees: Iterable[VirtualTree],
        max_labels: int = MAX_LABELS,
    ) -> None:
        if not 0 < max_labels <= MAX_LABELS:
            raise NetworkError(
                "BAD_SIZE", f"a stack of up to {max_labels} labels: switches parse 1..{MAX_LABELS}"
            )
        every = sorted(stored(trees), key=lambda tree: tree.id)
        self._network = network
        self._source = network.host(publisher)
        self._max_labels = max_labels
        self._graph = SwitchGraph(network)
        self._root = self._graph.index[self._source.switch]
        self._link_ids: list[dict[int, int]] = [{} for _ in network.switches]
        for link in network.links:
            self._link_ids[self._graph.index[link.switch]][1 << link.port - 1] = link.id
        self._model = ForwardingModel(network, network_tables(network, every))
        self._trees = [
            StoredTree(network, self._graph, tree) for tree in every if tree.state == "active"
        ]
        self._known: dict[frozenset[str], list[Encoding]] = {}

    def encode(self, receivers: frozenset[str]) -> list[Encoding]:
        """Stacks that bring a notification to each receiver exactly once and to nobody else.

        No receivers, no stack. More than one only where a stack would exceed ``max_labels``;
        their receivers are disjoint then (WERNECKE 3.4.1).

        Raises NetworkError ``UNKNOWN_HOST``, ``PUBLISHER_AS_RECEIVER``, ``UNREACHABLE``
        (by usable links) and ``STACK_TOO_LONG`` (one receiver alone exceeds ``max_labels``).
        """
        found = self._known.get(receivers)
        if found is None:
            self._check(receivers)
            found = self._split(receivers) if receivers else []
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[receivers] = found
        return found

    def _check(self, receivers: frozenset[str]) -> None:
        for name in sorted(receivers):
            self._network.host(name)
        if self._source.name in receivers:
            raise NetworkError(
                "PUBLISHER_AS_RECEIVER",
                f"{self._source.name!r} cannot receive what it publishes itself",
                host=self._source.name,
            )
        if receivers:
            check_attached(self._network, [*receivers, self._source.name])

    def _split(self, receivers: frozenset[str]) -> list[Encoding]:
        encoding = self._verified(receivers)
        if len(encoding.labels) <= self._max_labels:
            return [encoding]
        if len(receivers) == 1:
            raise NetworkError(
                "STACK_TOO_LONG",
                f"{encoding.receivers[0]!r} alone needs {len(encoding.labels)} labels from "
                f"{self._source.name!r}, and a stack holds {self._max_labels}",
                host=encoding.receivers[0],
            )
        # Switch by switch in the order of the flow: receivers near each other stay together.
        flow = {v: place for place, (_, v) in enumerate(encoding.edges)}
        order = sorted(
            encoding.receivers, key=lambda name: (flow[self._network.hosts[name].switch], name)
        )
        half = len(order) // 2
        return self._split(frozenset(order[:half])) + self._split(frozenset(order[half:]))

    def _verified(self, receivers: frozenset[str]) -> Encoding:
        """The greedy encoding if the forwarding model agrees with it, else plain hops."""
        for trees in (self._trees, []):
            encoding = self._greedy(receivers, trees)
            # The model drops what no switch would parse; such a stack is split, not sent.
            if len(encoding.labels) > MAX_LABELS or self._delivers(encoding):
                return encoding
        raise NetworkError(
            "NOT_DELIVERABLE",
            f"no stack from {self._source.name!r} reaches exactly {', '.join(sorted(receivers))}",
            receivers=sorted(receivers),
        )

    def _delivers(self, encoding: Encoding) -> bool:
        delivery = self._model.deliver(self._source.name, encoding.labels)
        return (
            not delivery.loop
            and len(delivery.links) == len(encoding.edges)
            and delivery.hosts == dict.fromkeys(encoding.receivers, 1)
        )

    def _greedy(self, receivers: frozenset[str], stored: Sequence[StoredTree]) -> Encoding:
        """Algorithm 5.1: take a tree if the stack gets shorter with it."""
        hosts = [self._network.hosts[name] for name in sorted(receivers)]
        leaves: dict[int, int] = {}
        for host in hosts:
            u = self._graph.index[host.switch]
            leaves[u] = leaves.get(u, 0) | 1 << host.port - 1
        entry = 1 << self._source.port - 1
        best = DeliveryTree(self._graph, self._root, entry, leaves)
        # sort(T_virt): trees that replace most hops of the plain tree first.
        for tree in sorted(stored, key=lambda tree: (-best.overlap(tree), tree.id)):
            if best.cost == 1:
                break
            tried = DeliveryTree(self._graph, self._root, entry, leaves, (*best.trees, tree))
            if tried.cost < best.cost:
                best = tried
        return Encoding(
            best.labels(self._link_ids),
            tuple(host.name for host in hosts),
            (
                (self._source.name, self._source.switch),
                *best.edges(),
                *((host.switch, host.name) for host in hosts),
            ),
        )
