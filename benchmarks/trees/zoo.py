"""Static scenarios of WERNECKE 6.5: labels by rules a switch, and what they are made of (Fig. 6.9).

30 % of the hosts publish, each to 30 %, in four clusters. The automatic choice looks at recorded
publications; all strategies are measured on others that none of them has seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from random import Random

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.clients import crowd, recorded
from benchmarks.trees.measure import Measured, Memory, mean
from benchmarks.trees.networks import CANDIDATES, TABLE, names, zoo
from udfs.retuning.comparison import Record, evaluate
from udfs.retuning.mixture import choose
from udfs.trees.strategies.registry import STRATEGIES
from udfs.trees.strategies.strategy import Edges, Situation, select, uniform

RULES = (5, 10, 20, 30, 40)
PUBLISHERS = SUBSCRIBERS = 0.3
RECORDED, MEASURED = 12, 6
AUTOMATIC = "automatic"
#: The automatic choice replays much: it is made at these budgets only.
FEW = (10, 40)
#: The strategies of chapter 6, as Fig. 6.9 draws them, and the two that it leaves out.
SHOWN = (
    "hops",
    "broadcast",
    "random",
    "random-variant",
    "cycles",
    "partitions",
    "clusters",
    "relation",
    "freq-relation",
    "hybrid",
)

Cell = tuple[str, int]
"""Strategy, rules a switch."""
Task = tuple[str, int]
"""Network, number of the drawing."""


def one_run(
    folder: str | None, automatic: Sequence[str] | None, task: Task
) -> dict[Cell, Measured]:
    """One drawing of clients in a network, for all strategies and budgets.

    ``automatic``: networks that the automatic choice is made in, None for all.
    """
    name, seed = task
    place = zoo(name, folder)
    random = Random(f"zoo {name} {seed}")
    who = crowd(place.network, random, PUBLISHERS, SUBSCRIBERS, place.weights())
    situation = Situation(place.network, who.clients(), recorded(who, random, RECORDED), seed)
    measured = Memory(place.network, who.draw(random, MEASURED))
    cells: dict[Cell, Measured] = {}
    for rules in RULES:
        budget = uniform(place.network, rules)
        for strategy in SHOWN:
            cells[strategy, rules] = measured(select(STRATEGIES[strategy], situation, budget))
        if rules in FEW and (automatic is None or name in automatic):
            chosen = automatic_choice(situation, budget, SHOWN)
            cells[AUTOMATIC, rules] = measured(list(chosen))
    return cells


def run(
    runs: int,
    processes: int,
    folder: str | None,
    only: Sequence[str],
    automatic: Sequence[str] | None,
) -> None:
    """``only``: networks in place of all that are at hand."""
    lines = Lines("trees", "zoo")
    tasks = [(name, seed) for name in names(folder, only) for seed in range(runs)]
    collected: dict[tuple[str, str, int], list[Measured]] = defaultdict(list)
    for (name, _), cells in in_parallel(partial(one_run, folder, automatic), tasks, processes):
        for (strategy, rules), seen in cells.items():
            collected[name, strategy, rules].append(seen)
    means = {key: mean(seen) for key, seen in collected.items()}
    shown = names(folder, only)
    for name in shown:
        place = zoo(name, folder)
        switches, links, fluctuation, diameter = TABLE[name]
        lines.say(
            "network",
            network=name,
            switches=len(place.network.switches),
            links=len(place.links),
            fluctuation=place.fluctuation,
            diameter=place.diameter,
            text={
                "switches": switches,
                "links": links,
                "fluctuation": fluctuation,
                "diameter": diameter,
            },
        )
    for (name, strategy, rules), seen in means.items():
        lines.say(
            "zoo",
            network=name,
            strategy=strategy,
            rules=rules,
            runs=runs,
            labels=seen.labels,
            trees=seen.trees,
            hops=seen.hops,
            stops=seen.stops,
            load_bytes=seen.load,
        )
    _floors(lines, means, shown)
    if set(CANDIDATES) <= set(shown):
        _findings(lines, means, shown)


def _floors(lines: Lines, means: dict[tuple[str, str, int], Measured], shown: list[str]) -> None:
    """The automatic choice against the best single strategy of each network and budget.

    It is held to the bytes on links that it decides by; labels are told beside them.
    """
    if not any(strategy == AUTOMATIC for _, strategy, _ in means):
        return
    for what in ("load", "labels"):
        ratios = {}
        for name in shown:
            for rules in RULES:
                if (name, AUTOMATIC, rules) not in means:
                    continue
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
            f"automatic choice against the best single strategy, {unit}: largest "
            f"({worst_name}, {worst_rules} rules)",
            worst,
            1.03,
            "x",
        )
        lines.floor(
            f"automatic choice against the best single strategy, {unit}: mean",
            sum(ratios.values()) / len(ratios),
            1.0,
            "x",
        )


def _findings(lines: Lines, means: dict[tuple[str, str, int], Measured], shown: list[str]) -> None:
    litnet, dfn, wavenet = CANDIDATES
    most = RULES[-1]

    def labels(name: str, strategy: str, rules: int = most) -> float:
        return means[name, strategy, rules].labels

    with_trees = [strategy for strategy in SHOWN if strategy != "hops"]
    lines.finding(
        "6.5.3",
        "hops need the most labels in every network at every budget",
        all(
            labels(name, "hops", rules) >= labels(name, strategy, rules)
            for name in shown
            for strategy in with_trees
            for rules in RULES
        ),
        f"{sum(labels(n, 'hops') for n in shown) / len(shown):.1f} labels on average, the best "
        f"strategy at {most} rules "
        f"{sum(min(labels(n, s) for s in with_trees) for n in shown) / len(shown):.1f}",
    )
    gains = {
        name: {s: 1 - labels(name, s) / labels(name, s, 10) for s in ("clusters", "freq-relation")}
        for name in CANDIDATES
    }
    lines.finding(
        "6.5.3",
        f"{wavenet} gains little beyond 10 rules, {dfn} and {litnet} go on gaining",
        max(gains[wavenet].values()) < min(max(gains[dfn].values()), max(gains[litnet].values())),
        "; ".join(
            f"{name}: " + ", ".join(f"{s} {gain:.0%}" for s, gain in gains[name].items())
            for name in CANDIDATES
        ),
    )
    best = {name: min(with_trees, key=lambda s: labels(name, s)) for name in shown}
    lines.finding(
        "6.5.3 (d)",
        f"freq-relation has the fewest labels at {most} rules in {', '.join(CANDIDATES)}",
        all(best[name] == "freq-relation" for name in CANDIDATES),
        _ranking(means, CANDIDATES, with_trees),
    )
    lines.finding(
        "6.5.3 (b, d)",
        "random and freq-relation take one tree a stack on average",
        all(means[n, s, most].trees < 1.5 for n in CANDIDATES for s in ("random", "freq-relation")),
        _trees(means, ("random", "freq-relation")),
    )
    lines.finding(
        "6.5.3 (c)",
        f"cycles need more labels than random and freq-relation in {wavenet}",
        labels(wavenet, "cycles")
        > max(labels(wavenet, "random"), labels(wavenet, "freq-relation")),
        ", ".join(f"{s} {labels(wavenet, s):.2f}" for s in ("cycles", "random", "freq-relation")),
    )
    between = [
        min(labels(n, "freq-relation"), labels(n, "clusters")) - 0.05
        <= labels(n, "hybrid")
        <= max(labels(n, "freq-relation"), labels(n, "clusters")) + 0.05
        for n in shown
    ]
    lines.finding(
        "6.5.3 (e)",
        "hybrid lies between freq-relation and clusters",
        all(between),
        f"in {sum(between)} of {len(shown)} networks at {most} rules",
    )
    lines.finding(
        "6.5.3 (f)",
        "clusters use the most tree labels and the fewest stops, in Litnet 3 to 4 trees",
        all(
            means[n, "clusters", most].trees >= max(means[n, s, most].trees for s in with_trees)
            for n in (litnet, dfn)
        ),
        _trees(means, ("clusters", "partitions")),
    )
    worst = max(with_trees, key=lambda s: labels(wavenet, s))
    lines.finding(
        "6.5.3 (g)",
        f"partitions use the most tree labels and are worst in {wavenet}",
        worst == "partitions",
        f"worst is {worst} with {labels(wavenet, worst):.2f} labels; "
        + _trees(means, ("partitions",)),
    )


def _ranking(
    means: dict[tuple[str, str, int], Measured], networks: tuple[str, ...], strategies: list[str]
) -> str:
    said = []
    for name in networks:
        ranked = sorted(strategies, key=lambda s: means[name, s, RULES[-1]].labels)
        said.append(
            f"{name}: "
            + ", ".join(f"{s} {means[name, s, RULES[-1]].labels:.2f}" for s in ranked[:3])
        )
    return "; ".join(said)


def _trees(means: dict[tuple[str, str, int], Measured], strategies: tuple[str, ...]) -> str:
    return "; ".join(
        f"{name}: "
        + ", ".join(f"{s} {means[name, s, RULES[-1]].trees:.2f}" for s in strategies)
        + " trees"
        for name in CANDIDATES
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
