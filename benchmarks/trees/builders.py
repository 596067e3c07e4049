"""Ways to build a multicast tree, beside ours: as trees, and stored as virtual trees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import networkx as nx
import numpy as np
from networkx.algorithms.approximation import steiner_tree as networkx_steiner

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.aggregated import branch_aware_tree, branch_nodes, extended_shortest_path_tree
from benchmarks.trees.clients import recorded
from benchmarks.trees.labels import MEASURED, RECORDED, SCENARIOS, scenario
from benchmarks.trees.measure import measure
from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.publications import Publication
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Edges, Situation, select, uniform
from stackcast.udfs.trees.switch_graph import SwitchGraph, edge

Line = dict[str, object]
Builder = Callable[[Network, Sequence[str], SwitchGraph], Edges]


def _networkx(method: str) -> Builder:
    def build(network: Network, terminals: Sequence[str], _: SwitchGraph) -> Edges:
        tree = networkx_steiner(network.graph(), terminals, method=method)
        return frozenset(edge(u, v) for u, v in tree.edges)

    return build


#: BST is the problem that BAERA approximates; LAMA shares trees among publishers, see below.
BUILDERS: dict[str, Builder] = {
    "Takahashi–Matsuyama (Stackcast)": lambda network, ends, graph: steiner_tree(
        network, ends, graph=graph
    ),
    "Kou": _networkx("kou"),
    "Mehlhorn": _networkx("mehlhorn"),
    "BAERA (for BST)": lambda network, ends, graph: branch_aware_tree(network, ends, graph=graph),
    "EDSP": lambda network, ends, graph: extended_shortest_path_tree(network, ends, graph=graph),
}


class Weighing:
    """EDSP where a switch weighs the share of the trees built so far that pass it, so that rules
    spread over switches."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._built = 0

    def __call__(self, network: Network, terminals: Sequence[str], graph: SwitchGraph) -> Edges:
        weights = {name: count / self._built for name, count in self._held.items()}
        tree = extended_shortest_path_tree(network, terminals, graph=graph, switch_weights=weights)
        self._held.update({end for pair in tree for end in pair if end in network.switches})
        self._built += 1
        return tree


def compare(name: str) -> list[Line]:
    """Compares one tree a publisher, to all its subscribers, by every builder; and LAMA's."""
    network, who, random = scenario(name)
    statistics = recorded(who, random, RECORDED)
    publications = who.draw(random, MEASURED)
    graph = SwitchGraph(network)
    lines: list[Line] = []
    for builder, build in {**BUILDERS, "EDSP, switches weigh": Weighing()}.items():
        began = time.thread_time()
        trees = {
            publisher: build(network, [publisher, *hosts], graph)
            for publisher, hosts in who.subscribers.items()
        }
        seconds = time.thread_time() - began
        lines.append(
            _line(name, builder, network, list(trees.values()), publications)
            | {
                "distance": float(
                    np.mean([_distance(tree, p, who.subscribers[p]) for p, tree in trees.items()])
                ),
                "milliseconds": 1000 * seconds / len(trees),
            }
        )
    situation = Situation(network, who.clients(), statistics, 0)
    shared = select(STRATEGIES["lama"], situation, uniform(network, len(who.subscribers)))
    lines.append(_line(name, "LAMA", network, shared, publications))
    return lines


def _line(
    name: str,
    builder: str,
    network: Network,
    trees: Sequence[Edges],
    publications: Sequence[Publication],
) -> Line:
    stored = list(dict.fromkeys(trees))
    seen = measure(network, stored, publications)
    held = Counter(
        end for tree in stored for end in {e for pair in tree for e in pair} & set(network.switches)
    )
    return {
        "name": "builder",
        "network": name,
        "builder": builder,
        "stored": len(stored),
        "fullest": max(held.values()),
        "edges": float(np.mean([len(tree) for tree in trees])),
        "branches": float(np.mean([len(branch_nodes(tree)) for tree in trees])),
        "labels": seen.labels,
        "load": seen.load,
    }


def _distance(tree: Edges, publisher: str, hosts: Sequence[str]) -> float:
    """Links from the publisher to a subscriber, on average."""
    lengths = nx.single_source_shortest_path_length(nx.Graph(list(tree)), publisher)
    return float(np.mean([lengths[host] for host in hosts]))


def run(processes: int) -> None:
    lines = Lines("trees", "builders")
    for _, found in in_parallel(compare, SCENARIOS, processes):
        for line in found:
            lines.say(str(line.pop("name")), **line)
