"""Churn, as WERNECKE 6.6: clients move while trees stay, or are retuned (Fig. 6.13 to 6.15).

30 % of the hosts publish, each to 30 %, and 40 trees fit a switch. With every 10 % of churn a tenth
of the clients that have not moved yet, publishers and subscribers, take other hosts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.automatic import AUTOMATIC, automatic_choice
from benchmarks.trees.claims import Claim, say
from benchmarks.trees.clients import MIGRATIONS, Moving, crowd, migration, recorded
from benchmarks.trees.measure import ALGORITHMS, Both, Measured, Memory, mean
from benchmarks.trees.networks import CANDIDATES, names, zoo
from benchmarks.trees.zoo import SHOWN
from udfs.retuning.change import MIN_SAVING as DEFAULT
from udfs.retuning.change import plan_change
from udfs.retuning.comparison import Record
from udfs.retuning.steps import rules as rules_of
from udfs.trees.encode import Algorithm
from udfs.trees.strategies.registry import STRATEGIES
from udfs.trees.strategies.strategy import Edges, Situation, select, uniform

RULES = 40
PUBLISHERS = SUBSCRIBERS = 0.3
STEPS = 10
RECORDED, MEASURED = 8, 3
#: A strategy's own trees are held against its optimum by the header, so retuning saves that, and
#: leaves nothing away. The automatic choice saves bytes on links, as the job does by default.
MIN_SAVING = 0.0
#: Those whose trees follow clients: for the others there is nothing to retune.
FOLLOWING = ("clusters", "freq-relation", "hybrid")
#: Fig. 6.15: percentages of subscribers, after all clients moved.
QUANTITIES = (15, 30, 45)
SCALE_FREE = 3.0
"""Networks of this fluctuation of degrees and more count as scale-free (Fig. 6.15)."""

Task = tuple[str, str, int]
"""Network, migration, number of the drawing."""
Cell = tuple[str, str, int]
"""Strategy, its trees (kept, optimum, retuned or stale), percentage of churn."""

Means = Mapping[tuple[str, str, str, str, int], Measured]
"""By network, migration, strategy, its trees, percentage of churn."""
Best = dict[tuple[str, str, int], dict[str, float]]
"""Labels by strategy, by network, migration and percentage of subscribers."""


@dataclass(frozen=True)
class Retuned:
    """The changes of one retuning. rules: of all trees that stand then."""

    strategy: str
    percent: int
    changed: int
    rules: int


def one_run(
    folder: str | None, automatic: bool, task: Task
) -> tuple[dict[Cell, Both], list[Retuned]]:
    """One migration of all clients of a network, step by step.

    ``automatic``: whether the automatic choice is followed, too.
    """
    name, how, seed = task
    place = zoo(name, folder)
    network = place.network
    random = Random(f"churn {name} {how} {seed}")
    before, after = migration(place, how)
    who = crowd(network, random, PUBLISHERS, SUBSCRIBERS, before)
    moving = Moving(network, random, who, after)
    budget = uniform(network, RULES)
    kept: dict[str, list[Edges]] = {}
    standing: dict[str, Mapping[Edges, str]] = {}
    cells: dict[Cell, Both] = {}
    changes: list[Retuned] = []
    for step in range(STEPS + 1):
        percent = 100 * step // STEPS
        moving.move(step / STEPS)
        who = moving.crowd()
        situation = Situation(network, who.clients(), recorded(who, random, RECORDED), seed)
        measured = Memory(network, who.draw(random, MEASURED))
        record = Record(network, situation.statistics.publications)
        headers = Record(network, situation.statistics.publications, "labels")
        for strategy in SHOWN:
            fresh = strategy in (*FOLLOWING, "relation") or step == 0
            trees = select(STRATEGIES[strategy], situation, budget) if fresh else kept[strategy]
            cells[strategy, "kept", percent] = measured(kept.setdefault(strategy, trees))
            cells[strategy, "optimum", percent] = measured(trees)
            if strategy in FOLLOWING:
                target: Mapping[Edges, str] = dict.fromkeys(trees, strategy)
                _retune(strategy, target, standing, headers, measured, cells, changes, percent)
        if not automatic:
            continue
        stands = list(standing.get(AUTOMATIC, ()))
        target = automatic_choice(situation, budget, SHOWN, stands)
        kept.setdefault(AUTOMATIC, list(target))
        cells[AUTOMATIC, "kept", percent] = measured(kept[AUTOMATIC])
        cells[AUTOMATIC, "optimum", percent] = measured(list(target))
        _retune(AUTOMATIC, target, standing, record, measured, cells, changes, percent)
    return cells, changes


def _retune(
    strategy: str,
    target: Mapping[Edges, str],
    standing: dict[str, Mapping[Edges, str]],
    record: Record,
    measured: Memory,
    cells: dict[Cell, Both],
    changes: list[Retuned],
    percent: int,
) -> None:
    """Measures the trees that stood so far, and those that retuning makes of them."""
    network = record.network
    if strategy not in standing:
        standing[strategy] = target
    else:
        cells[strategy, "stale", percent] = measured(list(standing[strategy]))
        budget = uniform(network, RULES)
        least = MIN_SAVING if record.objective == "labels" else DEFAULT
        change = plan_change(
            network, standing[strategy], target, budget, record.replay, min_saving=least
        )
        standing[strategy] = change.wanted
        places = sum(rules_of(network, edges) for edges in change.wanted)
        changes.append(Retuned(strategy, percent, change.rules, places))
    cells[strategy, "retuned", percent] = measured(list(standing[strategy]))


def after_all(folder: str | None, task: tuple[str, str, int, int]) -> dict[str, Both]:
    """Fig. 6.15: every strategy's first trees once all clients have moved."""
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


