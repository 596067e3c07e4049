"""The strategies of chapter 5 on the fabric: what trees they choose, and who comes first."""

import dataclasses
import random
from collections import Counter
from itertools import combinations, islice

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.broadcast import rooted_trees, spine_trees
from stackcast.udfs.trees.publications import Clients, Publication, Statistics
from stackcast.udfs.trees.strategies.baselines import Broadcast
from stackcast.udfs.trees.strategies.strategy import Situation, numbered, select, uniform
from stackcast.udfs.trees.strategies.threshold import Path, Threshold, Tree
from stackcast.udfs.trees.strategies.topo import Topo, down_links, port_sets

pytestmark = pytest.mark.unit

FABRIC = fabric(4, 2, 2, 2, 2, publishers=0)
EVERY = [
    Broadcast(),
    Topo(),
    Tree(),
    Tree(shared=True),
    Path(),
    Threshold(30),
    Threshold(30, paths=False),
]


def situation(network, potential, sent=(), permanent=None):
    """``sent``: rows of (publisher, receivers, notifications)."""
    clients = Clients(
        {name: frozenset(hosts) for name, hosts in potential.items()},
        {name: frozenset(hosts) for name, hosts in (permanent or {}).items()},
    )
    return Situation(
        network, clients, Statistics(Publication(p, frozenset(r), n) for p, r, n in sent)
    )


def drawn(network, seed, share=0.4):
    """A random situation of a network."""
    chance = random.Random(seed)
    hosts = list(network.hosts)
    potential = {
        name: [host for host in hosts if host != name and chance.random() < share]
        for name in hosts
        if chance.random() < 0.5
    }
    sent = [
        (name, [host for host in found if chance.random() < 0.5], chance.randrange(1, 9))
        for name, found in potential.items()
        for _ in range(3)
    ]
    return situation(network, potential, sent)


def leaves(edges):
    graph = nx.Graph(edges)
    return {node for node in graph if graph.degree(node) == 1}


def pruned_as_the_text_does(edges, terminals):
    """Algorithm 5.2, leaf by leaf."""
    graph = nx.Graph(edges)
    while True:
        useless = [node for node in graph if graph.degree(node) <= 1 and node not in terminals]
        if not useless:
            return {tuple(sorted(pair)) for pair in graph.edges}
        graph.remove_nodes_from(useless)


@st.composite
def networks(draw):
    """Small networks with failed links, of layers or of none."""
    if draw(st.booleans()):
        network = fabric(
            draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3)), 2, 1, 0
        )
    else:
        seed = draw(st.integers(0, 999))
        graph = nx.connected_watts_strogatz_graph(draw(st.integers(4, 9)), 3, 0.3, seed=seed)
        network = from_graph(graph, hosts_per_switch=draw(st.integers(1, 2)), publishers=0)
    failed = draw(st.sets(st.sampled_from(network.links), max_size=3))
    links = [dataclasses.replace(link, up=link not in failed) for link in network.links]
    return Network.from_rows(network.switches.values(), network.hosts.values(), links)


@examples(60)
@given(networks(), st.integers(0, 999), st.integers(0, 4))
def test_trees_are_usable_and_every_switch_has_room(network, seed, most):
    case = drawn(network, seed)
    chance = random.Random(seed)
    budget = {name: chance.randint(0, most) for name in network.switches}
    for strategy in EVERY:
        found = select(strategy, case, budget)
        numbered(found, strategy.name)  # Trees check that they are trees.
        touched = Counter(name for edges in found for name in {n for pair in edges for n in pair})
        assert all(touched[name] <= budget[name] for name in network.switches), strategy.name
        for u, v in {pair for edges in found for pair in edges}:
            switch, other = (u, v) if u in network.switches else (v, u)
            assert network.usable(network.link(switch, other))
        assert found == select(strategy, case, budget)
        assert len(set(found)) == len(found)


@examples(60)
@given(networks(), st.data())
def test_what_joins_terminals_is_what_pruning_leaves(network, data):
    tree = next(rooted_trees(network))
    whole = frozenset(pair for node in tree.parent for pair in tree.path(node))
    nodes = [*network.hosts, *network.switches]
    terminals = set(data.draw(st.lists(st.sampled_from(nodes), max_size=5)))
    assert tree.joining(terminals) == pruned_as_the_text_does(whole, terminals)


