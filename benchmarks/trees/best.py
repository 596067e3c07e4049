"""The best strategy of each network once all clients moved, as WERNECKE 6.6.3 (Fig. 6.15)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.churn import MEASURED, PUBLISHERS, RECORDED, RULES
from benchmarks.trees.claims import Claim, say
from benchmarks.trees.clients import MIGRATIONS, Moving, crowd, migration, recorded
from benchmarks.trees.measure import ALGORITHMS, Both, Memory, mean, spread
from benchmarks.trees.networks import names, zoo
from benchmarks.trees.zoo import SHOWN
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Situation, select, uniform

#: Percentages of subscribers.
QUANTITIES = (15, 30, 45)
SCALE_FREE = 3.0
"""Networks of this fluctuation of degrees and more count as scale-free (Fig. 6.15)."""

Task = tuple[str, str, int, int]
"""Network, migration, percentage of subscribers, number of the drawing."""
Best = Mapping[tuple[str, str, int], Mapping[str, float]]
"""Labels by strategy, by network, migration and percentage of subscribers."""


def one_run(folder: str | None, task: Task) -> dict[str, Both]:
    """Every strategy's first trees, measured once all clients have moved."""
    name, how, quantity, seed = task
    place = zoo(name, folder)
    random = Random(f"moved {name} {how} {quantity} {seed}")
    before, after = migration(place, how)
    who = crowd(place.network, random, PUBLISHERS, quantity / 100, before)
    moving = Moving(place.network, random, who, after)
    situation = Situation(place.network, who.clients(), recorded(who, random, RECORDED), seed)
    moving.move(1.0)
    measured = Memory(place.network, moving.crowd().draw(random, MEASURED))
    budget = uniform(place.network, RULES)
    return {
        strategy: measured(select(STRATEGIES[strategy], situation, budget)) for strategy in SHOWN
    }


def run(runs: int, processes: int, folder: str | None, only: Sequence[str]) -> None:
    """``only``: networks in place of all that are at hand."""
    lines = Lines("trees", "best")
    tasks = [
        (name, how, quantity, n)
        for n in range(runs)
        for name in names(folder, only)
        for how in MIGRATIONS
        for quantity in QUANTITIES
    ]
    seen: dict[tuple[str, str, int], list[dict[str, Both]]] = defaultdict(list)
    for (name, how, quantity, _), each in in_parallel(partial(one_run, folder), tasks, processes):
        seen[name, how, quantity].append(each)
    labels = {
        algorithm: {
            key: {s: mean(row[s] for row in rows)[algorithm].labels for s in SHOWN}
            for key, rows in seen.items()
        }
        for algorithm in ALGORITHMS
    }
    for (name, how, quantity), of in labels["refined"].items():
        rows = seen[name, how, quantity]
        strategy = min(of, key=of.__getitem__)
        apart = spread(row[strategy] for row in rows)
        lines.say(
            "best",
            network=name,
            migration=how,
            subscribers=quantity,
            runs=runs,
            strategy=strategy,
            labels=of[strategy],
            labels_apart=apart.labels if apart else None,
            drawings=sum(_best_of(row) == strategy for row in rows),
            diameter=zoo(name, folder).diameter,
            fluctuation=zoo(name, folder).fluctuation,
            all=of,
        )
    say(lines, {name: claims(labels[name], folder) for name in ALGORITHMS})


def _best_of(row: Mapping[str, Both]) -> str:
    return min(row, key=lambda strategy: row[strategy]["refined"].labels)


def claims(best: Best, folder: str | None) -> Iterator[Claim]:
    """Yields what 6.6.3 claims, judged by these labels."""
    winners: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    size: dict[str, list[float]] = defaultdict(list)
    for (name, how, _), by_strategy in best.items():
        kind = "scale-free" if zoo(name, folder).fluctuation >= SCALE_FREE else "other"
        winner = min(by_strategy, key=by_strategy.__getitem__)
        winners[kind, how][winner] += 1
        size[kind].append(by_strategy[winner])
    expected = {"scale-free": ("partitions", "clusters"), "other": ("freq-relation", "clusters")}
    for kind, strategies in expected.items():
        counts = {how: sum(winners[kind, how].get(s, 0) for s in strategies) for how in MIGRATIONS}
        total = {how: sum(winners[kind, how].values()) for how in MIGRATIONS}
        yield Claim(
            "6.6.3",
            f"after full churn, {' or '.join(strategies)} are best in {kind} networks",
            "plot only",
            all(2 * counts[how] >= total[how] for how in MIGRATIONS),
            "; ".join(
                f"{how}: "
                + ", ".join(
                    f"{s} {n}" for s, n in sorted(winners[kind, how].items(), key=lambda x: -x[1])
                )
                for how in MIGRATIONS
            ),
        )
    means_of = {kind: sum(each) / len(each) for kind, each in size.items()}
    yield Claim(
        "6.6.3",
        "the best headers of scale-free networks are larger than those of other networks",
        "plot only",
        means_of.get("scale-free", 0.0) > means_of.get("other", 0.0),
        ", ".join(f"{kind} {each:.2f} labels" for kind, each in means_of.items()),
    )
