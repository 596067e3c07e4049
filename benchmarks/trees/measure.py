"""Measures of publications over stored trees: labels, bytes of the header, bytes on links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from stackcast.udfs.network.network import Network
from stackcast.udfs.retuning.costs import PrunedTreeReplayer
from stackcast.udfs.trees.encode import Algorithm
from stackcast.udfs.trees.publications import Publication
from stackcast.udfs.trees.strategies.strategy import Edges, numbered


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


ALGORITHMS: tuple[Algorithm, ...] = ("greedy", "refined")
"""The text's Algorithm 5.1 as it is printed, and ours."""

Both = Mapping[Algorithm, Measured]
"""The same notifications over the same trees, by each of `ALGORITHMS`."""


def mean(seen: Iterable[Both]) -> Both:
    """Returns the means of several drawings, each counting alike."""
    rows = list(seen)
    return {name: Measured(*np.mean([astuple(row[name]) for row in rows], axis=0).tolist())
            for name in ALGORITHMS}  # fmt: skip


def spread(seen: Iterable[Both]) -> Measured | None:
    """Returns the standard deviation of ours over several drawings; None of a single one."""
    rows = [astuple(row["refined"]) for row in seen]
    return Measured(*np.std(rows, axis=0, ddof=1).tolist()) if len(rows) > 1 else None


class Memory:
    """Measures a set of trees once, however many budgets lead to it."""

    def __init__(self, network: Network, publications: Sequence[Publication]) -> None:
        self._network, self._publications = network, publications
        self._known: dict[tuple[Edges, ...], Both] = {}

    def __call__(self, trees: Sequence[Edges]) -> Both:
        key = tuple(trees)
        if key not in self._known:
            self._known[key] = {
                name: measure(self._network, trees, self._publications, name) for name in ALGORITHMS
            }
        return self._known[key]
