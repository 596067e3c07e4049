"""The strategies that retuning, benchmarks and tests know, by name."""

from __future__ import annotations

from stackcast.udfs.network.labels import LabelFormat
from stackcast.udfs.trees.strategies.baselines import Broadcast, Hops
from stackcast.udfs.trees.strategies.cycles import Cycles
from stackcast.udfs.trees.strategies.exact import Exact
from stackcast.udfs.trees.strategies.lama import Lama
from stackcast.udfs.trees.strategies.partitions import Clusters, Partitions
from stackcast.udfs.trees.strategies.random_trees import RandomTrees, RandomVariant
from stackcast.udfs.trees.strategies.relation import FreqRelation, Hybrid, Relation
from stackcast.udfs.trees.strategies.stable import Stable
from stackcast.udfs.trees.strategies.strategy import Strategy
from stackcast.udfs.trees.strategies.threshold import Path, Threshold, Tree
from stackcast.udfs.trees.strategies.topo import Topo

_ALL: tuple[Strategy, ...] = (
    Hops(),
    Broadcast(),
    Topo(),
    RandomTrees(),
    RandomVariant(),
    Cycles(),
    Partitions(),
    Clusters(),
    Tree(),
    Tree(shared=True),
    Threshold(30),
    Path(),
    Lama(),
    Relation(),
    FreqRelation(),
    Hybrid(),
    Hybrid((FreqRelation(), Partitions()), "hybrid-partitions"),
)

#: Strategy by its name: the baseline, then those that know the topology, clients and frequencies.
STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in _ALL}

#: Strategies for stacks that name a tree whole, and hops to who is not in it.
WHOLE: dict[str, Strategy] = {strategy.name: strategy for strategy in (Stable(),)}

#: Strategies for stacks that name trees alone.
ALONE: dict[str, Strategy] = {strategy.name: strategy for strategy in (Exact(),)}


def strategies_for(labels: LabelFormat) -> dict[str, Strategy]:
    """Returns the strategies, by name, that choose trees for stacks of an encoding; none where
    stacks name no trees."""
    return {"pruned": STRATEGIES, "whole": WHOLE, "alone": ALONE}.get(labels.trees, {})
