"""Cost of recorded publications under other trees, and the comparison of strategies by it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from stackcast.udfs.errors import StackcastError
from stackcast.udfs.network.labels import MAX_LABELS
from stackcast.udfs.network.network import Network
from stackcast.udfs.retuning.costs import replayer_of
from stackcast.udfs.trees.publications import Publication, Statistics
from stackcast.udfs.trees.strategies.strategy import Edges, Situation, Strategy, numbered, select
from stackcast.udfs.trees.switch_graph import SwitchGraph

Trees = tuple[Edges, ...]

Objective = Literal["bytes", "labels", "latency"]
"""The cost to save.

``bytes``: of whole frames on all links. ``labels``: bytes of header stacks at the publisher.
``latency``: links on the ways from the publisher to each receiver.
"""
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
UNITS: Mapping[Objective, str] = {
    "bytes": "bytes on links",
    "labels": "bytes of header stacks",
    "latency": "links on the paths to receivers",
}

#: Budgets are this much larger where candidates for mixtures are chosen.
_LARGER_BUDGET = 2


@dataclass(frozen=True)
class Trial:
    """Holds the result of a replay of publications under some trees.

    cost: of all notifications, by the record's objective. bytes: on all links. labels: of the
    stacks of a notification, on average over all notifications. way: links to a receiver, on
    average over all deliveries. uses: notifications whose stacks name the tree. costs, named: by
    publication the cost, and the trees.
    """

    cost: int
    bytes: int = 0
    labels: float = 0.0
    way: float = 0.0
    uses: Mapping[Edges, int] = field(default_factory=dict)
    costs: tuple[int, ...] = ()
    named: tuple[tuple[Edges, ...], ...] = ()

    def worth(self, edges: Edges) -> int:
        """Returns the hop labels that a tree stood for at most, over all frames: to rank trees
        by."""
        return self.uses.get(edges, 0) * (len(edges) - 1)


class Record:
    """Holds publications that a network can carry, ready for replays.

    publications: without receivers that are no hosts, that no usable link leads to, or that publish
    themselves; ``left_out`` counts notifications to them (one for each receiver). The order of the
    input has no effect, as publications of equal publisher and receivers are added up. always:
    trees that stand in every replay beside those asked for. It pickles.
    """

    def __init__(
        self,
        network: Network,
        publications: Iterable[Publication],
        objective: Objective = "bytes",
        max_labels: int = MAX_LABELS,
        always: Iterable[Edges] = (),
    ) -> None:
        self.network = network
        self._always = tuple(always)
        self._max_labels = max_labels
        self.objective: Objective = objective
        self._graph = SwitchGraph(network)
        part = _parts(network)
        self.left_out = 0
        # A notification that trees cannot bring to a host costs more than any way to it would.
        self._lost = 2 * len(network.links) * (1 if objective == "latency" else 1500)
        usable = []
        for each in publications:
            home = part.get(each.publisher)
            receivers = frozenset(
                name
                for name in each.receivers
                if home is not None and part.get(name) == home and name != each.publisher
            )
            self.left_out += each.notifications * (len(each.receivers) - len(receivers))
            if receivers and each.notifications > 0:
                usable.append(replace(each, receivers=receivers))
        self.publications = Statistics(usable).publications

    def part(self, number: int, of: int) -> Record:
        """Returns every ``of``-th publication from ``number`` on: parts together are the record.

        Neighbors in the order of publications are alike, so the parts are, too.
        """
        found = object.__new__(Record)
        found.network, found.objective, found._graph = self.network, self.objective, self._graph
        found.left_out, found._lost = 0, self._lost
        found._max_labels, found._always = self._max_labels, self._always
        found.publications = self.publications[number::of]
        return found

    def heaviest(self, most: int) -> Record:
        """Returns the publications of most bytes, ``most`` of them."""
        if most >= len(self.publications):
            return self
        found = self.part(0, 1)
        ranked = sorted(
            range(len(self.publications)),
            key=lambda at: (-_weight(self.publications[at]), at),
        )
        found.publications = tuple(self.publications[at] for at in sorted(ranked[:most]))
        return found

    def replay(self, trees: Sequence[Edges], only: Iterable[int] | None = None) -> Trial:
        """Replays under these trees. ``only``: publications by their number, in place of all.

        Raises NetworkError ``UNKNOWN_LINK`` for an edge that is no link.
        """
        known = dict.fromkeys(trees)
        asked = list(known)
        every = numbered([*asked, *(edges for edges in self._always if edges not in known)], "")
        replayer = replayer_of(self.network, every, self._max_labels, self._graph)
        publications = self.publications if only is None else [self.publications[at] for at in only]
        uses: Counter[Edges] = Counter()
        costs, named = [], []
        on_links = labels = notifications = ways = deliveries = 0
        for each in publications:
            # One at a time: which trees each of them names tells what a tree is good for.
            one, cost = replayer.replay([each]), 0
            if one.skipped:
                # Host by host, as the stream does: one out of reach costs the others nothing.
                alone = [replace(each, receivers=frozenset((r,))) for r in sorted(each.receivers)]
                one = replayer.replay(alone)
                cost = len(one.skipped) * each.notifications * self._lost
            on_links += (size := int(one.bytes_on_links.sum()))
            way_links = each.notifications * int(one.ways.sum())
            if self.objective == "bytes":
                cost += size
            elif self.objective == "labels":
                cost += each.notifications * int(one.header_bytes.sum())
            else:
                cost += way_links
            costs.append(cost)
            ways += way_links
            deliveries += each.notifications * int(one.host_links.sum())
            labels += each.notifications * int(one.stack_labels.sum())
            notifications += each.notifications
            found = tuple(asked[number - 1] for number in sorted(one.used) if number <= len(asked))
            named.append(found)
            for edges in found:
                uses[edges] += each.notifications
        mean = labels / notifications if notifications else 0.0
        way = ways / deliveries if deliveries else 0.0
        return Trial(sum(costs), on_links, mean, way, uses, tuple(costs), tuple(named))


@dataclass(frozen=True)
class StrategyResult:
    """Holds a strategy's trees, and the cost of the publications under them.

    seen: cost of each half of the record under the trees chosen by itself (``halves``). unseen:
    cost where each is replayed under those of the other: to expect of publications to come.
    pools: trees that the strategy would choose with larger budgets, by the whole record and by
    each half. error: why there is no result.
    """

    name: str
    trees: Trees = ()
    trial: Trial = field(default_factory=lambda: Trial(0))
    seen: tuple[int, int] = (0, 0)
    unseen: int = 0
    halves: tuple[Trees, Trees] = ((), ())
    pools: tuple[Trees, Trees, Trees] = ((), (), ())
    seconds: float = 0.0
    error: str = ""


def evaluate(
    strategy: Strategy, situation: Situation, budget: Mapping[str, int], record: Record
) -> StrategyResult:
    """Evaluates a strategy on the record.

    The situation's statistics are replaced by those of the record, and of its halves.
    """
    began = time.perf_counter()
    more = {name: _LARGER_BUDGET * most for name, most in budget.items()}
    learnt = [
        replace(situation, statistics=Statistics(part.publications))
        for part in (record, record.part(0, 2), record.part(1, 2))
    ]
    try:
        trees, first, second = (tuple(select(strategy, known, budget)) for known in learnt)
        every, some, others = (tuple(select(strategy, known, more)) for known in learnt)
        trial = record.replay(trees)
        # By the half that trees were chosen by, and the half that is replayed.
        cost = [[_half(record, of, by, trees, trial) for of in (0, 1)] for by in (first, second)]
    except StackcastError as error:
        return StrategyResult(strategy.name, error=str(error), seconds=time.perf_counter() - began)
    return StrategyResult(
        strategy.name,
        trees,
        trial,
        (cost[0][0], cost[1][1]),
        cost[0][1] + cost[1][0],
        (first, second),
        (every, some, others),
        time.perf_counter() - began,
    )


def _half(record: Record, number: int, chosen: Trees, trees: Trees, trial: Trial) -> int:
    """Returns the cost of a half of the record under the trees that some half chose; without a
    replay where those are ``trees``, of which ``trial`` tells."""
    if chosen == trees:
        return sum(trial.costs[number::2])
    return record.part(number, 2).replay(chosen).cost


def _weight(each: Publication) -> int:
    return each.datagram_bytes * len(each.receivers)


def _parts(network: Network) -> dict[str, int]:
    """Numbers the hosts whose links are up, equally where usable links join them."""
    neighbors: dict[str, list[str]] = {name: [] for name in network.switches}
    for link in network.links:
        if link.neighbor in network.switches and network.usable(link):
            neighbors[link.switch].append(link.neighbor)
    number: dict[str, int] = {}
    for start in network.switches:
        waiting = [start] if start not in number else []
        while waiting:
            name = waiting.pop()
            if name not in number:
                number[name] = number.get(start, len(number)) if name != start else len(number)
                waiting += neighbors[name]
    return {
        name: number[host.switch]
        for name, host in network.hosts.items()
        if network.link(host.switch, name).up
    }
