"""Bytes on every link, both ways, of publications: as stacks carry them, and what unicast or
broadcast would take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import MAX_LABELS
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree, stored
from stackcast.udfs.stacks.forwarding import (
    COUNT_BYTES,
    ETHERNET_BYTES,
    ForwardingModel,
    network_tables,
)
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encoders import AnyEncoder, encoder_of
from stackcast.udfs.trees.publications import Publication

Pair = tuple[str, str]
Counts = NDArray[np.int64]

#: Ways to deliver, in the order of `LinkLoads.of`.
WAYS = ("stackcast", "unicast", "broadcast")


@dataclass(frozen=True)
class _Taken:
    """Links that a notification crosses, by number, and its bytes there beside the datagram."""

    links: Counts
    headers: Counts


class LinkLoads:
    """Knows what notifications put on each link of one network with one set of active trees.

    pairs: ``(u, v)`` as bytes flow from u to v, in the order of `of`.

    Stacks are followed by the forwarding model. Unicast: each receiver by itself along a shortest
    path; broadcast: every notification along the broadcast tree to every host; both in plain
    frames. Raises NetworkError as the encoder does.
    """

    def __init__(
        self, network: Network, trees: Sequence[VirtualTree], max_labels: int = MAX_LABELS
    ) -> None:
        held = stored(trees)
        self._network = network
        self._active = [tree for tree in trees if tree.state == "active"]
        self._max_labels = max_labels
        self._model = ForwardingModel(network, network_tables(network, held))
        into = ((host.name, host.switch) for host in network.hosts.values())
        self.pairs: tuple[Pair, ...] = tuple(
            sorted({(link.switch, link.neighbor) for link in network.links} | set(into))
        )
        self._number = {pair: at for at, pair in enumerate(self.pairs)}
        self._encoder: AnyEncoder | None = None
        self._graph = network.graph()
        self._paths: dict[str, Mapping[str, Sequence[str]]] = {}
        self._flooded: dict[str, _Taken] = {}
        self._memory: dict[tuple[str, frozenset[str]], tuple[_Taken, _Taken, _Taken]] = {}

    def of(self, publications: Iterable[Publication]) -> Counts:
        """Returns bytes, int64[3, pairs]: a row for each of `WAYS`.

        A receiver that nothing leads to takes no bytes.
        """
        loads = np.zeros((len(WAYS), len(self.pairs)), np.int64)
        for each in publications:
            for row, taken in zip(loads, self._taken(each), strict=True):
                size = each.notifications * taken.headers + each.datagram_bytes
                np.add.at(row, taken.links, size)
        return loads

    def _taken(self, of: Publication) -> tuple[_Taken, _Taken, _Taken]:
        key = of.publisher, of.receivers
        if key not in self._memory:
            known = of.publisher in self._network.hosts
            receivers = of.receivers & self._network.hosts.keys() - {of.publisher}
            self._memory[key] = (
                (
                    self._by_stack(of.publisher, receivers),
                    self._alone(of.publisher, receivers),
                    self._everywhere(of.publisher),
                )
                if known
                else (_none(), _none(), _none())
            )
        return self._memory[key]

    def _by_stack(self, publisher: str, receivers: frozenset[str]) -> _Taken:
        links: list[int] = []
        headers: list[int] = []
        hosts, size = self._network.hosts, self._network.labels.size
        try:
            stacks = self._encoder_of(publisher).encode(receivers) if receivers else []
        except NetworkError:
            return _none()
        for stack in stacks:
            for u, v, labels in self._model.deliver(publisher, stack.labels).links:
                links.append(self._number[u, v])
                carried = 0 if v in hosts else COUNT_BYTES + labels * size
                headers.append(ETHERNET_BYTES + carried)
        return _Taken(np.array(links, np.int64), np.array(headers, np.int64))

    def _encoder_of(self, publisher: str) -> AnyEncoder:
        if self._encoder is None:
            self._encoder = encoder_of(self._network, publisher, self._active, self._max_labels)
        return self._encoder.of(publisher)

    def _alone(self, publisher: str, receivers: frozenset[str]) -> _Taken:
        if publisher not in self._paths:
            # networkx takes None for "no such edge".
            self._paths[publisher] = nx.single_source_dijkstra_path(
                self._graph, publisher, weight=lambda _u, _v, e: e["weight"] if e["up"] else None
            )
        paths = self._paths[publisher]
        ways = (paths.get(host, ()) for host in sorted(receivers))
        return self._plain(pair for way in ways for pair in pairwise(way))

    def _everywhere(self, publisher: str) -> _Taken:
        if publisher not in self._flooded:
            pairs: list[Pair] = []
            home = self._network.hosts[publisher].switch
            waiting = [(publisher, home)]
            for before, node in waiting:
                pairs.append((before, node))
                waiting += (
                    (node, v) for v in self._broadcast.get(node, ()) if v not in (before, publisher)
                )
            self._flooded[publisher] = self._plain(pairs)
        return self._flooded[publisher]

    @cached_property
    def _broadcast(self) -> dict[str, list[str]]:
        """The neighbors of each node on the broadcast tree."""
        neighbors: dict[str, list[str]] = {}
        for tree in broadcast_trees(self._network, 1):
            for u, v in tree.edges:
                neighbors.setdefault(u, []).append(v)
                neighbors.setdefault(v, []).append(u)
        return neighbors

    def _plain(self, pairs: Iterable[Pair]) -> _Taken:
        links = np.array([self._number[pair] for pair in pairs], np.int64)
        return _Taken(links, np.full(len(links), ETHERNET_BYTES, np.int64))


def _none() -> _Taken:
    return _Taken(np.zeros(0, np.int64), np.zeros(0, np.int64))
