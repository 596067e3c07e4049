"""The automatic choice, as the job that retunes makes it: strategies compared, and a mixture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from udfs.retuning.comparison import Record, evaluate
from udfs.retuning.mixture import choose as choose_mixture
from udfs.trees.strategies.registry import STRATEGIES
from udfs.trees.strategies.strategy import Edges, Situation


def choose(
    situation: Situation,
    budget: Mapping[str, int],
    strategies: Iterable[str],
    current: Sequence[Edges] = (),
) -> dict[Edges, str]:
    """Trees with the strategy of each, from what the situation's statistics recorded."""
    record = Record(situation.network, situation.statistics.publications)
    outcomes = [
        evaluate(strategy, situation, budget, record)
        for strategy in [STRATEGIES[name] for name in strategies]
    ]
    return dict(choose_mixture(record, outcomes, budget, current).trees)
