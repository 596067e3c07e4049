"""Whatever the strategy: its trees fit, are trees over usable links, and are the same anywhere."""

import dataclasses
import os
import random
import subprocess
import sys
from collections import Counter

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph
from paths import ROOT

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network, Switch
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.retuning.costs import PrunedTreeReplayer
from stackcast.udfs.trees.publications import Clients, Publication, Statistics
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Situation, numbered, select, uniform

pytestmark = pytest.mark.unit

EVERY = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
#: Strategies that look at the topology alone.
BLIND = ("hops", "broadcast", "topo", "random", "random-variant", "cycles", "partitions")


def with_links(network, change):
    links = [change(link) for link in network.links]
    return Network.from_rows(network.switches.values(), network.hosts.values(), links)


def random_network(chance):
    """Some weights, some failed links, one or two hosts a switch, some of which only publish."""
    if chance.random() < 0.2:
        whole = fabric(2, 2, 2, 2, chance.randint(1, 2), publishers=2)
    else:
        graph = nx.path_graph(chance.randint(1, 9))
        nodes = list(graph)
        for _ in range(chance.randint(0, 2 * len(nodes))):
            graph.add_edge(*chance.choices(nodes, k=2))
        for _, _, data in graph.edges(data=True):
            data["weight"] = chance.choice([0.5, 1.0, 1.0, 3.0])
        whole = from_graph(graph, chance.randint(1, 2), publishers=chance.randint(0, 2))
    failing = chance.choice([0, 0, 0.1, 0.4, 1])
    return with_links(whole, lambda link: dataclasses.replace(link, up=chance.random() >= failing))


def random_situation(network, seed):
    """Potential and some permanent subscribers, and a record; in both, a host that is gone."""
    chance = random.Random(seed)
    hosts = list(network.hosts)
    known = [*hosts, "gone"]
    publishers = [name for name in known if chance.random() < 0.5]
    potential = {
        name: frozenset(host for host in known if host != name and chance.random() < 0.6)
        for name in publishers
        if chance.random() < 0.8
    }
    permanent = {
        name: frozenset(host for host in sorted(found) if chance.random() < 0.2)
        for name, found in potential.items()
    }
    record = [
        Publication(
            name,
            frozenset(host for host in known if host != name and chance.random() < 0.4),
            chance.randint(1, 9),
        )
        for name in publishers
        for _ in range(chance.randint(0, 5))
    ]
    return Situation(network, Clients(potential, permanent), Statistics(record), seed)


@EVERY
@examples(25)
@given(st.randoms(use_true_random=False))
def test_no_switch_holds_more_than_its_budget_and_every_tree_is_one(strategy, chance):
    network = random_network(chance)
    situation = random_situation(network, chance.randint(0, 99))
    most = chance.choice([1, 3, 8, 40])
    budget = {name: chance.randint(0, most) for name in network.switches if chance.random() < 0.95}
    trees = select(strategy, situation, budget)
    assert len(set(trees)) == len(trees)
    for tree in numbered(trees, strategy.name):  # a VirtualTree raises if it is no tree
        assert len(tree.edges) >= 2
        for pair in tree.edges:
            switch, neighbor = pair if pair[0] in network.switches else pair[::-1]
            assert network.usable(network.link(switch, neighbor))
    held = Counter(name for edges in trees for name in {name for pair in edges for name in pair})
    assert all(held[name] <= budget.get(name, 0) for name in network.switches)


@EVERY
@examples(10)
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_has_no_effect(strategy, chance):
    network = random_network(chance)
    situation = random_situation(network, chance.randint(0, 99))

    def mixed(rows):
        rows = list(rows)
        chance.shuffle(rows)
        return rows

    clients, record = situation.clients, situation.statistics.publications
    turned = Situation(
        Network.from_rows(
            mixed(network.switches.values()), mixed(network.hosts.values()), mixed(network.links)
        ),
        Clients(dict(mixed(clients.potential.items())), dict(mixed(clients.permanent.items()))),
        Statistics(mixed(record)),
        situation.seed,
    )
    budget = uniform(network, 6)
    turned_budget = dict(mixed(budget.items()))
    assert select(strategy, situation, budget) == select(strategy, turned, turned_budget)


