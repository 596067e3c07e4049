"""The strategies ``relation``, ``freq-relation`` and ``hybrid``: a tree for each publisher and
those that it reaches, the last in turns with trees of clusters (WERNECKE 6.4.2, 6.6.2, Figure
6.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.strategies.hub_and_spoke import in_turns
from stackcast.udfs.trees.strategies.nodes import Nodes
from stackcast.udfs.trees.strategies.partitions import Clusters
from stackcast.udfs.trees.strategies.strategy import Edges, Situation, Strategy

#: Per cent of a publisher's notifications from which on a subscriber is in its tree (WERNECKE
#: 6.4.2).
THRESHOLD = 30


@dataclass(frozen=True)
class Relation:
    """Joins each publisher's switch to all hosts that may receive what it publishes.

    Publishers with the most notifications first, then by name.
    """

    name: str = "relation"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        for publisher in busiest(situation):
            potential = situation.clients.potential.get(publisher, frozenset())
            yield publisher_tree(nodes, publisher, potential)


@dataclass(frozen=True)
class FreqRelation:
    """Joins each publisher's switch to hosts that receive ``percent`` % of its notifications or
    more.

    Who may receive is taken from the clients, and where they do not speak of a publisher, from the
    statistics. Permanent subscribers always stay; others without statistics of their publisher
    never come in. Raises NetworkError ``BAD_SIZE`` for a percentage outside 0..100.
    """

    percent: int = THRESHOLD
    name: str = "freq-relation"

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise NetworkError(
                "BAD_SIZE", f"the threshold is {self.percent} %, but must be 0 to 100"
            )

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        nodes = Nodes(situation.network)
        for publisher in busiest(situation):
            yield publisher_tree(nodes, publisher, self.frequent(situation, publisher))

    def frequent(self, situation: Situation, publisher: str) -> frozenset[str]:
        """Returns the subscribers of the publisher that belong into its tree."""
        clients, statistics = situation.clients, situation.statistics
        subscribers = clients.potential.get(publisher)
        if subscribers is None:
            subscribers = frozenset(situation.network.hosts)
        return clients.permanent.get(publisher, frozenset()) | {
            host
            for host in subscribers
            if 0 < statistics.frequency(publisher, host) >= self.percent / 100
        }


@dataclass(frozen=True)
class Hybrid:
    """Yields one tree of each part in turn; when one has no more, the others go on."""

    parts: tuple[Strategy, ...] = field(default=(FreqRelation(), Clusters()))
    name: str = "hybrid"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        return in_turns([part.candidates(situation, budget) for part in self.parts])


def busiest(situation: Situation) -> list[str]:
    """Lists the publishers of the network by falling count of notifications, then by name."""
    statistics = situation.statistics
    known = {*situation.clients.potential, *(p.publisher for p in statistics.publications)}
    names = sorted(name for name in known if name in situation.network.hosts)
    return sorted(names, key=lambda name: -statistics.notifications(name))


def publisher_tree(nodes: Nodes, publisher: str, subscribers: frozenset[str]) -> Edges:
    """Returns a Steiner tree over the publisher's switch and the subscribers that links lead to.

    The publisher's own link is left out: its own notifications come in by it, and to those of
    others it would cost a stop label.
    """
    network = nodes.network
    switch = network.hosts[publisher].switch
    part = nodes.part
    known = (network.hosts[name] for name in sorted(subscribers) if name in network.hosts)
    hosts = [
        host.name
        for host in known
        if host.name != publisher
        and part[nodes.index[host.switch]] == part[nodes.index[switch]]
        and network.link(host.switch, host.name).up
    ]
    return steiner_tree(network, [switch, *hosts], graph=nodes.graph)
