"""The fewest labels that bring one publication to its receivers: an integer program.

It ranges over all subsets of the stored trees and all delivery trees of the network, so no encoder
of the delivery class can do with fewer. The class: a frame crosses only links that lead to a
receiver, and what a stored tree floods besides is stopped, also in front of failed links.

That the delivery tree hangs together is said by cuts (Koch and Martin 1998): of any set of
switches around the publisher's that leaves out one that listens, a link leads out. There are too
many to write down, so those that a solution breaks are added, first to the relaxation, then to the
program. HiGHS solves both: networks of 20 switches in moments, those of 80 mostly in seconds, and
where a limit of time ends it, it says below what nothing can be.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import highspy
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from stackcast.udfs.network.labels import HOP, STOP, TREE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree

Arc = tuple[str, str]
#: What a cut may lack of 1 unnoticed, and how far from a whole number a bound may be.
_SLACK = 1e-6
#: Capacities of arcs are whole numbers of so many a unit.
_UNIT = 1_000_000
#: Rounds of cuts in a row that do not lift the relaxation, after which the program is solved.
_PATIENCE = 5


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
    problem = _Problem(network, publisher, set(receivers), list(trees))
    found, _ = problem.solve(len(receivers) + len(network.switches) - 1)
    if found is None:
        raise ValueError("no delivery tree: a receiver is out of reach")
    return found


def label_bounds(
    network: Network,
    publisher: str,
    receivers: Collection[str],
    trees: Iterable[VirtualTree],
    known: int,
    seconds: float,
) -> tuple[int, int]:
    """The labels of the shortest stack that is found or ``known``, and what no stack can be below:
    the same where the optimum is proven within ``seconds``."""
    problem = _Problem(network, publisher, set(receivers), list(trees))
    found, least = problem.solve(known - 1, seconds)
    return known if found is None else found.cost, least


class _Program:
    """Variables within 0..1 and rows of an integer program, for HiGHS."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.whole: list[int] = []
        self.rows = 0
        self._solver = highspy.Highs()
        self._options = {
            "output_flag": False,
            "threads": 1,
            "random_seed": 0,
            "mip_rel_gap": 0.0,
            # Costs are whole numbers: less than one label above the bound is on it.
            "mip_abs_gap": 0.99,
        }
        for name, value in self._options.items():
            self._solver.setOptionValue(name, value)

    def variable(self, cost: float = 0, whole: bool = False) -> int:
        number = len(self.costs)
        self._solver.addVar(0, 1)
        self._solver.changeColCost(number, cost)
        self.costs.append(cost)
        if whole:
            self.whole.append(number)
        return number

    def row(self, terms: dict[int, float], low: float, high: float = math.inf) -> None:
        columns = np.array(list(terms), np.int32)
        self._solver.addRow(low, high, len(terms), columns, np.array(list(terms.values()), float))
        self.rows += 1

    def solve(self, whole: bool, seconds: float) -> tuple[np.ndarray | None, float]:
        """The values of the best solution, if one was found in time, and a bound of its costs:
        infinite if there is none. whole: with integers, not the relaxation alone."""
        kind = highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous
        for number in self.whole:
            self._solver.changeColIntegrality(number, kind)
        # The limit is of all runs of a solver together.
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + max(seconds, 0.01))
        self._solver.run()
        status, info = self._solver.getModelStatus(), self._solver.getInfo()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None, math.inf
        done = status == highspy.HighsModelStatus.kOptimal
        bound = info.mip_dual_bound if whole else info.objective_function_value if done else 0.0
        feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if not (feasible if whole else done):
            return None, bound
        return np.array(self._solver.getSolution().col_value), bound


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
        self._delivery_tree()
        for link in network.links:
            if link.neighbor != publisher:
                self._labels(link.switch, link.neighbor)
        self._cuts = _Cuts(list(network.switches), self._arcs, self._root, self._listening)

    def solve(self, at_most: int, seconds: float = math.inf) -> tuple[Optimum | None, int]:
        """A shortest stack of ``at_most`` labels, None if none is found, and what no stack can be
        below: ``at_most + 1`` if there is none."""
        program, ends = self._program, time.monotonic() + seconds
        program.row({j: cost for j, cost in enumerate(program.costs) if cost}, 0, at_most)
        whole, idle, least, best = False, 0, 0, None
        while least <= at_most and (left := ends - time.monotonic()) > 0:
            values, bound = program.solve(whole, left)
            lifted = at_most + 1 if bound > at_most else math.ceil(bound - _SLACK)
            idle = 0 if lifted > least else idle + 1
            least = max(least, lifted)
            if values is None:
                break
            cuts = self._cuts.broken(values)
            for cut in cuts:
                program.row(dict.fromkeys(cut, 1.0), 1)
            if whole and not cuts:
                best = self._optimum(values)
                break
            whole = whole or not cuts or idle >= _PATIENCE
        return best, least

    def _optimum(self, values: np.ndarray) -> Optimum:
        chosen = set(np.flatnonzero(values > 0.5).tolist())
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
        """One way into each switch on the way, no end where nobody listens, and no way out of a
        switch that was not entered by another link."""
        row = self._program.row
        for name in self._network.switches:
            into, out = dict.fromkeys(self._into[name], 1.0), self._out[name]
            if name == self._root:
                if into:
                    row(into, 0, 0)
            elif name in self._listening:
                row(into, 1, 1)
            elif into:
                row(into, 0, 1)
                row(dict.fromkeys(out, 1.0) | dict.fromkeys(into, -1.0), 0)
        for (u, v), arc in self._arcs.items():
            if u != self._root:
                others = dict.fromkeys(self._into[u], 1.0)
                del others[self._arcs[v, u]]
                row(others | {arc: -1.0}, 0)

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


class _Cuts:
    """Finds sets of arcs of which a delivery tree needs one and a solution has less."""

    def __init__(
        self, names: list[str], arcs: dict[Arc, int], root: str, listening: set[str]
    ) -> None:
        index = {name: at for at, name in enumerate(names)}
        self._arcs = np.array(list(arcs.values()), np.int64)
        self._source = np.array([index[u] for u, _ in arcs], np.int64)
        self._target = np.array([index[v] for _, v in arcs], np.int64)
        self._size = len(names)
        self._root = index[root]
        self._ends = sorted(index[name] for name in listening - {root})

    def broken(self, values: np.ndarray) -> list[list[int]]:
        """Variables of the arcs that lead out of the publisher's side, and of those that lead into
        the receiver's, for each switch that listens and is not reached by a whole unit."""
        capacity = np.round(values[self._arcs] * _UNIT).astype(np.int32)
        shape = (self._size, self._size)
        # One more of each arc: of the least cuts, those of few arcs.
        graph = csr_array((capacity + 1, (self._source, self._target)), shape=shape)
        found: dict[tuple[int, ...], None] = {}
        for end in self._ends:
            flow = maximum_flow(graph, self._root, end)
            left = (graph - flow.flow).tocsr()
            left.data[left.data < 0] = 0
            left.eliminate_zeros()
            for first, way in ((self._root, left), (end, left.T.tocsr())):
                inside = np.zeros(self._size, bool)
                inside[breadth_first_order(way, first, return_predecessors=False)] = True
                leaving = inside[self._source] & ~inside[self._target]
                if first == end:
                    leaving = ~inside[self._source] & inside[self._target]
                if values[self._arcs[leaving]].sum() < 1 - _SLACK * 1000:
                    found[tuple(self._arcs[leaving].tolist())] = None
        return [list(cut) for cut in found]
