"""The strategies ``threshold``, ``tree`` and ``path``: a tree a publisher, or for several of them,
then paths to their other subscribers (WERNECKE 5.3.4 to 5.3.6, Fig. 5.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.trees.broadcast import RootedTree, spine_trees
from stackcast.udfs.trees.strategies.strategy import FEWEST_EDGES, Edges, Situation, TreeCapacity


@dataclass(frozen=True)
class Threshold:
    """Joins the subscribers that receive at least ``percent`` % of a publisher's notifications.

    A publisher's base tree is the broadcast tree of its spine, pruned to the publisher and those
    of its potential subscribers; permanent ones count as 100 %. 0 % makes it the strategy
    ``tree``, 100 % ``path``. Publishers with most notifications come first; spines are given out
    in turn, in the network's order of hosts, so they stay the same while statistics change.

    With ``paths``, the places left are for virtual paths, each from a host up to a spine: those
    first that would carry the most notifications which base trees do not carry. Without, hops
    reach the other subscribers (Fig. 5.13). ``shared``: the publishers of a spine have one base
    tree, to all of them and all their subscribers (Algorithm 5.2): fewer rules, more stops.

    A network that names no spines has one: its most central switch.

    Raises NetworkError ``BAD_SIZE`` for a percentage outside 0..100.
    """

    percent: int
    paths: bool = True
    shared: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.percent <= 100:
            raise NetworkError(
                "BAD_SIZE", f"the threshold is {self.percent} %, but must be 0 to 100"
            )

    @property
    def name(self) -> str:
        ends = ("" if self.paths else "-hops") + ("-shared" if self.shared else "")
        return f"threshold-{self.percent}{ends}"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        capacity = TreeCapacity(situation.network, budget)
        publishers = _publishers(situation)
        if capacity.exhausted() or not publishers:
            return
        carried: dict[str, Edges] = {}
        known: set[Edges] = set()
        for group in self._groups(publishers):
            joined = [host for each in group for host in (each, *self._base(situation, each))]
            base = publishers[group[0]].joining(joined)
            if len(base) < FEWEST_EDGES:
                continue
            if base not in known and capacity.fits(base):
                capacity.reserve(base)
                known.add(base)
                yield base
            if base in known:
                carried.update(dict.fromkeys(group, base))
        if self.paths:
            yield from _paths(situation, publishers, carried, known, capacity)

    def _groups(self, publishers: Mapping[str, RootedTree]) -> list[list[str]]:
        """Returns the publishers that have a base tree together, those of most notifications
        first."""
        groups: dict[str, list[str]] = {}
        for publisher, spine in publishers.items():
            groups.setdefault(spine.root if self.shared else publisher, []).append(publisher)
        return list(groups.values())

    def _base(self, situation: Situation, publisher: str) -> list[str]:
        """Returns the publisher's subscribers that belong into its base tree."""
        clients, statistics = situation.clients, situation.statistics
        permanent = clients.permanent.get(publisher, frozenset())
        # Correctly rounded quotients: equal shares are equal numbers.
        least = self.percent / 100
        return [
            host
            for host in clients.potential[publisher] | permanent
            if host in permanent or statistics.frequency(publisher, host) >= least
        ]


@dataclass(frozen=True)
class Tree:
    """Prunes a broadcast tree (Algorithm 5.2) to each publisher and its potential subscribers.

    The threshold strategy at 0 %: statistics only say which publishers come first. Publishers
    whose tree does not fit get paths. ``shared``: the publishers of a spine have one tree.
    """

    paths: bool = True
    shared: bool = False

    @property
    def name(self) -> str:
        return "shared-tree" if self.shared else "tree"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        return Threshold(0, self.paths, self.shared).candidates(situation, budget)


@dataclass(frozen=True)
class Path:
    """Joins in a base tree only those who receive every notification: threshold at 100 %."""

    paths: bool = True
    name: str = "path"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        return Threshold(100, self.paths).candidates(situation, budget)


def _publishers(situation: Situation) -> dict[str, RootedTree]:
    """Gives each publisher a spine that it can reach; publishers with most notifications first."""
    network, potential = situation.network, situation.clients.potential
    spines = spine_trees(network)
    assigned: dict[str, RootedTree] = {}
    # In turn, by a place that no statistics move: hosts that publish may all be every second one.
    publishing = [host for host in network.hosts if potential.get(host)]
    for place, host in enumerate(publishing):
        reached = [tree for tree in spines if host in tree.parent]
        if reached:
            assigned[host] = reached[place % len(reached)]
    often = situation.statistics.notifications
    return {host: assigned[host] for host in sorted(assigned, key=often, reverse=True)}


def _paths(
    situation: Situation,
    publishers: Mapping[str, RootedTree],
    carried: Mapping[str, Edges],
    known: set[Edges],
    capacity: TreeCapacity,
) -> Iterator[Edges]:
    """Yields paths between hosts and spines, those first that publishers lack most often.

    A publisher's notifications come up to its spine, and down to subscribers outside its base
    tree. Paths that base trees have already come last, as they spare stops where few receive.
    Without statistics, paths that most publishers have use for come first.
    """
    statistics = situation.statistics
    wanted: dict[tuple[str, str], list[float]] = {}
    spines = {spine.root: spine for spine in publishers.values()}
    for publisher, spine in publishers.items():
        inside = {node for pair in carried.get(publisher, ()) for node in pair}
        notifications = statistics.notifications(publisher)
        for host in {publisher, *situation.clients.potential[publisher]}:
            share = 1.0 if host == publisher else statistics.frequency(publisher, host)
            use = wanted.setdefault((spine.root, host), [0.0] * 4)
            at = 2 if host in inside else 0
            use[at] += notifications * share
            use[at + 1] += 1
    place = {name: n for n, name in enumerate((*spines, *situation.network.hosts))}

    def first(pair: tuple[str, str]) -> tuple[list[float], int, int]:
        spine, host = pair
        return [-use for use in wanted[pair]], place.get(host, len(place)), place[spine]

    for root, host in sorted(wanted, key=first):
        path = spines[root].path(host)
        if len(path) >= FEWEST_EDGES and path not in known and capacity.fits(path):
            capacity.reserve(path)
            known.add(path)
            yield path
