"""The protocol of strategies, and the choice of their trees: those that all their switches can
hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.trees.publications import Clients, Statistics

Edges = frozenset[tuple[str, str]]
"""A tree: undirected edges between switches and hosts, each a sorted pair of names."""

#: A tree of one edge says no more than a hop label does (WERNECKE 6.2.2).
FEWEST_EDGES = 2
#: Candidates in a row that brought no new tree, after which an endless strategy ends.
_PATIENCE = 2_000


@dataclass(frozen=True)
class Situation:
    """Holds all that strategies may know. ``seed``: for those that draw lots."""

    network: Network
    clients: Clients
    statistics: Statistics
    seed: int = 0


class Strategy(Protocol):
    """Chooses trees. The same situation gives the same trees on any machine."""

    @property
    def name(self) -> str:
        """The name in the text: ``broadcast``, ``topo``, …"""

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        """Yields trees in the order in which they should be installed.

        All edges are links of the network that are usable. Candidates may be endless, may repeat,
        and need not fit: :func:`select` takes what fits. ``budget``: trees that each switch may
        hold.
        """


class TreeCapacity:
    """Counts how many more trees each switch may hold; a tree takes one place in every switch that
    it touches.

    ``left``: free places by switch, below 0 where more was reserved than fits.

    Raises NetworkError ``BAD_SIZE`` for a budget below 0; a switch without one holds no tree.
    """

    def __init__(self, network: Network, budget: Mapping[str, int]) -> None:
        below = sorted(name for name, most in budget.items() if most < 0)
        if below:
            raise NetworkError(
                "BAD_SIZE",
                f"the tree budget of switch {below[0]!r} is {budget[below[0]]}, but must be "
                "at least 0",
            )
        self.left = {name: budget.get(name, 0) for name in network.switches}

    def fits(self, edges: Edges) -> bool:
        return all(self.left[name] > 0 for name in self.switches(edges))

    def reserve(self, edges: Edges) -> None:
        for name in self.switches(edges):
            self.left[name] -= 1

    def release(self, edges: Edges) -> None:
        for name in self.switches(edges):
            self.left[name] += 1

    def evictions(self, edges: Edges, others: Iterable[Edges]) -> list[Edges] | None:
        """Returns those of ``others`` that have to go so that this tree fits, the first that help;
        None if it cannot fit. Nothing is released yet."""
        full = {name: self.left[name] for name in self.switches(edges) if self.left[name] <= 0}
        going = []
        for other in others:
            if not full:
                break
            helped = self.switches(other) & full.keys()
            if helped:
                going.append(other)
                for name in helped:
                    full[name] += 1
                    if full[name] > 0:
                        del full[name]
        return None if full else going

    def exhausted(self) -> bool:
        return not any(self.left.values())

    def switches(self, edges: Edges) -> set[str]:
        return {name for pair in edges for name in pair if name in self.left}


def uniform(network: Network, trees: int) -> dict[str, int]:
    """Returns the same budget for every switch."""
    return dict.fromkeys(network.switches, trees)


def select(strategy: Strategy, situation: Situation, budget: Mapping[str, int]) -> list[Edges]:
    """Returns the strategy's trees that fit the budget together, in its order, all different.

    Raises NetworkError ``BAD_SIZE`` for a budget below 0.
    """
    capacity = TreeCapacity(situation.network, budget)
    taken: dict[Edges, None] = {}
    misses = 0
    if capacity.exhausted():
        return []
    for edges in strategy.candidates(situation, budget):
        if len(edges) >= FEWEST_EDGES and edges not in taken and capacity.fits(edges):
            capacity.reserve(edges)
            taken[edges] = None
            misses = 0
        else:
            misses += 1
        if misses >= _PATIENCE or capacity.exhausted():
            break
    return list(taken)


def numbered(trees: Iterable[Edges], strategy: str, first_id: int = 1) -> list[VirtualTree]:
    """Makes active virtual trees with ids from ``first_id`` on."""
    return [VirtualTree(first_id + n, edges, strategy) for n, edges in enumerate(trees)]
