"""The strategy ``path``: base trees of permanent subscribers, paths to the others
(WERNECKE 5.3.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from udfs.trees.strategies.strategy import Edges, Situation
from udfs.trees.strategies.threshold import Threshold


@dataclass(frozen=True)
class Path:
    """The threshold strategy at 100 %: only who receives every notification is in a base tree."""

    paths: bool = True
    name: str = "path"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        return Threshold(100, self.paths).candidates(situation, budget)
