"""The fewest labels that bring one publication to its receivers: an integer program.

It ranges over all subsets of the stored trees and all delivery trees of the network, so no encoder
of the delivery class can do with fewer. The class: a frame crosses only links that lead to a
receiver, and what a stored tree floods besides is stopped, also in front of failed links.

For networks of up to some 20 switches; with scipy's HiGHS.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from udfs.network.labels import HOP, STOP, TREE
from udfs.network.network import Network
from udfs.network.virtual_tree import VirtualTree

Arc = tuple[str, str]


@dataclass(frozen=True)
class Optimum:
    """A shortest stack: trees, then hops and stops. edges: ``(u, v)`` that carry the frame, without
    the publisher's own link, sorted."""

    labels: tuple[int, ...]
    edges: tuple[Arc, ...]

    @property
    def cost(self) -> int:
        return len(self.labels)


def label_optimum(
    network: Network,
    publisher: str,
    receivers: Collection[str],
    trees: Iterable[VirtualTree],
) -> Optimum:
    """The shortest stack of active ``trees``; no label at all for no receivers.

    There is one as long as usable links lead to all receivers: hops alone. ``max_labels`` and the
    64 labels of a switch do not matter here. Raises ValueError for receivers out of reach.
    """
    if not receivers:
        return Optimum((), ())
    return _Problem(network, publisher, set(receivers), list(trees)).solve()


