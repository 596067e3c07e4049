"""Static scenarios of WERNECKE 6.5: labels by rules a switch, and what they are made of (Fig. 6.9).

30 % of the hosts publish, each to 30 %, in four clusters. Strategies look at recorded publications
and are measured on others that none of them has seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.claims import Claim, say
from benchmarks.trees.clients import Crowd, by_rank, crowd, recorded
from benchmarks.trees.measure import ALGORITHMS, Both, Measured, Memory, mean, spread
from benchmarks.trees.networks import CANDIDATES, TABLE, names, zoo
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Situation, select, uniform

RULES = (5, 10, 20, 30, 40)
PUBLISHERS = SUBSCRIBERS = 0.3
RECORDED, MEASURED = 12, 6
#: The strategies of chapter 6, as Fig. 6.9 draws them, the two that it leaves out, and the other
#: hybrid that 6.6.2 (g) thinks of.
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
    "hybrid-partitions",
)

#: Those of them with trees that Fig. 6.9 draws: the text's claims are about these.
DRAWN = ("random", "cycles", "partitions", "clusters", "freq-relation", "hybrid")
#: How likely hosts want a notification: uniform, as the text has it, or by Zipf, as 3.5.2 promises.
UNIFORM, ZIPF = "uniform", "Zipf"

Cell = tuple[str, str, int]
"""Likelihoods, strategy, rules a switch."""
Means = Mapping[tuple[str, str, int], Measured]
"""By network, strategy, rules a switch; likelihoods are uniform."""
Task = tuple[str, int]
"""Network, number of the drawing."""


def drawing(folder: str | None, task: Task) -> tuple[Situation, Crowd, Memory, Random]:
    """Draws clients, recorded notifications and others to measure; nothing yet by Zipf."""
    name, seed = task
    place = zoo(name, folder)
    random = Random(f"zoo {name} {seed}")
    who = crowd(place.network, random, PUBLISHERS, SUBSCRIBERS, place.weights())
    situation = Situation(place.network, who.clients(), recorded(who, random, RECORDED), seed)
    return situation, who, Memory(place.network, who.draw(random, MEASURED)), random


def one_run(folder: str | None, task: Task) -> dict[Cell, Both]:
    """One drawing of clients in a network, for all strategies and budgets."""
    situation, who, measured, random = drawing(folder, task)
    network = situation.network
    cells: dict[Cell, Both] = {}
    for rules in RULES:
        budget = uniform(network, rules)
        for strategy in SHOWN:
            trees = select(STRATEGIES[strategy], situation, budget)
            cells[UNIFORM, strategy, rules] = measured(trees)
    if task[0] in CANDIDATES:
        who = by_rank(who, random)
        record = recorded(who, random, RECORDED)
        situation = Situation(network, who.clients(), record, situation.seed)
        measured = Memory(network, who.draw(random, MEASURED))
        budget = uniform(network, RULES[-1])
        for strategy in SHOWN:
            trees = select(STRATEGIES[strategy], situation, budget)
            cells[ZIPF, strategy, RULES[-1]] = measured(trees)
    return cells


def run(runs: int, processes: int, folder: str | None, only: Sequence[str]) -> None:
    """``only``: networks in place of all that are at hand."""
    lines = Lines("trees", "zoo")
    tasks = [(name, seed) for name in names(folder, only) for seed in range(runs)]
    collected: dict[tuple[str, Cell], list[Both]] = defaultdict(list)
    for (name, _), cells in in_parallel(partial(one_run, folder), tasks, processes):
        for cell, seen in cells.items():
            collected[name, cell].append(seen)
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
            padded=place.padded,
            diameter=place.diameter,
            text={
                "switches": switches,
                "links": links,
                "fluctuation": fluctuation,
                "diameter": diameter,
            },
        )
    for (name, cell), both in means.items():
        likely, strategy, rules = cell
        seen, apart = both["refined"], spread(collected[name, cell])
        lines.say(
            "zoo",
            network=name,
            likely=likely,
            strategy=strategy,
            rules=rules,
            runs=runs,
            labels=seen.labels,
            labels_greedy=both["greedy"].labels,
            labels_apart=apart.labels if apart else None,
            trees=seen.trees,
            hops=seen.hops,
            stops=seen.stops,
            load_bytes=seen.load,
        )
    by = {
        algorithm: {
            (name, strategy, rules): both[algorithm]
            for (name, (likely, strategy, rules)), both in means.items()
            if likely == UNIFORM
        }
        for algorithm in ALGORITHMS
    }
    if set(CANDIDATES) <= set(shown):
        say(lines, {algorithm: claims(each, shown) for algorithm, each in by.items()})


def claims(means: Means, shown: Sequence[str]) -> Iterator[Claim]:
    """Yields what 6.5.3 claims, judged by these figures."""
    litnet, dfn, wavenet = CANDIDATES
    most = RULES[-1]

    def labels(name: str, strategy: str, rules: int = most) -> float:
        return means[name, strategy, rules].labels

    yield Claim(
        "6.5.3",
        "hops need the most labels in every network and with any number of rules",
        "plot only",
        all(
            labels(name, "hops", rules) >= labels(name, strategy, rules)
            for name in shown
            for strategy in DRAWN
            for rules in RULES
        ),
        f"{sum(labels(n, 'hops') for n in shown) / len(shown):.1f} labels on average; the best "
        "strategy needs "
        f"{sum(min(labels(n, s) for s in DRAWN) for n in shown) / len(shown):.1f} at {most} rules",
    )
    gains = {
        name: {s: 1 - labels(name, s) / labels(name, s, 10) for s in ("clusters", "freq-relation")}
        for name in CANDIDATES
    }
    yield Claim(
        "6.5.3",
        f"{wavenet} gains little beyond 10 rules, while {dfn} and {litnet} keep improving",
        "plot only",
        max(gains[wavenet].values()) < min(max(gains[dfn].values()), max(gains[litnet].values())),
        "; ".join(
            f"{name}: " + ", ".join(f"{s} {gain:.0%}" for s, gain in gains[name].items())
            for name in CANDIDATES
        ),
    )
    best = {name: min(DRAWN, key=lambda s: labels(name, s)) for name in shown}
    yield Claim(
        "6.5.3 (d)",
        f"freq-relation has the fewest labels at {most} rules in {', '.join(CANDIDATES)}",
        "plot only",
        all(best[name] == "freq-relation" for name in CANDIDATES),
        _ranking(means, CANDIDATES, DRAWN),
    )
    yield Claim(
        "6.5.3 (b, d)",
        "stacks of random and freq-relation contain one tree on average",
        "1",
        all(means[n, s, most].trees < 1.5 for n in CANDIDATES for s in ("random", "freq-relation")),
        _trees(means, ("random", "freq-relation")),
    )
    yield Claim(
        "6.5.3 (c)",
        f"cycles need more labels than random and freq-relation in {wavenet}",
        "plot only",
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
    yield Claim(
        "6.5.3 (e)",
        "hybrid lies between freq-relation and clusters",
        "plot only",
        all(between),
        f"in {sum(between)} of {len(shown)} networks at {most} rules",
    )
    stops = {n: min(DRAWN, key=lambda s: means[n, s, most].stops) for n in CANDIDATES}
    yield Claim(
        "6.5.3 (f)",
        "clusters use the most tree labels and the fewest stops, with 3 to 4 trees in Litnet",
        "3 to 4 trees",
        all(
            means[n, "clusters", most].trees >= max(means[n, s, most].trees for s in DRAWN)
            for n in (litnet, dfn)
        )
        and set(stops.values()) == {"clusters"}
        and 3 <= means[litnet, "clusters", most].trees <= 4,
        _trees(means, ("clusters", "partitions"))
        + "; fewest stops: "
        + ", ".join(f"{n} {s}" for n, s in stops.items()),
    )
    worst = max(DRAWN, key=lambda s: labels(wavenet, s))
    trees = {n: {s: means[n, s, most].trees for s in DRAWN} for n in CANDIDATES}
    yield Claim(
        "6.5.3 (g)",
        f"partitions use fewer trees than clusters in {litnet} and {dfn}; in {wavenet} they use "
        "the most and perform worst",
        "plot only",
        worst == "partitions"
        and max(trees[wavenet].values()) == trees[wavenet]["partitions"]
        and all(trees[n]["partitions"] < trees[n]["clusters"] for n in (litnet, dfn)),
        f"worst is {worst} with {labels(wavenet, worst):.2f} labels; "
        + _trees(means, ("partitions", "clusters")),
    )
    place = {n: sorted(DRAWN, key=lambda s: labels(n, s)).index("random") + 1 for n in CANDIDATES}
    yield Claim(
        "6.5.3",
        f"random performs exceptionally well in {wavenet} and poorly in {dfn} and {litnet}",
        "plot only",
        place[wavenet] <= 3 and min(place[dfn], place[litnet]) > 3,
        f"among {len(DRAWN)} strategies: "
        + ", ".join(f"rank {at} in {n}" for n, at in place.items()),
    )


def _ranking(means: Means, networks: Sequence[str], strategies: Sequence[str]) -> str:
    said = []
    for name in networks:
        ranked = sorted(strategies, key=lambda s: means[name, s, RULES[-1]].labels)
        said.append(
            f"{name}: "
            + ", ".join(f"{s} {means[name, s, RULES[-1]].labels:.2f}" for s in ranked[:3])
        )
    return "; ".join(said)


def _trees(means: Means, strategies: tuple[str, ...]) -> str:
    return "; ".join(
        f"{name}: "
        + ", ".join(f"{s} {means[name, s, RULES[-1]].trees:.2f}" for s in strategies)
        + " trees"
        for name in CANDIDATES
    )
