"""hybrid: trees of freq-relation and of clusters in turns (WERNECKE 6.6.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from udfs.trees.strategies.clusters import Clusters
from udfs.trees.strategies.hub_and_spoke import in_turns
from udfs.trees.strategies.relation import FreqRelation
from udfs.trees.strategies.strategy import Edges, Situation, Strategy


@dataclass(frozen=True)
class Hybrid:
    """One tree of each part in turn; when one has no more, the others go on."""

    parts: tuple[Strategy, ...] = field(default=(FreqRelation(), Clusters()))
    name: str = "hybrid"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        return in_turns([part.candidates(situation, budget) for part in self.parts])
