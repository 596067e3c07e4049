"""The automatic choice of trees beside the best single strategy, in the networks of WERNECKE 6.5.

It looks at recorded publications; it and all strategies are measured on others. As it replays much,
it is made at few budgets and in few drawings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.measure import Both, mean
from benchmarks.trees.networks import names
from benchmarks.trees.zoo import SHOWN, Means, Task, drawing
from stackcast.udfs.retuning.comparison import Record, evaluate
from stackcast.udfs.retuning.mixture import choose
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Edges, Situation, select, uniform

AUTOMATIC = "automatic"
RULES = (10, 40)


def one_run(folder: str | None, task: Task) -> dict[tuple[str, int], Both]:
    """One drawing of clients in a network, the same as that of `zoo`."""
    situation, _, measured, _ = drawing(folder, task)
    cells: dict[tuple[str, int], Both] = {}
    for rules in RULES:
        budget = uniform(situation.network, rules)
        for strategy in SHOWN:
            cells[strategy, rules] = measured(select(STRATEGIES[strategy], situation, budget))
        cells[AUTOMATIC, rules] = measured(list(automatic_choice(situation, budget, SHOWN)))
    return cells


def run(runs: int, processes: int, folder: str | None, only: Sequence[str]) -> None:
    """``only``: networks in place of all that are at hand."""
    lines = Lines("trees", "automatic")
    shown = names(folder, only)
    tasks = [(name, seed) for name in shown for seed in range(runs)]
    collected: dict[tuple[str, str, int], list[Both]] = defaultdict(list)
    for (name, _), cells in in_parallel(partial(one_run, folder), tasks, processes):
        for (strategy, rules), seen in cells.items():
            collected[name, strategy, rules].append(seen)
    means = {key: mean(seen)["refined"] for key, seen in collected.items()}
    for name in shown:
        for rules in RULES:
            seen = means[name, AUTOMATIC, rules]
            fewest = min(means[name, strategy, rules].load for strategy in SHOWN)
            lines.say(
                "chosen",
                network=name,
                rules=rules,
                runs=runs,
                labels=seen.labels,
                load_bytes=seen.load,
                to_best=seen.load / fewest,
            )
    _floors(lines, means, shown)


def _floors(lines: Lines, means: Means, shown: Sequence[str]) -> None:
    """The automatic choice against the best single strategy of each network and budget.

    It is held to the bytes on links that it decides by; labels are told beside them.
    """
    for what in ("load", "labels"):
        ratios = {}
        for name in shown:
            for rules in RULES:
                best = min(getattr(means[name, strategy, rules], what) for strategy in SHOWN)
                ratios[name, rules] = getattr(means[name, AUTOMATIC, rules], what) / best
        (worst_name, worst_rules), worst = max(ratios.items(), key=lambda item: item[1])
        unit = {"load": "bytes on links", "labels": "labels"}[what]
        over = sum(ratio > 1.03 for ratio in ratios.values())
        lines.say(
            "automatic",
            what=unit,
            cells=len(ratios),
            over_3_percent=over,
            mean=sum(ratios.values()) / len(ratios),
            largest=worst,
            network=worst_name,
            rules=worst_rules,
            least=min(ratios.values()),
        )
        if what == "labels":
            continue
        lines.floor(
            f"automatic choice relative to the best single strategy, {unit}: maximum "
            f"({worst_name}, {worst_rules} rules)",
            worst,
            1.03,
            "x",
        )
        lines.floor(
            f"automatic choice relative to the best single strategy, {unit}: mean",
            sum(ratios.values()) / len(ratios),
            1.0,
            "x",
        )


def automatic_choice(
    situation: Situation,
    budget: Mapping[str, int],
    strategies: Iterable[str],
    current: Sequence[Edges] = (),
) -> dict[Edges, str]:
    """Returns trees with the strategy of each, from what the situation's statistics recorded."""
    record = Record(situation.network, situation.statistics.publications)
    outcomes = [
        evaluate(strategy, situation, budget, record)
        for strategy in [STRATEGIES[name] for name in strategies]
    ]
    return dict(choose(record, outcomes, budget, current).trees)
