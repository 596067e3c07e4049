"""Trees for aggregated multicast: right on random networks, and held against the best there are on
tiny ones."""

import dataclasses
from itertools import combinations, pairwise

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph

from benchmarks.trees.aggregated import branch_aware_tree, branch_nodes, extended_shortest_path_tree
from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.publications import Clients, Publication, Statistics
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.strategies.lama import (
    Lama,
    rendezvous_point,
    shared_tree,
    source_clusters,
)
from stackcast.udfs.trees.strategies.strategy import Situation, numbered, select, uniform

pytestmark = pytest.mark.unit

TREES = {
    "branch-aware": branch_aware_tree,
    "extended Dijkstra": extended_shortest_path_tree,
    "locality-aware": lambda network, ends, _free: shared_tree(network, ends[:2], ends[2:]),
}


@st.composite
def networks(draw, most=9, weights=(1, 2, 3)):
    """Connected networks of weighted links, one host a switch."""
    count = draw(st.integers(3, most))
    tree = [draw(st.integers(0, n - 1)) for n in range(1, count)]
    pairs = {(parent, n) for n, parent in enumerate(tree, start=1)}
    pairs |= draw(st.sets(st.tuples(st.integers(0, count - 2), st.integers(1, count - 1))))
    graph = nx.Graph()
    graph.add_nodes_from(range(count))
    for u, v in sorted(pairs):
        if u != v:
            graph.add_edge(u, v, weight=draw(st.sampled_from(weights)))
    return from_graph(graph, hosts_per_switch=1, publishers=0)


def ends_of(data, network, least=1):
    nodes = [*network.hosts, *network.switches]
    return data.draw(st.lists(st.sampled_from(nodes), min_size=least, max_size=6, unique=True))


def length(network, edges):
    return sum(network.graph().edges[pair]["weight"] for pair in edges)


@pytest.mark.parametrize("kind", TREES)
@examples(30)
@given(network=networks(), data=st.data())
def test_trees_join_their_terminals_over_usable_links(kind, network, data):
    failed = data.draw(st.sets(st.sampled_from([x for x in network.links if x.neighbor_port])))
    links = [dataclasses.replace(link, up=link not in failed) for link in network.links]
    network = Network.from_rows(network.switches.values(), network.hosts.values(), links)
    ends = ends_of(data, network)
    usable = nx.Graph([(u, v, d) for u, v, d in network.graph().edges(data=True) if d["up"]])
    free = data.draw(st.sets(st.sampled_from(sorted(map(tuple, map(sorted, usable.edges))))))
    if not all(end in usable and nx.has_path(usable, ends[0], end) for end in ends):
        with pytest.raises(NetworkError, match="UNREACHABLE"):
            TREES[kind](network, ends, free)
        return
    edges = TREES[kind](network, ends, free)
    assert edges == TREES[kind](network, ends, free)
    assert all(usable.has_edge(u, v) and u < v for u, v in edges)
    if len(edges):
        tree = nx.Graph(edges)
        assert nx.is_tree(tree)
        assert set(ends) <= set(tree)
        loose = {node for node in tree if tree.degree(node) == 1} - set(ends)
        # A rendezvous point may be an end, though it is no terminal, and so may the switch of a
        # host that is alone.
        assert len(loose) <= (kind == "locality-aware" or len(ends) == 1)
    else:
        assert len(ends) == 1 and ends[0] in network.switches


def least(network, ends, branch_weight):
    """The exact optimum of BST: each set of links tried."""
    graph = nx.Graph(
        [(u, v, d) for u, v, d in network.graph().edges(data=True) if v not in network.hosts]
    )
    hosts = [host for host in ends if host in network.hosts]
    links = [(network.hosts[host].switch, host) for host in hosts]
    lightest = min(d["weight"] for *_, d in graph.edges(data=True))
    best = None
    for size in range(len(graph)):
        for chosen in combinations(sorted(graph.edges), size):
            tree = nx.Graph([*chosen, *links])
            tree.add_nodes_from(ends)
            if nx.is_tree(tree):
                branches = sum(degree > 2 for _, degree in tree.degree)
                value = length(network, chosen) + branch_weight * lightest * branches
                best = value if best is None else min(best, value)
    return best + len(links), lightest


@examples(20)
@given(network=networks(most=6), data=st.data(), branch_weight=st.sampled_from([0, 1, 5]))
def test_a_branch_aware_tree_is_near_the_best_and_no_worse_than_it_began(
    network, data, branch_weight
):
    ends = ends_of(data, network, least=2)
    best, lightest = least(network, ends, branch_weight)

    def value(edges):
        return length(network, edges) + branch_weight * lightest * len(branch_nodes(edges))

    found = value(branch_aware_tree(network, ends, branch_weight=branch_weight))
    assert best - 1e-9 <= found
    if branch_weight == 0:
        assert found <= 2 * best + 1e-9


