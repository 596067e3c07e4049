"""The strategy ``exact``: trees to the very receivers of what is published, for stacks that name
stored trees and nothing else (WERNECKE 4.2.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stackcast.udfs.trees.publications import Publication
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.strategies.strategy import Edges, Situation
from stackcast.udfs.trees.switch_graph import SwitchGraph


@dataclass(frozen=True)
class Exact:
    """Joins the receivers of each set on record by a tree of few links, from the publisher's
    switch.

    Those come first that spare most links, over all notifications, against a frame to each
    receiver: that is what a set without a tree takes, by the trees of
    :func:`stackcast.udfs.trees.publisher_trees.host_trees`, which are not among these.
    """

    name: str = "exact"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        network = situation.network
        graph = SwitchGraph(network)
        alone: dict[tuple[str, str], int] = {}

        def joined(each: Publication, *hosts: str) -> Edges:
            root = network.host(each.publisher).switch
            return steiner_tree(network, [root, *hosts], graph=graph)

        def links(each: Publication, host: str) -> int:
            pair = each.publisher, host
            if pair not in alone:
                alone[pair] = len(joined(each, host))
            return alone[pair]

        found = []
        for number, each in enumerate(situation.statistics.publications):
            if len(each.receivers) > 1:
                edges = joined(each, *sorted(each.receivers))
                # A frame more takes the publisher's own link once more, too.
                one_by_one = sum(links(each, host) + 1 for host in each.receivers)
                spared = each.notifications * (one_by_one - len(edges) - 1)
                found.append((-spared, number, edges))
        return (edges for *_, edges in sorted(found, key=lambda each: each[:2]))
