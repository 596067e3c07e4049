"""Whatever the network, the trees and the receivers: each receiver exactly once, nobody else."""

import dataclasses
import pickle
from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph, mended, random_network, random_publication, random_trees, reachable

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree, stored
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encode import Encoder

pytestmark = pytest.mark.unit


@examples(150)
@given(st.randoms(use_true_random=False))
def test_each_receiver_gets_it_exactly_once_and_nobody_else(rng):
    network = random_network(rng, 8)
    trees = random_trees(rng, network, 6)
    publisher, receivers = random_publication(rng, network)
    max_labels = rng.choice([64, 64, 12])
    encodings = Encoder(network, publisher, trees, max_labels).encode(receivers)
    tables = network_tables(network, stored(trees))
    served = Counter()
    for encoding in encodings:
        assert 0 < len(encoding.labels) <= max_labels
        # Whether failed links are down, or came back before anybody edited the table.
        for as_it_is in (network, mended(network)):
            delivery = ForwardingModel(as_it_is, tables).deliver(publisher, encoding.labels)
            assert delivery.hosts == Counter(encoding.receivers)
        assert not delivery.loop
        # The edges that it names are those that carry it, once each.
        assert sorted((u, v) for u, v, _ in delivery.links) == sorted(encoding.edges)
        served += delivery.hosts
        active = {tree.id for tree in trees if tree.state == "active"}
        assert {n for kind, n in map(NARROW.split, encoding.labels) if kind == TREE} <= active
    assert served == Counter(receivers)
    hops = Encoder(network, publisher, []).encode(receivers)
    if len(encodings) == len(hops) == 1:
        assert len(encodings[0].labels) <= len(hops[0].labels)
    again = Encoder(network, publisher, trees[::-1], max_labels).encode(receivers)
    assert again == encodings


@examples(60)
@given(st.randoms(use_true_random=False))
def test_what_was_encoded_before_changes_no_stack(rng):
    network = random_network(rng, 8)
    trees = random_trees(rng, network, 6)
    drawn = [random_publication(rng, network) for _ in range(4)]
    encoder = Encoder(network, drawn[0][0], trees)
    for publisher, receivers in drawn + drawn:
        alone = Encoder(network, publisher, trees)
        assert encoder.of(publisher).encode(receivers) == alone.encode(receivers)


@examples(40)
@given(st.randoms(use_true_random=False))
def test_a_receiver_that_no_link_leads_to_is_an_error_not_a_wrong_delivery(rng):
    network = random_network(rng, 8)
    publisher = rng.choice(network.publishers())
    within = set(reachable(network, publisher))
    cut = sorted(set(network.hosts) - within - {publisher})
    if cut:
        with pytest.raises(NetworkError, match="UNREACHABLE"):
            Encoder(network, publisher, []).encode(frozenset({rng.choice(cut)}))


@pytest.fixture(scope="module")
def network():
    return fabric(4, 2, 2, 2, 2)


def test_all_hosts_take_the_broadcast_label_alone_and_one_neighbor_takes_one_hop(network):
    encoder = Encoder(network, "feed1", broadcast_trees(network))
    (everyone,) = encoder.encode(frozenset(network.subscribers()))
    assert everyone.labels == (NARROW.label(TREE, 1),)
    (neighbor,) = encoder.encode(frozenset({"h1"}))
    assert neighbor.labels == (NARROW.label(HOP, network.link("pod1-rack1", "h1").id),)
    assert neighbor.edges == (("feed1", "pod1-rack1"), ("pod1-rack1", "h1"))


def test_all_hosts_but_one_take_the_broadcast_tree_and_one_stop(network):
    receivers = frozenset(network.subscribers()) - {"h9"}
    (encoding,) = Encoder(network, "feed1", broadcast_trees(network)).encode(receivers)
    stop = NARROW.label(STOP, network.link("pod3-rack1", "h9").id)
    assert encoding.labels == (NARROW.label(TREE, 1), stop)


def test_without_active_trees_every_edge_is_a_hop(network):
    installing = dataclasses.replace(broadcast_trees(network)[0], state="installing")
    (encoding,) = Encoder(network, "feed1", [installing]).encode(frozenset({"h1", "h16"}))
    assert {NARROW.split(value)[0] for value in encoding.labels} == {HOP}
    assert len(encoding.labels) == len(encoding.edges) - 1


