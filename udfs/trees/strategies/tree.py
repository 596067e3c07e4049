"""The strategy ``tree``: each publisher with all that may subscribe (WERNECKE 5.3.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from udfs.trees.strategies.strategy import Edges, Situation
from udfs.trees.strategies.threshold import Threshold


@dataclass(frozen=True)
class Tree:
    """A broadcast tree a publisher, pruned (Algorithm 5.2) to it and its potential subscribers.

    The threshold strategy at 0 %: statistics only say which publishers come first. Publishers
    whose tree found no room get paths.
    """

    paths: bool = True
    name: str = "tree"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        return Threshold(0, self.paths).candidates(situation, budget)
