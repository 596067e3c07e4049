"""The strategies ``hops`` and ``broadcast``, which look at no traffic: no trees at all, and trees
that join all hosts (WERNECKE 5.3.2, 6.2.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stackcast.udfs.trees.broadcast import broadcast_edges
from stackcast.udfs.trees.strategies.strategy import Edges, Situation


@dataclass(frozen=True)
class Hops:
    """Installs nothing, the baseline of source routing: every stack is hop labels."""

    name: str = "hops"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        return iter(())


@dataclass(frozen=True)
class Broadcast:
    """One tree a spine, or a switch where the network names no spines; the shortest first.

    It looks at the network alone. Encoders take the tree that suits a publisher, and spread
    publishers over those that suit it equally.
    """

    name: str = "broadcast"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        if any(budget.values()):
            yield from broadcast_edges(situation.network)
