"""Labels of our encoder beside the fewest there can be, by an integer program.

In small networks every optimum is found. In those of 50 to 80 switches the program has so many
seconds a publication: where they are not enough, it says below what no stack can be, and the
publication counts as not proven.
"""

from __future__ import annotations

from dataclasses import dataclass

from label_optimum import label_bounds

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.clients import recorded
from benchmarks.trees.labels import COMPARED, MEASURED, RECORDED, scenario
from stackcast.udfs.retuning.costs import PrunedTreeReplayer
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Situation, numbered, select, uniform

SMALL = ("fabric of 10", "Jellyfish of 12", "Abilene")
LARGE = ("fabric, 30 %", "fabric, 70 %", "Dfn", "Jellyfish of 64")
SMALL_RULES, LARGE_RULES = 6, 20
#: Publications of each network and strategy, and seconds for each.
SMALL_SOLVED, LARGE_SOLVED, SECONDS = 6, 3, 30


@dataclass(frozen=True)
class Task:
    """One network and strategy: rules a switch, publications, and seconds for each."""

    network: str
    strategy: str
    rules: int
    solved: int
    seconds: float


@dataclass(frozen=True)
class Publication:
    """Labels of one: of our encoder, of Algorithm 5.1, of the shortest stack that is known, and
    what no stack can be below."""

    refined: int
    greedy: int
    fewest: int
    least: int

    @property
    def proven(self) -> bool:
        return self.least >= self.fewest


def solve(task: Task) -> list[Publication]:
    network, who, random = scenario(task.network)
    situation = Situation(network, who.clients(), recorded(who, random, RECORDED), 0)
    drawn = {(p.publisher, p.receivers): p for p in who.draw(random, MEASURED)}
    publications = random.sample(list(drawn.values()), min(task.solved, len(drawn)))
    chosen = select(STRATEGIES[task.strategy], situation, uniform(network, task.rules))
    trees = numbered(chosen, task.strategy)
    refined, greedy = (
        PrunedTreeReplayer(network, trees, algorithm).replay(publications).stack_labels.tolist()
        for algorithm in ("refined", "greedy")
    )
    found = []
    for each, ours, theirs in zip(publications, refined, greedy, strict=True):
        case = network, each.publisher, each.receivers, trees
        fewest, least = label_bounds(*case, min(ours, theirs), task.seconds)
        found.append(Publication(ours, theirs, fewest, least))
    return found


def run(processes: int, solved: int | None) -> None:
    """Measures both sizes. solved: publications of each large network and strategy."""
    lines = Lines("trees", "optimum")
    everything: list[Publication] = []
    for network in SMALL:
        tasks = [Task(network, s, SMALL_RULES, SMALL_SOLVED, float("inf")) for s in COMPARED]
        everything += _say(lines, "against optimum", tasks, processes)
    lines.say("all against optimum", **_summary(everything))
    what = "labels relative to the optimum in small networks, mean"
    lines.floor(what, _mean(everything), 1.05, "x")
    for network in LARGE:
        tasks = [Task(network, s, LARGE_RULES, solved or LARGE_SOLVED, SECONDS) for s in COMPARED]
        found = _say(lines, "against bounds", tasks, processes)
        lines.say("network against optimum", network=network, **_summary(found))
        proven = [each for each in found if each.proven]
        if proven:
            lines.floor(
                f"{network}: labels relative to the optimum, mean of the {len(proven)} of "
                f"{len(found)} publications with a proven optimum",
                _mean(proven),
                1.03,
                "x",
            )


def _say(lines: Lines, name: str, tasks: list[Task], processes: int) -> list[Publication]:
    """Writes a line for each network and strategy; returns all publications."""
    found: list[Publication] = []
    for task, some in in_parallel(solve, tasks, processes):
        found += some
        lines.say(name, network=task.network, strategy=task.strategy, **_summary(some))
    return found


def _summary(found: list[Publication]) -> dict[str, float]:
    number, proven = len(found), [each for each in found if each.proven]
    return {
        "publications": number,
        "proven": len(proven),
        "at_optimum": sum(each.refined == each.fewest for each in proven),
        "labels": sum(each.refined for each in found) / number,
        "greedy": sum(each.greedy for each in found) / number,
        "optimum": sum(each.fewest for each in found) / number,
        "least": sum(each.least for each in found) / number,
        "mean": _mean(proven) if proven else 0.0,
        "mean_to_least": sum(each.refined / each.least for each in found) / number,
        "largest": max(each.refined / each.fewest for each in found),
    }


def _mean(found: list[Publication]) -> float:
    return sum(each.refined / each.fewest for each in found) / len(found)
