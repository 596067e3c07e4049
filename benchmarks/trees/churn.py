"""Churn, as WERNECKE 6.6.2: clients move while the trees of the beginning stay (Fig. 6.14).

30 % of the hosts publish, each to 30 %, and 40 trees fit a switch. With every 10 % of churn a tenth
of the clients that have not moved yet, publishers and subscribers, take other hosts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.claims import Claim, say
from benchmarks.trees.clients import MIGRATIONS, Moving, crowd, migration, recorded
from benchmarks.trees.measure import ALGORITHMS, Both, Measured, Memory, mean, spread
from benchmarks.trees.networks import CANDIDATES, zoo
from benchmarks.trees.zoo import SHOWN
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Edges, Situation, select, uniform

RULES = 40
PUBLISHERS = SUBSCRIBERS = 0.3
STEPS = 10
RECORDED, MEASURED = 8, 3

Task = tuple[str, str, int]
"""Network, migration, number of the drawing."""
Cell = tuple[str, int]
"""Strategy, percentage of churn."""
Means = Mapping[tuple[str, str, str, int], Measured]
"""By network, migration, strategy, percentage of churn."""


def drawing(folder: str | None, task: Task) -> Iterator[tuple[int, Situation, Memory]]:
    """Moves all clients of a network step by step; yields the percentage of churn, what strategies
    know then, and notifications to measure, that none of them has seen."""
    name, how, seed = task
    place = zoo(name, folder)
    random = Random(f"churn {name} {how} {seed}")
    before, after = migration(place, how)
    who = crowd(place.network, random, PUBLISHERS, SUBSCRIBERS, before)
    moving = Moving(place.network, random, who, after)
    for step in range(STEPS + 1):
        moving.move(step / STEPS)
        who = moving.crowd()
        situation = Situation(place.network, who.clients(), recorded(who, random, RECORDED), seed)
        yield 100 * step // STEPS, situation, Memory(place.network, who.draw(random, MEASURED))


def one_run(folder: str | None, task: Task) -> dict[Cell, Both]:
    """One migration under every strategy's first trees."""
    kept: dict[str, list[Edges]] = {}
    cells: dict[Cell, Both] = {}
    for percent, situation, measured in drawing(folder, task):
        if not kept:
            budget = uniform(situation.network, RULES)
            kept = {name: select(STRATEGIES[name], situation, budget) for name in SHOWN}
        for strategy, trees in kept.items():
            cells[strategy, percent] = measured(trees)
    return cells


def run(runs: int, processes: int, folder: str | None, only: Sequence[str]) -> None:
    """``only``: networks in place of the three candidates."""
    lines = Lines("trees", "churn")
    shown = [name for name in CANDIDATES if not only or name in only]
    tasks = [(name, how, n) for n in range(runs) for name in shown for how in MIGRATIONS]
    seen: dict[tuple[str, str, str, int], list[Both]] = defaultdict(list)
    for (name, how, _), cells in in_parallel(partial(one_run, folder), tasks, processes):
        for (strategy, percent), each in cells.items():
            seen[name, how, strategy, percent].append(each)
    means = {key: mean(each) for key, each in seen.items()}
    for (name, how, strategy, percent), both in means.items():
        each, apart = both["refined"], spread(seen[name, how, strategy, percent])
        lines.say(
            "churn",
            network=name,
            migration=how,
            strategy=strategy,
            churn=percent,
            runs=runs,
            header_bytes=each.header,
            labels=each.labels,
            labels_apart=apart.labels if apart else None,
            labels_greedy=both["greedy"].labels,
            trees=each.trees,
            hops=each.hops,
            stops=each.stops,
            load_bytes=each.load,
        )
    by = {name: {key: both[name] for key, both in means.items()} for name in ALGORITHMS}
    say(lines, {name: claims(by[name], shown) for name in ALGORITHMS})


Average = Callable[[str, str, int], float]
"""Labels by migration, strategy and percentage of churn, over all networks."""