def test_the_empty_and_the_unknown_take_no_room():
    room = uniform(FABRIC, 9)
    for case in (
        situation(FABRIC, {}),
        situation(FABRIC, {"h1": [], "h2": ["h2"]}),
        situation(FABRIC, {"nobody": ["h1"], "h1": ["who"]}),
    ):
        for strategy in (Tree(), Path(), Threshold(30)):
            for edges in select(strategy, case, room):
                assert {n for pair in edges for n in pair} & {"h1", "h2"}
    for strategy in EVERY:
        assert select(strategy, drawn(FABRIC, 1), uniform(FABRIC, 0)) == []


def test_base_trees_spread_over_the_spines_and_join_all_that_may_subscribe():
    far = {host: ["h1", "h7", "h16"] for host in FABRIC.hosts if host not in ("h1", "h7", "h16")}
    trees = select(Tree(paths=False), situation(FABRIC, far), uniform(FABRIC, 50))
    spines = Counter(n for edges in trees for n in {n for p in edges for n in p} if "spine" in n)
    assert len(spines) == 4 and max(spines.values()) - min(spines.values()) <= 2
    assert sorted(min(leaves(edges) - {"h1", "h7", "h16"}) for edges in trees) == sorted(far)
    assert all({"h1", "h7", "h16"} < leaves(edges) for edges in trees)


def test_publishers_of_a_spine_share_a_tree_that_takes_fewer_rules_and_more_stops():
    found = drawn(FABRIC, 3)
    own = select(Tree(paths=False), found, uniform(FABRIC, 99))
    shared = select(Tree(paths=False, shared=True), found, uniform(FABRIC, 99))
    potential, spines = found.clients.potential, spine_trees(FABRIC)
    publishers = [name for name in FABRIC.hosts if potential.get(name)]
    wanted = set()
    for place, spine in enumerate(spines):
        of_it = publishers[place :: len(spines)]
        terminals = {*of_it}.union(*(potential[name] for name in of_it))
        whole = {tuple(sorted(pair)) for pair in spine.parent.items()}
        wanted.add(frozenset(pruned_as_the_text_does(whole, terminals)))
    assert set(shared) == wanted

    def rules(trees):
        return sum(len({node for edge in tree for node in edge}) for tree in trees)

    def stops(trees):
        for name in publishers:
            yield min(len(leaves(tree) - {name, *potential[name]}) for tree in trees)

    assert rules(shared) < rules(own)
    assert sum(stops(own)) == 0 < sum(stops(shared))


def test_subscribers_in_one_pod_need_no_spine():
    (tree,) = select(Tree(paths=False), situation(FABRIC, {"h1": ["h2", "h3"]}), uniform(FABRIC, 1))
    assert leaves(tree) == {"h1", "h2", "h3"}
    layers = Counter(FABRIC.switches[n].layer for p in tree for n in p if n in FABRIC.switches)
    assert "spine" not in layers


def test_a_threshold_parts_subscribers_into_base_tree_and_paths():
    """Fig. 5.8 (c): at 30 % who receives 30 % is in the tree, and who receives less is not."""
    sent = [("h1", ["h5", "h9"], 30), ("h1", ["h5"], 41), ("h1", ["h13"], 29)]
    case = situation(FABRIC, {"h1": ["h5", "h9", "h13"]}, sent)
    base, *paths = select(Threshold(30), case, uniform(FABRIC, 9))
    assert leaves(base) == {"h1", "h5", "h9"}
    assert leaves(paths[0]) & set(FABRIC.hosts) == {"h13"}
    assert "plane1-spine1" in leaves(paths[0])
    assert select(Threshold(30, paths=False), case, uniform(FABRIC, 9)) == [base]
    (spine,) = {n for pair in base for n in pair if "spine" in n}
    assert all(spine in {n for pair in path for n in pair} for path in paths)


def test_the_ends_of_the_threshold_are_the_strategies_tree_and_path():
    case = drawn(FABRIC, 5)
    room = uniform(FABRIC, 6)
    assert select(Threshold(0), case, room) == select(Tree(), case, room)
    assert select(Threshold(100), case, room) == select(Path(), case, room)
    for percent in (-1, 101):
        with pytest.raises(NetworkError, match="BAD_SIZE"):
            Threshold(percent)


def test_permanent_subscribers_are_in_base_trees_before_anything_was_sent():
    case = situation(FABRIC, {"h1": ["h5", "h9"]}, permanent={"h1": ["h9"]})
    base, *paths = select(Path(), case, uniform(FABRIC, 9))
    assert leaves(base) == {"h1", "h9"}
    assert leaves(paths[0]) & set(FABRIC.hosts) == {"h5"}