def test_branch_aware_trees_save_branches_where_steiner_trees_do_not():
    """Two ways of three terminals: a star by a switch of its own, or a line by the terminals."""
    graph = nx.Graph([("a", "m"), ("b", "m"), ("c", "m"), ("a", "x"), ("x", "b"), ("b", "y")])
    graph.add_edge("y", "c")
    network = from_graph(graph, hosts_per_switch=1, publishers=0)
    assert branch_nodes(steiner_tree(network, "abc")) == ["m"]
    line = branch_aware_tree(network, "abc", branch_weight=5)
    assert branch_nodes(line) == []
    assert len(line) == 4
    assert branch_aware_tree(network, "abc", branch_weight=0) == steiner_tree(network, "abc")


def test_a_branch_moves_to_the_switch_beside_it_where_that_branches_anyway():
    graph = nx.Graph([("p", "u"), ("u", "v"), ("v", "w"), ("v", "x"), ("u", "y"), ("u", "z")])
    graph.add_edges_from([("u", "w"), ("u", "x")])
    network = from_graph(graph, hosts_per_switch=1, publishers=0)
    tree = branch_aware_tree(network, ["p", "w", "x", "y", "z", "v"], branch_weight=1)
    assert branch_nodes(tree) == ["u"]


@examples(30)
@given(network=networks(), data=st.data())
def test_extended_shortest_paths_are_shortest_in_links_and_switches(network, data):
    weights = {name: data.draw(st.integers(0, 3)) for name in network.switches}
    ends = data.draw(
        st.lists(st.sampled_from(list(network.switches)), min_size=2, max_size=5, unique=True)
    )
    tree = nx.Graph(extended_shortest_path_tree(network, ends, switch_weights=weights))
    directed = nx.DiGraph()
    for u, v, d in network.graph().edges(data=True):
        for a, b in ((u, v), (v, u)):
            if {a, b} <= set(weights):
                directed.add_edge(a, b, weight=d["weight"] + weights[a])
    for end in ends[1:]:
        path = nx.shortest_path(tree, ends[0], end)
        far = sum(directed.edges[pair]["weight"] for pair in pairwise(path))
        # Links also cost their count, a 64th of the lightest each, so near ties may go either way.
        assert far <= nx.dijkstra_path_length(directed, ends[0], end) * (1 + 9 / 64)


def test_a_slow_switch_is_gone_round():
    network = from_graph(nx.cycle_graph(4), hosts_per_switch=1, publishers=0)
    straight = extended_shortest_path_tree(network, ["h1", "h3"])
    middle = ({n for pair in straight for n in pair} & {"s1", "s3"}).pop()
    other = ({"s1", "s3"} - {middle}).pop()
    round_ = extended_shortest_path_tree(network, ["h1", "h3"], switch_weights={middle: 0.5})
    assert {n for pair in round_ for n in pair} == {"h1", "h3", "s0", "s2", other}
    for weight in (-1, float("nan"), float("inf")):
        with pytest.raises(NetworkError, match="BAD_WEIGHT"):
            extended_shortest_path_tree(network, ["h1"], switch_weights={middle: weight})


@examples(30)
@given(network=networks(weights=(1,)), data=st.data(), radius=st.integers(0, 4))
def test_clusters_part_the_sources_by_distance(network, data, radius):
    sources = ends_of(data, network)
    clusters = source_clusters(network, sources, radius)
    assert sorted(name for cluster in clusters for name in cluster) == sorted(sources)
    place = {name: getattr(network.hosts.get(name), "switch", name) for name in sources}
    far = dict(nx.all_pairs_shortest_path_length(network.graph()))
    for cluster in clusters:
        for a, b in combinations(cluster, 2):
            assert far[place[a]][place[b]] <= radius
        point = rendezvous_point(network, cluster)
        total = {
            name: sum(far[name][place[source]] for source in cluster) for name in network.switches
        }
        assert total[point] == min(total.values())
    with pytest.raises(NetworkError, match="BAD_SIZE"):
        source_clusters(network, sources, -1)


def test_publishers_of_a_pod_share_a_tree():
    network = fabric(2, 2, 2, 1, 1, publishers=0)
    potential = {"h1": {"h8"}, "h3": {"h7"}, "h5": {"h6"}}
    statistics = Statistics([Publication("h5", frozenset({"h6"}), 9)])
    case = Situation(
        network, Clients({name: frozenset(found) for name, found in potential.items()}), statistics
    )
    first, second = select(Lama(), case, uniform(network, 9))
    numbered([first, second], "lama")
    assert {n for pair in first for n in pair} == {"h5", "h6", "pod2-rack1"}
    assert {n for pair in second for n in pair if n in network.hosts} == {"h1", "h3", "h7", "h8"}
    assert len(select(Lama(radius=0), case, uniform(network, 9))) == 3
    assert select(Lama(), case, uniform(network, 0)) == []
    assert select(Lama(), Situation(network, Clients({}), statistics), uniform(network, 9)) == []
