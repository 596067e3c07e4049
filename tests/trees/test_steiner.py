"""Steiner trees beside the lightest there are, and beside those of Kou and of Mehlhorn."""

import dataclasses
import logging
import random
import statistics
from itertools import combinations

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph, random_network, reachable
from networkx.algorithms.approximation import steiner_tree as reference
from steinerpy import SteinerProblem

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.trees.steiner import steiner_tree

pytestmark = pytest.mark.unit

logging.getLogger("steinerpy").setLevel(logging.WARNING)
randomness = st.randoms(use_true_random=False)


def switches_of(network, free=frozenset()):
    """Usable links between switches, by weight; those of ``free`` weigh nothing."""
    graph = nx.Graph()
    graph.add_nodes_from(network.switches)
    for link in network.links:
        if link.neighbor in network.switches and network.usable(link):
            pair = (min(link.switch, link.neighbor), max(link.switch, link.neighbor))
            graph.add_edge(*pair, weight=0.0 if pair in free else link.weight)
    return graph


def lightest(graph, terminals):
    """The weight of the lightest tree, by an integer program."""
    if len(terminals) < 2:
        return 0.0
    solution = SteinerProblem(graph, [list(terminals)]).get_solution()
    assert solution.gap == 0
    return solution.objective


def lightest_by_trying_all(graph, terminals):
    """The same: the lightest spanning tree of some set of nodes around the terminals."""
    rest = sorted(set(graph) - set(terminals))
    best = float("inf")
    for size in range(len(rest) + 1):
        for more in combinations(rest, size):
            part = graph.subgraph([*terminals, *more])
            if nx.is_connected(part):
                best = min(best, nx.minimum_spanning_tree(part).size("weight"))
    return best


def weight(graph, edges):
    return sum(graph.edges[pair]["weight"] for pair in edges)


def between_switches(network, edges):
    return [pair for pair in edges if network.switches.keys() >= set(pair)]


def drawn_terminals(rng, network):
    """Hosts that reach each other, as the network is now."""
    publisher = rng.choice(network.publishers())
    within = reachable(network, publisher)
    return [publisher, *rng.sample(within, rng.randint(0, len(within)))] if within else []


@examples(120)
@given(randomness)
def test_a_tree_joins_its_terminals_by_usable_links_at_most_twice_as_heavy_as_need_be(rng):
    # Weights are small multiples of a half: the search counts them exactly.
    network = random_network(rng, 10)
    terminals = drawn_terminals(rng, network)
    if not terminals:
        return
    edges = steiner_tree(network, terminals)
    tree = nx.Graph(list(edges))
    assert nx.is_tree(tree)
    # A single host brings its link, at whose other end nothing is joined.
    assert len(edges) == 1 or {node for node in tree if tree.degree(node) == 1} <= set(terminals)
    assert set(terminals) <= set(tree)
    assert all(u < v for u, v in edges)
    for u, v in edges:
        switch, other = (u, v) if u in network.switches else (v, u)
        assert network.usable(network.link(switch, other))
    graph = switches_of(network)
    ends = sorted({network.hosts[name].switch for name in terminals})
    ours = weight(graph, between_switches(network, edges))
    assert lightest(graph, ends) - 1e-6 <= ours <= 2 * lightest(graph, ends) + 1e-6
    rng.shuffle(terminals)
    assert steiner_tree(network, terminals) == edges


@examples(60)
@given(randomness)
def test_links_of_stored_trees_are_free_and_so_is_the_way_over_them(rng):
    network = random_network(rng, 10)
    terminals = drawn_terminals(rng, network)
    if not terminals:
        return
    pairs = list(switches_of(network).edges)
    free = frozenset((min(p), max(p)) for p in rng.sample(pairs, rng.randint(0, len(pairs))))
    graph = switches_of(network, free)
    edges = between_switches(network, steiner_tree(network, terminals, free))
    ends = sorted({network.hosts[name].switch for name in terminals})
    best = lightest(nx.Graph(graph), ends)
    assert best - 1e-6 <= weight(graph, edges) <= 2 * best + 1e-6


@examples(30)
@given(randomness)
def test_the_integer_program_is_an_oracle(rng):
    network = random_network(rng, 7, failing=0)
    graph = switches_of(network)
    ends = sorted(rng.sample(sorted(graph), rng.randint(1, len(graph))))
    assert lightest(graph, ends) == pytest.approx(lightest_by_trying_all(graph, ends))


def sample(seeds, switches):
    for seed in range(seeds):
        rng = random.Random(seed)
        graph = nx.gnm_random_graph(switches, 2 * switches, seed=seed)
        nx.add_path(graph, range(switches))
        for _, _, data in graph.edges(data=True):
            data["weight"] = rng.choice([0.5, 1.0, 1.0, 3.0])
        network = from_graph(graph)
        yield network, rng.sample(sorted(network.switches), switches // 3)


@pytest.mark.long
def test_on_average_a_tree_is_nearly_the_lightest_like_those_of_the_references():
    ratios = {"ours": [], "kou": [], "mehlhorn": []}
    for network, ends in sample(100, 24):
        graph = switches_of(network)
        best = lightest(graph, ends)
        ratios["ours"].append(weight(graph, steiner_tree(network, ends)) / best)
        for method in ("kou", "mehlhorn"):
            edges = reference(graph, ends, method=method).edges
            ratios[method].append(weight(graph, edges) / best)
    mean = {name: statistics.mean(values) for name, values in ratios.items()}
    print(f"Steiner trees beside the lightest: {mean}")
    assert max(ratios["ours"]) <= 2
    assert mean["ours"] <= 1.04
    # The three have the same bound, and are as good as each other.
    assert mean["ours"] <= 1.01 * min(mean["kou"], mean["mehlhorn"])


def test_a_network_that_lost_a_link_goes_around_it_or_says_who_is_cut_off():
    ring = from_graph(nx.cycle_graph(5))
    assert steiner_tree(ring, ["s0", "s1"]) == {("s0", "s1")}

    def without(*lost):
        links = [
            dataclasses.replace(link, up={link.switch, link.neighbor} not in lost)
            for link in ring.links
        ]
        return Network.from_rows(ring.switches.values(), ring.hosts.values(), links)

    around = steiner_tree(without({"s0", "s1"}), ["s0", "s1"])
    assert around == {("s0", "s4"), ("s3", "s4"), ("s2", "s3"), ("s1", "s2")}
    with pytest.raises(NetworkError, match="UNREACHABLE"):
        steiner_tree(without({"s0", "s1"}, {"s1", "s2"}), ["s0", "s1"])
    with pytest.raises(NetworkError, match="UNREACHABLE"):
        steiner_tree(without({"s0", "h1"}), ["h1", "s2"])


def test_no_terminal_no_tree_and_one_host_its_link():
    ring = from_graph(nx.cycle_graph(5))
    assert steiner_tree(ring, []) == frozenset()
    assert steiner_tree(ring, ["s3"]) == frozenset()
    assert steiner_tree(ring, ["h4"]) == {("h4", "s3")}
    with pytest.raises(NetworkError, match="UNKNOWN_HOST"):
        steiner_tree(ring, ["s0", "nobody"])
