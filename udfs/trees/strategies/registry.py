"""All strategies by name."""

from __future__ import annotations

from udfs.trees.strategies.broadcast import Broadcast
from udfs.trees.strategies.clusters import Clusters
from udfs.trees.strategies.cycles import Cycles
from udfs.trees.strategies.hops import Hops
from udfs.trees.strategies.hybrid import Hybrid
from udfs.trees.strategies.lama import Lama
from udfs.trees.strategies.partitions import Partitions
from udfs.trees.strategies.path import Path
from udfs.trees.strategies.random_trees import RandomTrees
from udfs.trees.strategies.random_variant import RandomVariant
from udfs.trees.strategies.relation import FreqRelation, Relation
from udfs.trees.strategies.strategy import Strategy
from udfs.trees.strategies.threshold import Threshold
from udfs.trees.strategies.topo import Topo
from udfs.trees.strategies.tree import Tree

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
    Threshold(30),
    Path(),
    Lama(),
    Relation(),
    FreqRelation(),
    Hybrid(),
)

#: Strategy by its name: the baseline, then those that know the topology, clients and frequencies.
STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in _ALL}
