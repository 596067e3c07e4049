"""Costs of publications with a set of stored trees: labels, links and bytes (WERNECKE 5.4.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import MAX_LABELS, LabelFormat
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import (
    COUNT_BYTES,
    ETHERNET_BYTES,
    ForwardingModel,
    network_tables,
)
from stackcast.udfs.trees.encode import Algorithm, Encoder, Encoding, Size
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publications import Publication
from stackcast.udfs.trees.stored_trees import StoredTrees
from stackcast.udfs.trees.switch_graph import SwitchGraph

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class PublicationCosts:
    """Holds costs by publication, int64, of one notification each.

    trees, hops, stops: labels of all its stacks. parts: stacks. switch_links: links that carry a
    stack, the publisher's among them. host_links: receivers. crossings: labels on each of the
    ``switch_links``, added up. ways: links from the publisher to each receiver, added up.
    notifications, datagram_bytes: of the publication.

    used: how many of the publications name a tree, by id. skipped: publications that no stack can
    carry, with the error's text; their counts are 0.
    """

    labels: LabelFormat
    trees: Counts
    hops: Counts
    stops: Counts
    parts: Counts
    switch_links: Counts
    host_links: Counts
    crossings: Counts
    ways: Counts
    notifications: Counts
    datagram_bytes: Counts
    used: Mapping[int, int]
    skipped: Mapping[int, str]

    @property
    def stack_labels(self) -> Counts:
        """The labels of one notification, int64 by publication."""
        return self.trees + self.hops + self.stops

    @property
    def header_bytes(self) -> Counts:
        """The bytes that stacks add at the publisher, counts among them: int64 by publication."""
        return self.parts * COUNT_BYTES + self.stack_labels * self.labels.size

    @property
    def bytes_on_links(self) -> Counts:
        """The bytes of all notifications of each publication on all links that they cross, int64.

        Ethernet, label count and labels, IPv4 datagram; towards hosts Ethernet and datagram.
        """
        links = self.switch_links + self.host_links
        of_one = (
            links * ETHERNET_BYTES
            + self.switch_links * COUNT_BYTES
            + self.crossings * self.labels.size
        )
        return self.notifications * of_one + self.datagram_bytes * links


class Replayer(ABC):
    """Replays publications over one network with one set of trees (the active ones)."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def replay(self, publications: Sequence[Publication]) -> PublicationCosts:
        """Counts costs by publication; each set of receivers is encoded by itself, none
        remembered."""
        labels = ("trees", "hops", "stops", "parts")
        names = (*labels, "switch_links", "host_links", "crossings", "ways")
        counts = np.zeros((len(names), len(publications)), np.int64)
        used: Counter[int] = Counter()
        skipped: dict[int, str] = {}
        for at, each in enumerate(publications):
            try:
                sizes = self._sizes(each)
            except NetworkError as error:
                skipped[at] = str(error)
                continue
            for size in sizes:
                counts[:6, at] += (
                    len(size.trees),
                    size.hops,
                    size.stops,
                    1,
                    size.switch_links + 1,
                    0,
                )
                counts[6:, at] += size.crossings, size.ways
            used.update({tree for size in sizes for tree in size.trees})
            counts[5, at] = len(each.receivers)
        return PublicationCosts(
            labels=self._network.labels,
            notifications=np.array([each.notifications for each in publications], np.int64),
            datagram_bytes=np.array([each.datagram_bytes for each in publications], np.int64),
            used=used,
            skipped=skipped,
            **dict(zip(names, counts, strict=True)),
        )

    @abstractmethod
    def _sizes(self, publication: Publication) -> list[Size]:
        """Returns the size of each stack. Raises NetworkError where none can carry it."""


class PrunedTreeReplayer(Replayer):
    """Replays publications whose stacks follow a tree as far as hops and stops let them.

    Raises NetworkError as :class:`stackcast.udfs.trees.encode.Encoder` does.
    """

    def __init__(
        self,
        network: Network,
        trees: Iterable[VirtualTree],
        algorithm: Algorithm = "refined",
        max_labels: int | None = MAX_LABELS,
        graph: SwitchGraph | None = None,
    ) -> None:
        super().__init__(network)
        graph = graph or SwitchGraph(network)
        stored = StoredTrees(network, graph, trees)
        self._encoder = cache(
            lambda publisher: Encoder(network, publisher, (), max_labels, algorithm, graph, stored)
        )

    def _sizes(self, publication: Publication) -> list[Size]:
        return self._encoder(publication.publisher).sizes(publication.receivers)


class FrameReplayer(Replayer):
    """Replays publications in any encoding, frame by frame through the forwarding model. Labels
    that name no tree count as hops.

    tables: what switches hold, by name. Raises NetworkError as
    `stackcast.udfs.trees.encoders.encoder_of` does.
    """

    def __init__(
        self, network: Network, trees: Sequence[VirtualTree], max_labels: int = MAX_LABELS
    ) -> None:
        super().__init__(network)
        self.tables = network_tables(network, trees)
        self._model = ForwardingModel(network, self.tables)
        self._encoder = cache(lambda name: encoder_of(network, name, trees, max_labels))

    def _sizes(self, publication: Publication) -> list[Size]:
        name = publication.publisher
        stacks = self._encoder(name).encode(publication.receivers)
        return [self._size(name, stack) for stack in stacks]

    def _size(self, publisher: str, stack: Encoding) -> Size:
        links = self._model.deliver(publisher, stack.labels).links
        distance = {publisher: 0}
        for u, v, _ in links:
            distance[v] = distance[u] + 1
        named = [self._network.labels.meaning(label) for label in stack.labels]
        trees = tuple(each.number for each in named if each.of == "tree")
        return Size(
            trees,
            hops=len(named) - len(trees),
            stops=0,
            switch_links=sum(v in self._network.switches for _, v, _ in links) - 1,
            crossings=sum(labels for *_, labels in links),
            ways=sum(distance[host] for host in stack.receivers),
        )


def replayer_of(
    network: Network,
    trees: Sequence[VirtualTree],
    max_labels: int = MAX_LABELS,
    graph: SwitchGraph | None = None,
) -> Replayer:
    """Returns the replayer for a network's labels. Raises NetworkError as they do."""
    if network.labels.trees == "pruned":
        return PrunedTreeReplayer(network, trees, max_labels=max_labels, graph=graph)
    return FrameReplayer(network, trees, max_labels)
