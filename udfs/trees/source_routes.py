"""The encoder of source routes: a delivery tree in preorder, said to each of its switches.

The tree is a Steiner tree. Where a label names one port (``port``, ``hops``), each child's labels
follow the one that leads there, so a copy takes along its own subtree alone; where a label names
all ports of a switch, all subtrees follow it (WERNECKE 3.2.4, 3.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

from stackcast.udfs.network.labels import MAX_LABELS
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.source_routes import SourceRoute
from stackcast.udfs.trees.encode import Edges, Encoder, Encoding, stack_too_long


class RouteEncoder:
    """Encodes receiver sets of one publisher as source routes.

    Raises NetworkError as :class:`stackcast.udfs.trees.encode.Encoder` does.
    """

    def __init__(
        self, network: Network, publisher: str, form: SourceRoute, max_labels: int = MAX_LABELS
    ) -> None:
        self._network = network
        self._publisher = publisher
        self._form = form
        self._max_labels = max_labels
        self._trees = Encoder(network, publisher, (), None, "quick")

    def of(self, publisher: str) -> RouteEncoder:
        """Returns the encoder of another publisher, for the same thread. Raises NetworkError
        ``UNKNOWN_HOST``."""
        made = copy(self)
        made._publisher, made._trees = publisher, self._trees.of(publisher)
        return made

    def encode(self, receivers: frozenset[str]) -> list[Encoding]:
        """Returns stacks that bring a notification to each receiver exactly once, to nobody else.

        More than one only where a stack would exceed the limit; their receivers are disjoint then
        (WERNECKE 3.4.1). Raises as :meth:`stackcast.udfs.trees.encode.Encoder.encode`.
        """
        for found in self._trees.delivery_trees(receivers):
            edges = list(self._preorder(found))
            labels = self._labels(edges)
            hosts = [v for _, v in edges if v in receivers]
            if len(labels) <= self._max_labels:
                return [Encoding(tuple(labels), tuple(sorted(hosts)), tuple(edges))]
            if len(hosts) == 1:
                raise stack_too_long(hosts[0], len(labels), self._publisher, self._max_labels)
            # Each part has a tree of its own: that of all may lead to some by a long way.
            middle = len(hosts) // 2
            return self.encode(frozenset(hosts[:middle])) + self.encode(frozenset(hosts[middle:]))
        return []

    def _preorder(self, edges: Edges) -> Iterator[tuple[str, str]]:
        """Yields the edges of a tree, the publisher's link first."""
        children: dict[str, list[str]] = {}
        for u, v in edges:
            children.setdefault(u, []).append(v)
        waiting = [(self._publisher, v) for v in children.get(self._publisher, ())]
        while waiting:
            edge = waiting.pop()
            yield edge
            waiting += sorted(
                ((edge[1], v) for v in children.get(edge[1], ())), key=self._rank, reverse=True
            )

    def _rank(self, edge: tuple[str, str]) -> tuple[bool, int]:
        return edge[1] in self._network.switches, self._network.link(*edge).port

    def _labels(self, edges: Sequence[tuple[str, str]]) -> list[int]:
        """Returns the labels of a tree, its edges in preorder."""
        links = [self._network.link(u, v) for u, v in edges[1:]]
        switches = self._network.switches
        return self._form.labels_along(
            (switches[link.switch].device_id, link.id, link.port) for link in links
        )