def run(
    runs: int,
    processes: int,
    folder: str | None,
    only: Sequence[str],
    automatic: bool,
) -> None:
    lines = Lines("trees", "churn")
    shown = [name for name in CANDIDATES if not only or name in only]
    tasks = [(name, how, n) for name in shown for how in MIGRATIONS for n in range(runs)]
    seen: dict[tuple[str, str, str, str, int], list[Both]] = defaultdict(list)
    changed: dict[tuple[str, str, str, int], list[Retuned]] = defaultdict(list)
    answers = in_parallel(partial(one_run, folder, automatic), tasks, processes)
    for (name, how, _), (cells, changes) in answers:
        for (strategy, trees, percent), each in cells.items():
            seen[name, how, strategy, trees, percent].append(each)
        for change in changes:
            changed[name, how, change.strategy, change.percent].append(change)
    means = {key: mean(each) for key, each in seen.items()}
    for (name, how, strategy, which, percent), both in means.items():
        each = both["refined"]
        lines.say(
            "churn",
            network=name,
            migration=how,
            strategy=strategy,
            which=which,
            churn=percent,
            header_bytes=each.header,
            labels=each.labels,
            labels_greedy=both["greedy"].labels,
            trees=each.trees,
            hops=each.hops,
            stops=each.stops,
            load_bytes=each.load,
        )
    for (name, how, strategy, percent), rows in changed.items():
        lines.say(
            "retuned",
            network=name,
            migration=how,
            strategy=strategy,
            churn=percent,
            rules_changed=sum(row.changed for row in rows) / len(rows),
            rules=sum(row.rules for row in rows) / len(rows),
        )
    by = {name: {key: both[name] for key, both in means.items()} for name in ALGORITHMS}
    _floors(lines, by["refined"])
    best = _best(lines, runs, processes, folder, only)
    say(
        lines,
        {
            name: [*_claims_of_churn(by[name], shown), *_claims_of_best(best[name], folder)]
            for name in ALGORITHMS
        },
    )


def _floors(lines: Lines, means: Means) -> None:
    """The automatic choice is held to the bytes on links that it decides by, strategies to their
    headers."""
    percents = range(10, 101, 10)
    for strategy in (*FOLLOWING, AUTOMATIC):
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
            when = f"largest ({name}, {how}, {percent} %)"
            if which == "retuned":
                what = f"{strategy}, retuned every 10 % of churn: {unit} against the optimum"
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


