"""Measures of publications over stored trees: labels, bytes of the header, bytes on links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from udfs.network.network import Network
from udfs.retuning.costs import PrunedTreeReplayer
from udfs.trees.encode import Algorithm
from udfs.trees.publications import Publication
from udfs.trees.strategies.strategy import Edges, numbered


@dataclass(frozen=True)
class Measured:
    """Means over notifications.

    header: bytes of the stacks as the publisher sends them, count and labels, without Ethernet.
    load: bytes of Ethernet frames on all links, those of the publisher and of receivers among them.
    parts: frames that a notification is split into. links: crossed, once for each frame.
    """

    header: float
    load: float
    trees: float
    hops: float
    stops: float
    parts: float
    links: float

    @property
    def labels(self) -> float:
        return self.trees + self.hops + self.stops


def measure(
    network: Network,
    trees: Sequence[Edges],
    publications: Sequence[Publication],
    algorithm: Algorithm = "refined",
) -> Measured:
    """Measures the publications over the network with these trees stored."""
    replay = PrunedTreeReplayer(network, numbered(trees, "measured"), algorithm).replay(
        publications
    )
    if replay.skipped:
        raise AssertionError(f"not delivered: {next(iter(replay.skipped.values()))}")
    weight = replay.notifications
    values = {
        "header": replay.header_bytes,
        "load": replay.bytes_on_links / weight,
        "trees": replay.trees,
        "hops": replay.hops,
        "stops": replay.stops,
        "parts": replay.parts,
        "links": replay.switch_links + replay.host_links,
    }
    return Measured(
        **{name: float(np.average(each, weights=weight)) for name, each in values.items()}
    )


def mean(seen: Iterable[Measured]) -> Measured:
    """Returns the mean of several, each counting alike."""
    rows = list(seen)
    return Measured(
        **{
            each.name: float(np.mean([getattr(row, each.name) for row in rows]))
            for each in fields(Measured)
        }
    )


class Memory:
    """Measures a set of trees once, however many budgets lead to it."""

    def __init__(self, network: Network, publications: Sequence[Publication]) -> None:
        self._network, self._publications = network, publications
        self._known: dict[tuple[Edges, ...], Measured] = {}

    def __call__(self, trees: Sequence[Edges]) -> Measured:
        key = tuple(trees)
        if key not in self._known:
            self._known[key] = measure(self._network, trees, self._publications)
        return self._known[key]
