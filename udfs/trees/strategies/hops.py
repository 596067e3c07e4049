"""hops: no trees at all, the baseline of source routing (WERNECKE 6.2.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from udfs.trees.strategies.strategy import Edges, Situation


@dataclass(frozen=True)
class Hops:
    """Installs nothing: every stack is hop labels."""

    name: str = "hops"

    def candidates(self, situation: Situation, budget: Mapping[str, int]) -> Iterator[Edges]:
        return iter(())
