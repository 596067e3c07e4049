"""The strategy ``stable``: trees to the receivers of a publisher that are stable by the record, for
stacks that name a tree whole and hops to the others (WERNECKE 4.3, 4.4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile

from stackcast.udfs.trees.publisher_trees import publisher_edges
from stackcast.udfs.trees.strategies.strategy import Edges, Situation

_MOST_CUTS = 256
"""Trees of a publisher that are weighed, those that most notifications could name."""


@dataclass(frozen=True)
class Stable:
    """Joins the subscribers that receive most of what a publisher sends, by shortest paths.

    Its subscribers are ranked by the share of its notifications that they received. A tree to the
    first of them serves each notification to all of these; who comes behind is dynamic, and is
    reached by hops. Where to cut is chosen by the links that a tree stands for, over all
    notifications that no tree before it serves as well; so one publisher may have several trees,
    each within the next.
    """

    name: str = "stable"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        senders = sorted({each.publisher for each in situation.statistics.publications})
        ranked = merge(*(_cuts(situation, name) for name in senders), key=lambda cut: -cut[0])
        return (edges for _, edges in ranked)


def _cuts(situation: Situation, publisher: str) -> Iterator[tuple[int, Edges]]:
    """Yields trees, the one that spares most links first, with what each spares beyond those
    before it: never more than the one before."""
    statistics = situation.statistics
    sent = [each for each in statistics.publications if each.publisher == publisher]
    hosts = sorted(
        frozenset().union(*(each.receivers for each in sent)),
        key=lambda host: (-statistics.frequency(publisher, host), host),
    )
    # How many notifications go to just so many of the first hosts, and maybe to later ones.
    served: Counter[int] = Counter()
    for each in sent:
        served[sum(1 for _ in takewhile(each.receivers.__contains__, hosts))] += each.notifications
    cuts = sorted(served, key=lambda cut: (-served[cut], cut))[:_MOST_CUTS]
    trees = {
        cut: edges
        for cut in cuts
        if cut
        for edges in publisher_edges(situation.network, publisher, [hosts[:cut]])
    }
    best: dict[int, int] = dict.fromkeys(served, 0)
    while trees:
        spared = {
            cut: sum(
                number * max(0, len(edges) - best[reach])
                for reach, number in served.items()
                if reach >= cut
            )
            for cut, edges in trees.items()
        }
        cut = max(spared, key=lambda cut: (spared[cut], -cut))
        if not spared[cut]:
            return
        edges = trees.pop(cut)
        for reach in served:
            if reach >= cut:
                best[reach] = max(best[reach], len(edges))
        yield spared[cut], edges