def claims(means: Means, shown: Sequence[str]) -> Iterator[Claim]:
    """Yields what 6.6.2 claims, judged by these figures."""

    def kept(name: str, how: str, strategy: str, percent: int) -> float:
        return means[name, how, strategy, percent].labels

    def average(how: str, strategy: str, percent: int) -> float:
        return sum(kept(name, how, strategy, percent) for name in shown) / len(shown)

    crest = [average("distant", "hops", percent) for percent in (0, 50, 100)]
    yield Claim(
        "6.6.2 (a)",
        "churn does not change the headers of hops, except for a peak at 50 % in the distant "
        "scenario",
        "plot only",
        crest[1] > max(crest[0], crest[2]),
        "distant at 0, 50, 100 %: " + ", ".join(f"{each:.1f}" for each in crest) + " labels",
    )
    hops = {how: sum(average(how, "hops", p) for p in range(0, 101, 10)) / 11 for how in MIGRATIONS}
    yield Claim(
        "6.6.2 (a)",
        "hops need more labels in the uniform scenario than in nearby and distant",
        "plot only",
        hops["uniform"] > max(hops["nearby"], hops["distant"]),
        ", ".join(f"{how} {each:.1f}" for how, each in hops.items()),
    )
    others = [s for s in SHOWN if s not in ("hops", "broadcast", "cycles")]
    largest = {
        (name, how): all(
            kept(name, how, "cycles", p) >= kept(name, how, s, p)
            for s in others
            for p in (0, 50, 100)
        )
        for name in shown
        for how in MIGRATIONS
    }
    yield Claim(
        "6.6.2 (c)",
        "cycles always have the largest headers of all strategies with trees",
        "plot only",
        all(largest.values()),
        f"at 0, 50 and 100 % in {sum(largest.values())} of {len(largest)} scenarios",
    )
    yield Claim(
        "6.6.2 (d)",
        "freq-relation approaches hops when clients move to distant regions",
        "plot only",
        average("distant", "freq-relation", 100) > 0.8 * average("distant", "hops", 100)
        and average("nearby", "freq-relation", 100) < average("distant", "freq-relation", 100),
        "labels at 0, 50, 100 %: "
        + "; ".join(
            f"{how} " + ", ".join(f"{average(how, 'freq-relation', p):.1f}" for p in (0, 50, 100))
            for how in MIGRATIONS
        )
        + f"; hops, distant, 100 %: {average('distant', 'hops', 100):.1f}",
    )
    yield Claim(
        "6.6.2 (e, f)",
        "partitions beat clusters in the uniform scenario, and clusters beat partitions in nearby "
        "and distant",
        "plot only",
        _mean_over_churn(average, "uniform", "partitions")
        < _mean_over_churn(average, "uniform", "clusters")
        and all(
            _mean_over_churn(average, how, "clusters")
            < _mean_over_churn(average, how, "partitions")
            for how in ("nearby", "distant")
        ),
        "; ".join(
            f"{how}: "
            + ", ".join(
                f"{s} {_mean_over_churn(average, how, s):.2f}" for s in ("partitions", "clusters")
            )
            for how in MIGRATIONS
        ),
    )
    pairs = {
        (how, p): average(how, "hybrid", p)
        / min(average(how, "freq-relation", p), average(how, "clusters", p))
        for how in MIGRATIONS
        for p in (0, 100)
    }
    yield Claim(
        "6.6.2 (g)",
        "hybrid is close to the better of freq-relation and clusters at 0 % and at 100 % churn",
        "plot only",
        max(pairs.values()) < 1.2,
        ", ".join(f"{how} {p} %: {ratio:.2f} x" for (how, p), ratio in pairs.items()),
    )


def _mean_over_churn(average: Average, how: str, strategy: str) -> float:
    return sum(average(how, strategy, p) for p in range(0, 101, 10)) / 11
