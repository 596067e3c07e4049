"""The optimum that encoders are measured against is one: brute force over stacks finds no less."""

import dataclasses
import math
import random
from collections import Counter
from itertools import combinations

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from label_optimum import label_bounds, label_optimum
from networks import mended, random_network, random_publication, random_trees

from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import stored
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encode import Encoder
from stackcast.udfs.trees.publications import Clients, Statistics
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import Situation, numbered, select, uniform

pytestmark = pytest.mark.unit


class Judge:
    """Says by the forwarding model whether a stack delivers, in the class of the encoders."""

    def __init__(self, network, trees, publisher, receivers):
        tables = network_tables(network, stored(trees))
        # A link that is down now may come back before stacks are made anew.
        self._models = [ForwardingModel(each, tables) for each in (network, mended(network))]
        self._publisher, self._receivers = publisher, Counter(receivers)

    def delivers(self, labels):
        return all(self._exact(model.deliver(self._publisher, labels)) for model in self._models)

    def _exact(self, delivery):
        if delivery.loop or delivery.hosts != self._receivers:
            return False
        crossed = nx.DiGraph((u, v) for u, v, _ in delivery.links)
        ends = {node for node in crossed if not crossed.out_degree(node)}
        return len(crossed.edges) == len(delivery.links) and ends == set(self._receivers)


def fewest_by_trying_all(network, trees, judge, below):
    """Labels of the shortest stack that delivers, if fewer than ``below``; else ``below``."""
    every = [NARROW.label(TREE, tree.id) for tree in trees if tree.state == "active"]
    every += [NARROW.label(kind, link.id) for link in network.links for kind in (HOP, STOP)]
    for size in range(1, below):
        if any(judge.delivers(labels) for labels in combinations(every, size)):
            return size
    return below


@examples(60)
@given(st.randoms(use_true_random=False))
def test_no_stack_of_fewer_labels_delivers(rng):
    network = random_network(rng, 4, hosts=1)
    trees = random_trees(rng, network, 4)
    publisher, receivers = random_publication(rng, network)
    optimum = label_optimum(network, publisher, receivers, trees)
    if not receivers:
        assert optimum.cost == 0
        return
    judge = Judge(network, trees, publisher, receivers)
    assert judge.delivers(optimum.labels)
    # Beyond three labels there is too much to try.
    below = min(optimum.cost, 4)
    assert fewest_by_trying_all(network, trees, judge, below) == below


@examples(40)
@given(st.randoms(use_true_random=False))
def test_its_stacks_deliver_in_larger_networks(rng):
    network = random_network(rng, 12)
    trees = random_trees(rng, network, 8)
    publisher, receivers = random_publication(rng, network)
    optimum = label_optimum(network, publisher, receivers, trees)
    if 0 < optimum.cost <= 64:
        assert Judge(network, trees, publisher, receivers).delivers(optimum.labels)


@examples(40)
@given(st.randoms(use_true_random=False), st.integers(0, 3))
def test_what_no_stack_can_be_below_is_the_optimum_unless_time_ends_the_search(rng, longer):
    network = random_network(rng, 10)
    trees = random_trees(rng, network, 8)
    publisher, receivers = random_publication(rng, network)
    if not receivers:
        return
    case = network, publisher, receivers, trees
    optimum = label_optimum(*case).cost
    assert label_bounds(*case, optimum + longer, math.inf) == (optimum, optimum)
    known, least = label_bounds(*case, optimum + longer, 0)
    assert least <= optimum <= known == optimum + longer


def test_of_a_receiver_out_of_reach_there_is_no_optimum():
    whole = fabric(2, 2, 2, 2, 1)
    links = [
        dataclasses.replace(link, up="pod2-rack2" not in (link.switch, link.neighbor))
        for link in whole.links
    ]
    network = Network.from_rows(whole.switches.values(), whole.hosts.values(), links)
    with pytest.raises(ValueError, match="out of reach"):
        label_optimum(network, "feed1", {"h8"}, [])


@pytest.mark.long
def test_its_stacks_deliver_in_a_network_of_80_switches():
    network = fabric(pods=8, racks=4, hosts=2, planes=4, spines=4)
    situation = Situation(network, Clients({}), Statistics(), 0)
    chosen = select(STRATEGIES["clusters"], situation, uniform(network, 8))
    trees = numbered(chosen, "clusters")
    receivers = set(random.Random(0).sample(network.subscribers(), 12))
    optimum = label_optimum(network, "feed1", receivers, trees)
    assert Judge(network, trees, "feed1", receivers).delivers(optimum.labels)
    (ours,) = Encoder(network, "feed1", trees).sizes(frozenset(receivers))
    assert optimum.cost <= ours.labels


def test_everybody_takes_one_broadcast_label_and_all_but_one_a_stop_besides():
    network = fabric(2, 2, 2, 2, 1)
    trees = broadcast_trees(network)
    everyone = set(network.subscribers())
    assert label_optimum(network, "feed1", everyone, trees).labels == (NARROW.label(TREE, 1),)
    but_one = label_optimum(network, "feed1", everyone - {"h8"}, trees)
    assert but_one.labels == (
        NARROW.label(TREE, 1),
        NARROW.label(STOP, network.link("pod2-rack2", "h8").id),
    )
    assert label_optimum(network, "feed1", {"h2"}, trees).cost == 1
    assert label_optimum(network, "feed1", everyone, []).cost == 8 + 6
