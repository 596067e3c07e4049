"""Retuning while clients move: trees kept, changed with every 10 % of churn, or chosen anew.

Clients are those of `churn`. A strategy's own trees are held against its optimum by the header, so
retuning saves that, and leaves nothing away; the automatic choice saves bytes on links, as the job
does by default.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.automatic import AUTOMATIC, automatic_choice
from benchmarks.trees.churn import RULES, Task, drawing
from benchmarks.trees.clients import MIGRATIONS
from benchmarks.trees.measure import Both, Measured, Memory, mean
from benchmarks.trees.networks import CANDIDATES
from benchmarks.trees.zoo import SHOWN
from stackcast.udfs.retuning.change import MIN_SAVING, plan_change
from stackcast.udfs.retuning.comparison import Record
from stackcast.udfs.retuning.steps import Wanted
from stackcast.udfs.retuning.steps import rules as rules_of
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Edges, Situation, select, uniform

#: Those whose trees follow clients: for the others there is nothing to retune.
FOLLOWING = ("clusters", "freq-relation", "hybrid")
ALL = (*FOLLOWING, AUTOMATIC)

Cell = tuple[str, str, int]
"""Strategy, its trees (kept, optimum, stale or retuned), percentage of churn."""


@dataclass(frozen=True)
class Change:
    """The change of one retuning. changed: rules; rules: of all trees that stand then."""

    strategy: str
    percent: int
    changed: int
    rules: int


class _Strategy:
    """A strategy's trees through churn, measured at each step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cells: dict[Cell, Both] = {}
        self.changes: list[Change] = []
        self._kept: list[Edges] = []
        self._standing: Wanted = {}

    def step(self, percent: int, situation: Situation, measured: Memory) -> None:
        def say(which: str, trees: Sequence[Edges]) -> None:
            self.cells[self.name, which, percent] = measured(list(trees))

        optimum = self._optimum(situation)
        if percent == 0:
            self._kept, self._standing = list(optimum), optimum
        else:
            say("stale", list(self._standing))
            self._retune(percent, situation, optimum)
        say("kept", self._kept)
        say("optimum", list(optimum))
        say("retuned", list(self._standing))

    def _optimum(self, situation: Situation) -> Wanted:
        """Returns the trees that would be chosen now, from scratch."""
        budget = uniform(situation.network, RULES)
        if self.name == AUTOMATIC:
            return automatic_choice(situation, budget, SHOWN, list(self._standing))
        trees = select(STRATEGIES[self.name], situation, budget)
        return dict.fromkeys(trees, self.name)

    def _retune(self, percent: int, situation: Situation, target: Wanted) -> None:
        network, budget = situation.network, uniform(situation.network, RULES)
        known = situation.statistics.publications
        if self.name == AUTOMATIC:
            record, least = Record(network, known), MIN_SAVING
        else:
            record, least = Record(network, known, "labels"), 0.0
        change = plan_change(
            network, self._standing, target, budget, record.replay, min_saving=least
        )
        self._standing = change.wanted
        places = sum(rules_of(network, edges) for edges in change.wanted)
        self.changes.append(Change(self.name, percent, change.rules, places))


def one_run(folder: str | None, task: Task) -> tuple[dict[Cell, Both], list[Change]]:
    """One migration of all clients of a network, step by step."""
    strategies = [_Strategy(name) for name in ALL]
    for percent, situation, measured in drawing(folder, task):
        for each in strategies:
            each.step(percent, situation, measured)
    cells = {cell: both for each in strategies for cell, both in each.cells.items()}
    return cells, [change for each in strategies for change in each.changes]


def run(runs: int, processes: int, folder: str | None, only: Sequence[str]) -> None:
    """``only``: networks in place of the three candidates."""
    lines = Lines("trees", "retuned")
    shown = [name for name in CANDIDATES if not only or name in only]
    tasks = [(name, how, n) for n in range(runs) for name in shown for how in MIGRATIONS]
    seen: dict[tuple[str, str, str, str, int], list[Both]] = defaultdict(list)
    changed: dict[tuple[str, str, str, int], list[Change]] = defaultdict(list)
    for (name, how, _), (cells, changes) in in_parallel(partial(one_run, folder), tasks, processes):
        for (strategy, which, percent), each in cells.items():
            seen[name, how, strategy, which, percent].append(each)
        for change in changes:
            changed[name, how, change.strategy, change.percent].append(change)
    means = {key: mean(each)["refined"] for key, each in seen.items()}
    for (name, how, strategy, which, percent), measured in means.items():
        lines.say(
            "retuned",
            network=name,
            migration=how,
            strategy=strategy,
            which=which,
            churn=percent,
            runs=runs,
            header_bytes=measured.header,
            labels=measured.labels,
            load_bytes=measured.load,
        )
    for (name, how, strategy, percent), rows in changed.items():
        lines.say(
            "changes",
            network=name,
            migration=how,
            strategy=strategy,
            churn=percent,
            rules_changed=sum(row.changed for row in rows) / len(rows),
            rules=sum(row.rules for row in rows) / len(rows),
        )
    _floors(lines, means)


def _floors(lines: Lines, means: Mapping[tuple[str, str, str, str, int], Measured]) -> None:
    """The automatic choice is held to the bytes on links that it decides by, strategies to their
    headers."""
    percents = range(10, 101, 10)
    for strategy in ALL:
        held = "load" if strategy == AUTOMATIC else "header"
        unit = {"load": "bytes on links", "header": "header"}[held]
        for which in ("retuned", "stale"):
            ratios = {
                (name, how, percent): getattr(means[name, how, strategy, which, percent], held)
                / getattr(means[name, how, strategy, "optimum", percent], held)
                for name in CANDIDATES
                for how in MIGRATIONS
                for percent in percents
                if (name, how, strategy, which, percent) in means
            }
            if not ratios:
                continue
            (name, how, percent), worst = max(ratios.items(), key=lambda item: item[1])
            average = sum(ratios.values()) / len(ratios)
            when = f"maximum ({name}, {how}, {percent} %)"
            if which == "retuned":
                what = (
                    f"{strategy}, retuned after every 10 % of churn: {unit} relative to the optimum"
                )
                lines.floor(f"{what}, mean", average, 1.1, "x")
                lines.floor(f"{what}, {when}", worst, 1.1, "x")
            else:
                lines.say(
                    "before retuning",
                    strategy=strategy,
                    mean=average,
                    largest=worst,
                    network=name,
                    migration=how,
                    churn=percent,
                )