def test_an_edit_of_failed_links_changes_no_tree_on_any_switch(network):
    tree = broadcast_trees(network)[0]
    links = [dataclasses.replace(link, up=False) for link in network.links]
    broken = Network.from_rows(network.switches.values(), network.hosts.values(), links)
    assert network_tables(broken, [tree]) == network_tables(network, [tree])


def test_a_tree_that_lost_a_link_is_used_with_a_stop_in_front_of_it(network):
    tree = broadcast_trees(network)[0]
    lost = {"plane1-spine1", "pod2-fabric1"}
    links = [
        dataclasses.replace(link, up={link.switch, link.neighbor} != lost) for link in network.links
    ]
    broken = Network.from_rows(network.switches.values(), network.hosts.values(), links)
    receivers = frozenset(network.subscribers())
    (encoding,) = Encoder(broken, "feed1", [tree]).encode(receivers)
    delivery = ForwardingModel(broken, network_tables(broken, [tree])).deliver(
        "feed1", encoding.labels
    )
    assert delivery.hosts == Counter(receivers)
    assert encoding.labels[0] == NARROW.label(TREE, 1)
    stops = {number for kind, number in map(NARROW.split, encoding.labels) if kind == STOP}
    assert network.link("plane1-spine1", "pod2-fabric1").id in stops
    assert ("plane1-spine1", "pod2-fabric1") not in encoding.edges


def test_a_retired_tree_is_on_no_switch_and_may_have_edges_that_are_gone(network):
    gone = VirtualTree(9, frozenset({("nowhere", "pod1-rack1")}), "test", "retired")
    (encoding,) = Encoder(network, "feed1", [gone]).encode(frozenset({"h1"}))
    assert {NARROW.split(value)[0] for value in encoding.labels} == {HOP}


def test_a_stack_over_the_limit_is_split_over_disjoint_receivers(network):
    receivers = frozenset(network.subscribers())
    encodings = Encoder(network, "feed1", [], max_labels=8).encode(receivers)
    assert len(encodings) > 1
    assert max(len(encoding.labels) for encoding in encodings) <= 8
    assert Counter(h for e in encodings for h in e.receivers) == Counter(receivers)


def test_a_long_chain_is_split_at_64_labels_and_refused_beyond():
    chain = from_graph(nx.path_graph(70))
    near, far = frozenset(f"h{i}" for i in range(1, 61)), frozenset({"h70"})
    encodings = Encoder(chain, "feed1", []).encode(near)
    assert len(encodings) > 1
    tables = network_tables(chain, [])
    served = sum(
        (ForwardingModel(chain, tables).deliver("feed1", e.labels).hosts for e in encodings),
        Counter(),
    )
    assert served == Counter(near)
    with pytest.raises(NetworkError, match="STACK_TOO_LONG"):
        Encoder(chain, "feed1", []).encode(far)
    names = [f"s{i}" for i in range(70)]
    backbone = VirtualTree(1, frozenset((min(p), max(p)) for p in pairwise(names)), "test")
    (bridged,) = Encoder(chain, "feed1", [backbone]).encode(far)
    assert [NARROW.split(value)[0] for value in bridged.labels] == [TREE, HOP]


@pytest.mark.parametrize(
    ("publisher", "receivers", "max_labels", "what"),
    [
        ("feed1", {"h1", "h99"}, 64, "UNKNOWN_HOST"),
        ("feed1", {"pod1-rack1"}, 64, "UNKNOWN_HOST"),
        ("nobody", {"h1"}, 64, "UNKNOWN_HOST"),
        ("feed1", {"h1", "feed1"}, 64, "PUBLISHER_AS_RECEIVER"),
        ("feed1", {"h1"}, 65, "BAD_SIZE"),
        ("feed1", {"h1"}, 0, "BAD_SIZE"),
    ],
)
def test_what_cannot_be_encoded_is_named(network, publisher, receivers, max_labels, what):
    with pytest.raises(NetworkError) as caught:
        Encoder(network, publisher, [], max_labels).encode(frozenset(receivers))
    assert caught.value.what == what


def test_nobody_needs_no_stack(network):
    assert Encoder(network, "feed1", broadcast_trees(network)).encode(frozenset()) == []


def test_an_encoder_pickles_after_use(network):
    encoder = Encoder(network, "feed1", broadcast_trees(network))
    receivers = frozenset({"h1", "h5", "h9"})
    assert pickle.loads(pickle.dumps(encoder)).encode(receivers) == encoder.encode(receivers)
