"""The optimum that encoders are measured against is one: brute force over stacks finds no less."""

from collections import Counter
from itertools import combinations

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from label_optimum import label_optimum
from random_trees import mended, random_network, random_publication, random_trees

from udfs.network.labels import HOP, NARROW, STOP, TREE
from udfs.network.topology import fabric
from udfs.network.virtual_tree import stored
from udfs.stacks.forwarding import ForwardingModel, network_tables
from udfs.trees.broadcast import broadcast_trees

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
