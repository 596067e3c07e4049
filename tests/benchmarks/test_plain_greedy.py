"""The benchmarks' yardstick says what the text's Algorithm 5.1 says, and its stacks deliver."""

from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph, mended, random_network, random_publication, random_trees

from benchmarks.trees.plain_greedy import STEINER, PlainGreedy
from stackcast.udfs.network.labels import MAX_LABELS
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree, stored
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit


@examples(100)
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(STEINER)))
def test_its_stacks_deliver_to_each_receiver_exactly_once_and_to_nobody_else(rng, steiner):
    network = random_network(rng, 8)
    trees = random_trees(rng, network, 6)
    publisher, receivers = random_publication(rng, network)
    encoding = PlainGreedy(network, trees, steiner).encode(publisher, receivers)
    labels = encoding.labels(network)
    assert len(labels) == encoding.cost
    if not 0 < len(labels) <= MAX_LABELS:
        assert len(labels) > MAX_LABELS or not receivers
        return
    tables = network_tables(network, stored(trees))
    for as_it_is in (network, mended(network)):
        delivery = ForwardingModel(as_it_is, tables).deliver(publisher, labels)
        assert delivery.hosts == Counter(receivers)
        assert not delivery.loop
        assert {(u, v) for u, v, _ in delivery.links[1:]} == set(encoding.edges)
    active = {tree.id for tree in trees if tree.state == "active"}
    assert active.issuperset(encoding.trees)


@pytest.mark.parametrize("steiner", STEINER)
def test_trees_cost_nothing_but_their_label_so_the_new_tree_may_take_another_way(steiner):
    # A ring of six: three hops to the far side by either way, and a stored tree on one of them.
    ring = from_graph(nx.cycle_graph(6))
    names = ["s0", "s5", "s4", "s3"]
    tree = VirtualTree(7, frozenset((min(p), max(p)) for p in pairwise(names)), "test")
    plain = PlainGreedy(ring, [], steiner).encode("feed1", {"h4"})
    assert (plain.trees, len(plain.hops), plain.stops) == ((), 4, frozenset())
    encoding = PlainGreedy(ring, [tree], steiner).encode("feed1", {"h4"})
    assert encoding.trees == (7,)
    assert encoding.hops == {("s3", "h4")}
    assert not encoding.stops


def test_an_edge_that_two_switches_of_the_delivery_flood_takes_a_stop_at_each():
    # Three sides of a square and a tree over the fourth; hosts make each worth a label.
    square = from_graph(nx.cycle_graph(4), hosts_per_switch=4)
    hosts = {
        switch: [f"h{4 * n + i}" for i in range(1, 5)] for n, switch in enumerate(square.switches)
    }
    sides = {("s0", "s1"), ("s1", "s2"), ("s2", "s3")}
    sides |= {(host, switch) for switch in ("s1", "s2") for host in hosts[switch]}
    fourth = {("s0", "s3"), *((host, "s3") for host in hosts["s3"])}
    trees = [VirtualTree(n, frozenset(t), "test") for n, t in enumerate((sides, fourth), 1)]
    encoding = PlainGreedy(square, trees).encode("feed1", square.subscribers())
    assert encoding.trees == (1, 2)
    assert encoding.hops == {("s0", host) for host in hosts["s0"]}
    assert len(encoding.stops) == 2
    assert len({frozenset(pair) for pair in encoding.stops}) == 1


def test_nobody_needs_no_label_and_a_neighbor_one_hop():
    network = fabric(2, 2, 2, 2, 1)
    greedy = PlainGreedy(network, broadcast_trees(network))
    assert greedy.encode("feed1", ()).cost == 0
    assert greedy.encode("feed1", {"h2"}).hops == {("pod1-rack1", "h2")}
    assert greedy.encode("feed1", network.subscribers()).cost == 1
