"""What else the text may have measured in its fabric (WERNECKE 5.4), where its figures are not
ours: who publishes, and whether all subscribers want each notification."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from random import Random

from benchmarks.support.results import Lines, in_parallel
from benchmarks.trees.clients import crowd, recorded
from benchmarks.trees.fabric import ABOVE, FEW_RULES, MEASURED, PUBLISHERS, RULES
from benchmarks.trees.measure import Both, Memory, mean
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.strategies.strategy import Situation, select, uniform
from stackcast.udfs.trees.strategies.topo import Topo

#: Share of the hosts that publish, and whether subscribers want everything.
VARIANTS = {
    "default scenario": (PUBLISHERS, False),
    "one host in ten publishes": (0.1, False),
    "all hosts publish": (1.0, False),
    "subscribers want every notification": (PUBLISHERS, True),
}

Cell = tuple[str, int, int]
"""Variant, percentage of subscribers, rules a switch."""


def one_run(seed: int) -> dict[Cell, Both]:
    """One drawing: ``topo`` with few rules, and with the most."""
    cells: dict[Cell, Both] = {}
    for name, (publishers, everything) in VARIANTS.items():
        for percent in ABOVE:
            random = Random(f"variants {seed} {percent}")
            network = fabric(8, 4, 2, 4, 4, publishers=0)
            who = crowd(network, random, publishers, percent / 100)
            if everything:
                who = replace(who, frequency=dict.fromkeys(who.frequency, 1.0))
            # topo asks nobody what was published.
            situation = Situation(network, who.clients(), recorded(who, random, 1), seed)
            measured = Memory(network, who.draw(random, MEASURED))
            for rules in (FEW_RULES, RULES[-1]):
                trees = select(Topo(), situation, uniform(network, rules))
                cells[name, percent, rules] = measured(trees)
    return cells


def run(runs: int, processes: int) -> None:
    """``runs`` drawings."""
    lines = Lines("trees", "variants")
    collected: dict[Cell, list[Both]] = defaultdict(list)
    for _, cells in in_parallel(one_run, range(runs), processes):
        for cell, seen in cells.items():
            collected[cell].append(seen)
    for name in VARIANTS:
        of = {
            (percent, rules): mean(collected[name, percent, rules])["greedy"]
            for percent in ABOVE
            for rules in (FEW_RULES, RULES[-1])
        }
        lines.say(
            "variant",
            variant=name,
            runs=runs,
            header={percent: of[percent, FEW_RULES].header for percent in ABOVE},
            notifications={
                percent: kilobytes * 1000 / of[percent, RULES[-1]].load
                for percent, kilobytes in ABOVE.items()
            },
        )