_PRINT = """
import sys, zlib
sys.path[:0] = ["tests/support", "tests/trees"]
import random
from test_strategies import STRATEGIES, random_network, random_situation, select, uniform
for name, strategy in STRATEGIES.items():
    chosen = []
    for seed in range(4):
        network = random_network(random.Random(seed))
        trees = select(strategy, random_situation(network, seed), uniform(network, 8))
        chosen += [sorted(edges) for edges in trees]
    print(name, len(chosen), zlib.crc32(repr(chosen).encode()))
"""


@pytest.mark.integration
def test_the_seed_of_hashes_has_no_effect():
    said = {
        subprocess.run(
            [sys.executable, "-c", _PRINT],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(said) == 1
    assert said.pop().count("\n") == len(STRATEGIES)


@EVERY
def test_without_room_there_is_no_tree(strategy):
    network = fabric(2, 2, 2, 2, 2)
    situation = random_situation(network, 1)
    assert select(strategy, situation, uniform(network, 0)) == []
    assert select(strategy, situation, {}) == []
    with pytest.raises(NetworkError, match="must be at least 0") as error:
        select(strategy, situation, uniform(network, -1))
    assert error.value.code == "NETWORK.BAD_SIZE"


@EVERY
def test_without_clients_only_the_topology_counts(strategy):
    network = fabric(2, 2, 2, 2, 2)
    told = random_situation(network, 1)
    untold = Situation(network, Clients({}), Statistics(), told.seed)
    trees, more = (select(strategy, each, uniform(network, 8)) for each in (untold, told))
    assert (trees == more) == (strategy.name in BLIND)
    if strategy.name == "hybrid-partitions":
        assert trees == select(STRATEGIES["partitions"], untold, uniform(network, 8))
    else:
        assert not trees or strategy.name in BLIND


@EVERY
def test_a_network_of_one_switch_and_no_host_is_no_trouble(strategy):
    nothing = Situation(Network.from_rows([Switch("s1", 1)], [], []), Clients({}), Statistics())
    assert select(strategy, nothing, uniform(nothing.network, 5)) == []


@EVERY
def test_a_network_cut_in_two_gets_trees_within_its_parts(strategy):
    bars = nx.barbell_graph(4, 0)
    whole = from_graph(bars, hosts_per_switch=2, publishers=0)
    left = set(list(whole.switches)[:4])
    network = with_links(
        whole,
        lambda link: dataclasses.replace(
            link,
            up=link.neighbor in whole.hosts or (link.switch in left) == (link.neighbor in left),
        ),
    )
    trees = select(strategy, random_situation(network, 5), uniform(network, 10))
    for edges in trees:
        inside = {name for pair in edges for name in pair} & set(network.switches)
        assert inside <= left or not inside & left
    if strategy.name in BLIND[1:]:
        touched = {name for edges in trees for pair in edges for name in pair}
        assert touched >= set(network.hosts)


@EVERY
def test_its_trees_shorten_stacks_of_what_was_recorded(strategy):
    network = from_graph(nx.connected_watts_strogatz_graph(20, 4, 0.2, seed=3), publishers=0)
    hosts = list(network.hosts)
    chance = random.Random(4)
    potential = {p: frozenset(chance.sample(hosts, 12)) - {p} for p in hosts[:6]}
    record = [
        Publication(p, frozenset(h for h in sorted(found) if chance.random() < 0.6), 1)
        for p, found in potential.items()
        for _ in range(6)
    ]
    record = [each for each in record if each.receivers]
    situation = Situation(network, Clients(potential), Statistics(record))

    def mean(trees):
        return PrunedTreeReplayer(network, numbered(trees, "it")).replay(record).stack_labels.mean()

    plain = mean([])
    few, many = (mean(select(strategy, situation, uniform(network, n))) for n in (5, 30))
    if strategy.name == "hops":
        assert few == many == plain
    else:
        assert many <= few <= plain and many < plain


@pytest.mark.parametrize("name", ["random", "random-variant", "cycles", "partitions"])
def test_hosts_that_only_publish_are_in_no_tree(name):
    network = from_graph(nx.cycle_graph(6), hosts_per_switch=1, publishers=6)
    situation = Situation(network, Clients({}), Statistics())
    trees = select(STRATEGIES[name], situation, uniform(network, 8))
    ends = {end for edges in trees for pair in edges for end in pair}
    assert ends & set(network.hosts) == set(network.subscribers())