class _Program:
    """Variables and rows of an integer program, gathered one by one."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.whole: list[int] = []
        self._rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, cost: float = 0, whole: bool = False) -> int:
        """A variable within 0..1."""
        self.costs.append(cost)
        self.whole.append(int(whole))
        return len(self.costs) - 1

    def row(self, terms: dict[int, float], low: float, high: float = np.inf) -> None:
        self._rows.append((terms, low, high))

    def minimize(self, at_most: int) -> np.ndarray:
        """Which variables are 1 where costs, whole numbers, are least: at most ``at_most``."""
        self.row({j: cost for j, cost in enumerate(self.costs) if cost}, 0, at_most)
        cells = [(i, j, x) for i, (row, _, _) in enumerate(self._rows) for j, x in row.items()]
        rows, columns, values = zip(*cells, strict=True)
        shape = (len(self._rows), len(self.costs))
        limits = LinearConstraint(
            coo_array((values, (rows, columns)), shape=shape).tocsr(),
            [low for _, low, _ in self._rows],
            [high for _, _, high in self._rows],
        )
        found = milp(
            self.costs,
            integrality=self.whole,
            bounds=Bounds(0, 1),
            constraints=limits,
            # No solution costs more than at_most, so one within this of the bound is less than one
            # label above it: on it.
            options={"mip_rel_gap": 0.99 / at_most},
        )
        if not found.success:
            raise ValueError(f"no delivery tree: {found.message}")
        return found.x > 0.5


class _Problem:
    def __init__(
        self, network: Network, publisher: str, receivers: set[str], trees: list[VirtualTree]
    ) -> None:
        self._network = network
        self._publisher = publisher
        self._receivers = receivers
        self._root = network.hosts[publisher].switch
        self._listening = {network.hosts[name].switch for name in receivers}
        self._program = _Program()
        self._trees = {
            self._program.variable(1, whole=True): tree for tree in trees if tree.state == "active"
        }
        # y: the arcs between switches that the frame crosses.
        self._arcs = {
            (link.switch, link.neighbor): self._program.variable(whole=True)
            for link in network.links
            if link.neighbor in network.switches and network.usable(link)
        }
        self._into: dict[str, list[int]] = {name: [] for name in network.switches}
        self._out: dict[str, list[int]] = {name: [] for name in network.switches}
        for (u, v), arc in self._arcs.items():
            self._out[u].append(arc)
            self._into[v].append(arc)
        self._hops: dict[int, Arc] = {}
        self._stops: dict[int, Arc] = {}

    def solve(self) -> Optimum:
        self._delivery_tree()
        for link in self._network.links:
            if link.neighbor != self._publisher:
                self._labels(link.switch, link.neighbor)
        hops_alone = len(self._receivers) + len(self._network.switches) - 1
        chosen = set(np.flatnonzero(self._program.minimize(hops_alone)).tolist())
        make = self._network.labels.label
        edges = [arc for arc, number in self._arcs.items() if number in chosen]
        return Optimum(
            (
                *(make(TREE, tree.id) for number, tree in self._trees.items() if number in chosen),
                *(
                    make(HOP, self._id(arc))
                    for number, arc in self._hops.items()
                    if number in chosen
                ),
                *(
                    make(STOP, self._id(arc))
                    for number, arc in self._stops.items()
                    if number in chosen
                ),
            ),
            tuple(sorted([*edges, *((self._network.hosts[h].switch, h) for h in self._receivers)])),
        )

    def _id(self, arc: Arc) -> int:
        return self._network.link(*arc).id

    def _delivery_tree(self) -> None:
        """One way into each switch on the way, no end where nobody listens, and a unit of flow from
        the publisher's switch to every other that listens."""
        row = self._program.row
        for name in self._network.switches:
            into, out = dict.fromkeys(self._into[name], 1.0), self._out[name]
            if name == self._root:
                row(into, 0, 0)
            elif name in self._listening:
                row(into, 1, 1)
            else:
                row(into, 0, 1)
                row(dict.fromkeys(out, 1.0) | dict.fromkeys(into, -1.0), 0)
        for u, v in self._arcs:
            if u < v:
                row({self._arcs[u, v]: 1, self._arcs[v, u]: 1}, 0, 1)
        for end in sorted(self._listening - {self._root}):
            flow = {arc: self._program.variable() for arc in self._arcs}
            for arc, unit in flow.items():
                row({self._arcs[arc]: 1, unit: -1}, 0)
            for name in self._network.switches:
                balance = {unit: 1.0 for (u, _), unit in flow.items() if u == name}
                balance |= {unit: -1.0 for (_, v), unit in flow.items() if v == name}
                net = (name == self._root) - (name == end)
                row(balance, net, net)

    def _labels(self, u: str, v: str) -> None:
        """What the arc takes: a hop where the frame must cross and no tree floods it, a stop where
        trees flood it, the frame comes by, and must not cross."""
        floods = self._flood(u, v)
        needed: dict[int, float] = {}
        ingress: dict[int, float] = {}
        always = v in self._receivers
        if (u, v) in self._arcs:
            needed, ingress = {self._arcs[u, v]: 1}, {self._arcs[v, u]: 1}
        if always or needed:
            hop = self._program.variable(1)
            self._hops[hop] = (u, v)
            # hop >= needed - flooded
            terms = {hop: 1.0} | {arc: -1.0 for arc in needed}
            terms |= dict.fromkeys(floods, 1.0)
            self._program.row(terms, float(always))
        if floods and not always:
            stop = self._program.variable(1)
            self._stops[stop] = (u, v)
            # stop >= flooded + (u on the way) - 1 - needed - ingress
            terms = {stop: 1.0} | dict.fromkeys(floods, -1.0)
            for arc in self._into[u]:
                terms[arc] = terms.get(arc, 0) - 1.0
            for arc in (*needed, *ingress):
                terms[arc] = terms.get(arc, 0) + 1.0
            self._program.row(terms, float(u == self._root) - 1)

    def _flood(self, u: str, v: str) -> list[int]:
        """The variable that is 1 if a chosen tree floods the arc; none if no tree can."""
        edge = (min(u, v), max(u, v))
        over = [number for number, tree in self._trees.items() if edge in tree.edges]
        if len(over) < 2:
            return over
        flooded = self._program.variable()
        for number in over:
            self._program.row({flooded: 1, number: -1}, 0)
        self._program.row({flooded: -1} | dict.fromkeys(over, 1.0), 0)
        return [flooded]