def _best(
    lines: Lines, runs: int, processes: int, folder: str | None, only: Sequence[str]
) -> dict[Algorithm, Best]:
    """Labels after all clients moved, by each algorithm."""
    tasks = [
        (name, how, quantity, n)
        for name in names(folder, only)
        for how in MIGRATIONS
        for quantity in QUANTITIES
        for n in range(runs)
    ]
    seen: dict[tuple[str, str, int], list[dict[str, Both]]] = defaultdict(list)
    for (name, how, quantity, _), each in in_parallel(partial(after_all, folder), tasks, processes):
        seen[name, how, quantity].append(each)
    labels: dict[Algorithm, Best] = {
        algorithm: {
            key: {s: mean(row[s] for row in rows)[algorithm].labels for s in SHOWN}
            for key, rows in seen.items()
        }
        for algorithm in ALGORITHMS
    }
    for (name, how, quantity), by_strategy in labels["refined"].items():
        strategy = min(by_strategy, key=by_strategy.__getitem__)
        lines.say(
            "best",
            network=name,
            migration=how,
            subscribers=quantity,
            strategy=strategy,
            labels=by_strategy[strategy],
            diameter=zoo(name, folder).diameter,
            fluctuation=zoo(name, folder).fluctuation,
            all=by_strategy,
            runs=runs,
        )
    return labels


Average = Callable[[str, str, int], float]
"""Labels by migration, strategy and percentage of churn, over all networks."""


def _claims_of_churn(means: Means, shown: Sequence[str]) -> Iterator[Claim]:
    def kept(name: str, how: str, strategy: str, percent: int) -> float:
        return means[name, how, strategy, "kept", percent].labels

    def average(how: str, strategy: str, percent: int) -> float:
        return sum(kept(name, how, strategy, percent) for name in shown) / len(shown)

    crest = [average("distant", "hops", percent) for percent in (0, 50, 100)]
    yield Claim(
        "6.6.2 (a)",
        "hops stay the same with churn, but for distant: a crest at 50 %",
        "a picture",
        crest[1] > max(crest[0], crest[2]),
        "distant at 0, 50, 100 %: " + ", ".join(f"{each:.1f}" for each in crest) + " labels",
    )
    hops = {how: sum(average(how, "hops", p) for p in range(0, 101, 10)) / 11 for how in MIGRATIONS}
    yield Claim(
        "6.6.2 (a)",
        "uniform takes more hops than nearby and distant",
        "a picture",
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
        "cycles have the largest headers of all strategies with trees, always",
        "a picture",
        all(largest.values()),
        f"at 0, 50 and 100 % in {sum(largest.values())} of {len(largest)} scenarios",
    )
    yield Claim(
        "6.6.2 (d)",
        "freq-relation falls back towards hops where clients go to distant regions",
        "a picture",
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
        "partitions beat clusters where clients are uniform, clusters beat partitions nearby and "
        "distant",
        "a picture",
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
        "hybrid is near the better of freq-relation and clusters at 0 % and at 100 %",
        "a picture",
        max(pairs.values()) < 1.2,
        ", ".join(f"{how} {p} %: {ratio:.2f} x" for (how, p), ratio in pairs.items()),
    )


def _claims_of_best(best: Best, folder: str | None) -> Iterator[Claim]:
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
            f"after full churn {' or '.join(strategies)} are best in {kind} networks",
            "a picture",
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
        "the best headers of scale-free networks are larger than those of others",
        "a picture",
        means_of.get("scale-free", 0.0) > means_of.get("other", 0.0),
        ", ".join(f"{kind} {each:.2f} labels" for kind, each in means_of.items()),
    )


def _mean_over_churn(average: Average, how: str, strategy: str) -> float:
    return sum(average(how, strategy, p) for p in range(0, 101, 10)) / 11