def test_who_publishes_most_comes_first_where_room_is_short():
    sent = [("h1", ["h16"], 5), ("h2", ["h16"], 7), ("h3", ["h16"], 6)]
    case = situation(FABRIC, {name: ["h16"] for name in ("h1", "h2", "h3")}, sent)
    trees = select(Tree(paths=False), case, uniform(FABRIC, 2))
    assert [leaves(tree) - {"h16"} for tree in trees] == [{"h2"}, {"h3"}]


def test_port_sets_are_blocks_of_a_power_of_two_first():
    assert list(port_sets(4)) == [
        *((0, 1, 2, 3), (0, 1), (2, 3)),
        *((0, 2), (0, 3), (1, 2), (1, 3)),
    ]
    for count in range(2, 9):
        found = list(port_sets(count))
        assert len(set(found)) == len(found)
        sizes = {1 << n for n in range(1, 4) if 1 << n <= count} | {count}
        assert Counter(map(len, found)) == {
            size: sum(1 for _ in combinations(range(count), size)) for size in sizes
        }
    # Nobody waits for the sets of a switch with 63 ports.
    assert len(list(islice(port_sets(63), 5000))) == 5000


def test_topo_trees_have_one_switch_and_what_hangs_below_it():
    below = down_links(FABRIC)
    assert below["pod1-rack1"] == ["h1", "h2"]
    assert below["pod1-fabric1"] == ["pod1-rack1", "pod1-rack2"]
    assert below["plane1-spine1"] == [f"pod{n}-fabric1" for n in (1, 2, 3, 4)]
    trees = select(Topo(), drawn(FABRIC, 1), uniform(FABRIC, 50))
    centres = Counter()
    for tree in trees:
        (centre,) = set.intersection(*map(set, tree)) & set(below)
        centres[centre] += 1
        assert {n for pair in tree for n in pair} - {centre} <= set(below[centre])
    assert centres == {
        name: {"rack": 1, "fabric": 1, "spine": 7}[FABRIC.switches[name].layer]
        for name in FABRIC.switches
    }


def test_rules_for_topo_trees_are_spread_evenly():
    trees = select(Topo(), drawn(FABRIC, 1), uniform(FABRIC, 4))
    per_spine = Counter(n for tree in trees for n in {n for p in tree for n in p} if "spine" in n)
    assert len(per_spine) == 4
    assert max(per_spine.values()) - min(per_spine.values()) <= 1


def test_a_network_without_layers_has_its_most_central_switch_on_top():
    network = from_graph(nx.path_graph(5), hosts_per_switch=1, publishers=0)
    (spine,) = spine_trees(network)
    assert spine.root == "s2"
    assert down_links(network)["s2"] == ["h3", "s1", "s3"]
    assert down_links(network)["s4"] == ["h5"]


def test_broadcast_goes_on_where_the_first_spine_has_no_room():
    budget = uniform(FABRIC, 2) | {"plane1-spine1": 0}
    trees = select(Broadcast(), drawn(FABRIC, 1), budget)
    assert len(trees) == 2
    assert all(set(FABRIC.hosts) == leaves(tree) for tree in trees)


def test_topo_ends_where_most_down_links_have_no_room():
    network = from_graph(nx.star_graph(40), hosts_per_switch=1)
    core, open_end = list(network.switches)[:2]
    budget = dict.fromkeys(network.switches, 0) | {core: 10, open_end: 1}
    # The core's host and the one leaf with room; of 41 down-links there are 2^41 sets.
    trees = select(Topo(), situation(network, {}), budget)
    ends = [{end for pair in tree for end in pair} - {core} for tree in trees]
    assert ends == [{"h1", "feed1", open_end}, {"h1", "feed1"}]


def test_publishers_are_spread_over_the_spines_that_they_can_reach():
    links = [
        dataclasses.replace(
            link, up=link.up and "plane2-spine1" not in (link.switch, link.neighbor)
        )
        for link in FABRIC.links
    ]
    cut = Network.from_rows(FABRIC.switches.values(), FABRIC.hosts.values(), links)
    hosts = list(cut.hosts)
    # Every second host publishes: taking turns by the place among all would use half the spines.
    potential = {host: set(hosts) - {host} for host in hosts[::2]}
    for network in (FABRIC, cut):
        trees = select(
            Threshold(0, paths=False), situation(network, potential), uniform(network, 9)
        )
        spines = {s for tree in trees for pair in tree for s in pair if "spine" in s}
        lost = {"plane2-spine1"} if network is cut else set()
        assert spines == {s for s in network.switches if "spine" in s} - lost
