"""The strategies of chapter 6: cycles, communities, hubs, and the text's figures."""

import random
from itertools import combinations, pairwise

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Host, Link, Network, Switch
from stackcast.udfs.trees.encode import Encoder
from stackcast.udfs.trees.publications import Clients, Publication, Statistics
from stackcast.udfs.trees.strategies.cycle_basis import cycle_basis
from stackcast.udfs.trees.strategies.cycles import Cycles, combined
from stackcast.udfs.trees.strategies.hub_and_spoke import depth_first
from stackcast.udfs.trees.strategies.nodes import Nodes, halving
from stackcast.udfs.trees.strategies.partitions import (
    Clusters,
    Partitions,
    communities,
    partitions_of,
)
from stackcast.udfs.trees.strategies.random_trees import RandomVariant, trees_of_parts
from stackcast.udfs.trees.strategies.relation import FreqRelation, Hybrid, Relation
from stackcast.udfs.trees.strategies.strategy import (
    Situation,
    TreeCapacity,
    numbered,
    select,
    uniform,
)

pytestmark = pytest.mark.unit


def network_of(links, hosts=()):
    """Switches by name in ascending order, joined by ``links``; ``hosts``: (name, switch)."""
    names = sorted({name for pair in links for name in pair} | {switch for _, switch in hosts})
    ports = dict.fromkeys(names, 0)

    def port(name):
        ports[name] += 1
        return ports[name]

    host_rows, link_rows = [], []
    for number, (name, switch) in enumerate(hosts, start=1):
        host_rows.append(Host(name, switch, port(switch), number, number))
        link_rows.append(Link(len(link_rows) + 1, switch, host_rows[-1].port, name, None))
    for u, v in links:
        a, b = port(u), port(v)
        link_rows.append(Link(len(link_rows) + 1, u, a, v, b))
        link_rows.append(Link(len(link_rows) + 1, v, b, u, a))
    return Network.from_rows(
        [Switch(name, number) for number, name in enumerate(names, start=1)], host_rows, link_rows
    )


def with_a_host_each(links):
    names = sorted({name for pair in links for name in pair})
    return network_of(links, [(f"host-{name}", name) for name in names])


def situation(network, potential=None, permanent=None, sent=(), seed=0):
    """``sent``: rows of (publisher, receivers, notifications)."""
    clients = Clients(
        {name: frozenset(hosts) for name, hosts in (potential or {}).items()},
        {name: frozenset(hosts) for name, hosts in (permanent or {}).items()},
    )
    record = Statistics(Publication(p, frozenset(r), n) for p, r, n in sent)
    return Situation(network, clients, record, seed)


def pairs(text):
    return [tuple(word) for word in text.split()]


def between_switches(edges):
    return {"".join(pair) for pair in edges if "-" not in pair[0] + pair[1]}


def adjacency(graph):
    return [sorted(graph[node]) for node in range(len(graph))]


graphs = st.builds(
    lambda nodes, degree, seed: nx.gnm_random_graph(nodes, nodes * degree // 4, seed=seed),
    st.integers(1, 12),
    st.integers(2, 9),
    st.integers(0, 10**6),
)

FIGURE_6_5 = pairs("ab be ce ac bd de cf ef")


def test_figure_6_5_has_three_simple_cycles_and_seven_with_combinations():
    network = with_a_host_each(FIGURE_6_5)
    nodes = Nodes(network)
    rings = cycle_basis([[v for v, _ in near] for near in nodes.neighbors])
    named = {"".join(sorted(nodes.names[node] for node in ring)) for ring in rings}
    assert named == {"abce", "bde", "cef"}
    trees = select(Cycles(), situation(network), uniform(network, 40))
    assert len(trees) == len(list(combined(rings))) == 2**3 - 1
    singles = [{end for pair in edges for end in pair if "-" not in end} for edges in trees[:3]]
    assert {"".join(sorted(ring)) for ring in singles} == named
    for edges in trees:
        switches = {end for pair in edges for end in pair if "-" not in end}
        assert {f"host-{name}" for name in switches} <= {end for pair in edges for end in pair}


def test_a_ring_is_open_where_it_is_farthest_from_its_busiest_crossing():
    network = with_a_host_each([*pairs("ab bc cd de ef af"), ("a", "x"), ("a", "y")])
    (tree,) = select(Cycles(), situation(network), uniform(network, 5))
    # From a, both arms are as long as can be: d hangs on one of them, with three links.
    assert between_switches(tree) in (
        {"ab", "bc", "cd", "ef", "af"},
        {"ab", "bc", "de", "ef", "af"},
    )


def test_a_network_without_rings_gets_no_cycles():
    network = with_a_host_each(pairs("ab bc bd de"))
    assert select(Cycles(), situation(network), uniform(network, 5)) == []


@examples(80)
@given(graphs)
def test_a_cycle_basis_has_as_few_links_as_any(graph):
    rings = cycle_basis(adjacency(graph))
    assert sum(map(len, rings)) == sum(map(len, nx.minimum_cycle_basis(graph)))
    assert len(rings) == len(graph.edges) - len(graph) + nx.number_connected_components(graph)
    for ring in rings:
        assert len(set(ring)) == len(ring) >= 3
        assert all(graph.has_edge(u, v) for u, v in pairwise([*ring, ring[0]]))
    assert [len(ring) for ring in rings] == sorted(map(len, rings))


@examples(60)
@given(graphs, st.integers(1, 4))
def test_rings_are_combined_in_every_connected_set_once(graph, most):
    rings = cycle_basis(adjacency(graph))[:6]
    meeting = nx.Graph()
    meeting.add_nodes_from(range(len(rings)))
    for a, b in combinations(range(len(rings)), 2):
        if set(rings[a]) & set(rings[b]):
            meeting.add_edge(a, b)
    found = [each for each in combined(rings) if len(each) <= most]
    assert len({frozenset(each) for each in found}) == len(found)
    assert {frozenset(each) for each in found} == {
        frozenset(chosen)
        for size in range(1, most + 1)
        for chosen in combinations(range(len(rings)), size)
        if nx.is_connected(meeting.subgraph(chosen))
    }
    assert [len(each) for each in found] == sorted(map(len, found))


def test_rings_of_a_large_network_are_found_link_by_link():
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(24, 24))
    rings = cycle_basis(adjacency(grid))
    assert {len(ring) for ring in rings} == {4}
    on_rings = {frozenset(pair) for ring in rings for pair in pairwise([*ring, ring[0]])}
    assert on_rings == {frozenset(pair) for pair in grid.edges}


def test_of_a_large_network_each_link_is_on_a_ring_as_short_as_any_through_it():
    graph = nx.random_regular_graph(6, 600, seed=1)
    rings = cycle_basis(adjacency(graph))
    shortest: dict[frozenset[int], int] = {}
    for ring in rings:
        assert len(set(ring)) == len(ring)
        assert all(graph.has_edge(u, v) for u, v in pairwise([*ring, ring[0]]))
        for pair in pairwise([*ring, ring[0]]):
            shortest.setdefault(frozenset(pair), len(ring))
    for u, v in list(graph.edges):
        graph.remove_edge(u, v)
        assert shortest[frozenset((u, v))] == nx.shortest_path_length(graph, u, v) + 1
        graph.add_edge(u, v)


@examples(80)
@given(graphs)
def test_no_two_communities_merged_would_be_better(graph):
    groups = communities(adjacency(graph))
    assert sorted(node for group in groups for node in group) == list(graph)
    if not graph.edges:
        assert all(len(group) == 1 for group in groups)
        return
    reached = nx.community.modularity(graph, groups)
    for a, b in combinations(range(len(groups)), 2):
        rest = [group for number, group in enumerate(groups) if number not in (a, b)]
        assert nx.community.modularity(graph, [*rest, groups[a] + groups[b]]) <= reached + 1e-9


@examples(40)
@given(graphs, st.randoms(use_true_random=False))
def test_communities_do_not_depend_on_the_order_of_neighbors(graph, random):
    neighbors = adjacency(graph)
    found = communities(neighbors)
    for near in neighbors:
        random.shuffle(near)
    assert communities(neighbors) == found


def test_cliques_on_a_ring_are_the_communities():
    ring = nx.ring_of_cliques(5, 6)
    assert communities(adjacency(ring)) == [list(range(n, n + 6)) for n in range(0, 30, 6)]


FIGURE_6_4 = [("3", "7"), ("6", "7"), ("4", "6"), ("3", "4"), ("5", "8"), ("1", "4"), ("1", "2"),
              ("5", "6")]  # fmt: skip


def test_figure_6_4_pairs_that_one_link_joins_get_no_tree():
    network = with_a_host_each(FIGURE_6_4)
    nodes = Nodes(network)
    order = [nodes.index[name] for name in "37645812"]
    room = TreeCapacity(network, uniform(network, 9))
    trees = [between_switches(edges) for edges in trees_of_parts(nodes, order, room)]
    # Halves are 3764 and 5812, quarters 37, 64, 58 and 12: one link joins each of those.
    ring, rest = trees
    assert len(ring) == 3 and ring < {"37", "67", "46", "34"}
    assert rest == {"58", "56", "46", "14", "12"}
    first = next(iter(select(RandomVariant(), situation(network), uniform(network, 9))))
    assert {end for pair in first for end in pair} == {*network.switches, *network.hosts}


@given(st.integers(0, 40), st.integers(1, 4))
def test_halving_covers_each_item_once_a_step(count, smallest):
    parts = [list(part) for part in halving(range(count), smallest)]
    assert all(len(part) >= smallest for part in parts)
    assert [len(part) for part in parts] == sorted(map(len, parts), reverse=True) or count > 2
    if count >= smallest:
        assert parts[0] == list(range(count))
    for a, b in combinations(parts, 2):
        assert set(a) >= set(b) or not set(a) & set(b)


FIGURE_6_7 = network_of(
    [("n1", "n2"), ("n1", "n3"), ("n2", "n4"), ("n2", "n5"), ("n3", "n6"), ("n3", "n7")],
    [("P", "n1"), ("S1", "n4"), ("S2", "n5"), ("S3", "n6"), ("S4", "n7")],
)
PER_CENT = {"S1": 26, "S2": 60, "S3": 30, "S4": 29}


def sent_per_cent(shares):
    for number in range(100):
        yield "P", [name for name, share in shares.items() if number < share], 1


def test_figure_6_7_a_threshold_of_30_per_cent_leaves_out_what_is_below():
    case = situation(FIGURE_6_7, {"P": PER_CENT}, sent=sent_per_cent(PER_CENT))
    room = uniform(FIGURE_6_7, 5)
    (every,) = select(Relation(), case, room)
    assert {end for pair in every for end in pair} == {*FIGURE_6_7.switches, *PER_CENT}
    (frequent,) = select(FreqRelation(), case, room)
    assert frequent == {("n1", "n2"), ("n1", "n3"), ("n2", "n5"), ("n3", "n6"),
                        ("S2", "n5"), ("S3", "n6")}  # fmt: skip
    trees = numbered([frequent], "freq-relation")
    (stack,) = Encoder(FIGURE_6_7, "P", trees).encode(frozenset({"S2", "S3"}))
    assert len(stack.labels) == 1


@given(st.integers(1, 400), st.integers(0, 100))
def test_who_is_exactly_at_the_threshold_is_in(notifications, percent):
    count = -(-notifications * percent // 100)
    case = situation(
        FIGURE_6_7,
        {"P": ["S1", "S2"]},
        sent=[("P", ["S1"], count), ("P", [], notifications - count)],
    )
    exact = count * 100 >= notifications * percent and count
    assert FreqRelation(percent).frequent(case, "P") == ({"S1"} if exact else set())


def test_permanent_subscribers_stay_without_any_record():
    case = situation(FIGURE_6_7, {"P": ["S1", "S2"]}, {"P": ["S1"]})
    assert FreqRelation().frequent(case, "P") == {"S1"}


def test_busiest_publishers_come_first():
    network = with_a_host_each(pairs("ab bc cd de"))
    hosts = list(network.hosts)
    sent = [("host-a", hosts[1:], 3), ("host-b", hosts[2:], 9), ("host-c", hosts[:2], 9)]
    for strategy in (Relation(), FreqRelation()):
        potential = {p: r for p, r, _ in sent}
        trees = select(strategy, situation(network, potential, sent=sent), uniform(network, 1))
        assert [between_switches(edges) for edges in trees] == [{"bc", "cd", "de"}]


def test_a_threshold_is_a_percentage():
    with pytest.raises(NetworkError, match=r"0 to 100"):
        FreqRelation(101)


def grown(count, seed):
    return from_graph(nx.connected_watts_strogatz_graph(count, 4, 0.1, seed=seed), 1, publishers=0)


@pytest.mark.parametrize("seed", range(5))
def test_trees_of_a_partition_contain_its_hub_and_combine_without_a_cycle(seed):
    network = grown(30, seed)
    nodes = Nodes(network)
    areas = [{nodes.names[node] for node in area} for area in partitions_of(nodes)]
    hubs = {
        max(area, key=lambda node: (nodes.degree(node), -node)): area
        for area in partitions_of(nodes)
    }
    local = {number: [] for number in range(len(areas))}
    backbones = []
    for edges in select(Partitions(), situation(network), uniform(network, 12)):
        inside = {end for pair in edges for end in pair if end in network.switches}
        within = [number for number, area in enumerate(areas) if inside <= area]
        if any(end in network.hosts for pair in edges for end in pair):
            (number,) = within
            local[number].append(edges)
        else:
            backbones.append(inside)
    assert all(local.values())
    for edges in local.values():
        assert nx.is_forest(nx.Graph(pair for tree in edges for pair in tree))
        hub = set.intersection(*({end for pair in tree for end in pair} for tree in edges))
        assert hub & {nodes.names[node] for node in hubs}
    assert {nodes.names[node] for node in hubs} <= set().union(*backbones)


def test_clusters_leave_out_where_clients_are_few():
    network = grown(40, 2)
    hosts = list(network.hosts)
    dense = hosts[5:17]
    chance = random.Random(1)
    sent = [
        (publisher, [host for host in dense if host != publisher and chance.random() < 0.5], 5)
        for publisher in dense
        for _ in range(5)
    ]
    sent.append((dense[0], hosts[30:32], 1))
    case = situation(network, sent=[row for row in sent if row[1]])
    trees = select(Clusters(), case, uniform(network, 20))
    ends = {end for edges in trees for pair in edges for end in pair}
    assert ends & set(hosts) == set(dense)


def test_clusters_follow_clients_where_nothing_was_recorded():
    network = grown(20, 3)
    hosts = list(network.hosts)
    trees = select(Clusters(), situation(network, {hosts[0]: hosts[1:5]}), uniform(network, 5))
    ends = {end for edges in trees for pair in edges for end in pair}
    assert ends & set(hosts) == set(hosts[:5])
    assert select(Clusters(), situation(network), uniform(network, 5)) == []


def test_hybrid_takes_turns():
    network = grown(30, 1)
    hosts = list(network.hosts)
    case = situation(network, sent=[(p, hosts[10:20], 9) for p in hosts[:6]])
    room = uniform(network, 50)
    one, other = (list(s.candidates(case, room)) for s in (FreqRelation(), Clusters()))
    both = list(Hybrid().candidates(case, room))
    assert both[: 2 * len(one)] == [
        tree for turn in zip(one, other[: len(one)], strict=True) for tree in turn
    ]
    assert both[2 * len(one) :] == other[len(one) :]


def test_a_walk_in_depth_keeps_branches_together():
    parents = {0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 1}
    assert depth_first(parents) == [0, 1, 3, 5, 2, 4]


@examples(40)
@given(st.integers(0, 10**6))
def test_shortest_paths_are_those_of_networkx(seed):
    graph = nx.gnm_random_graph(9, 14, seed=seed)
    chance = random.Random(seed)
    for _, _, data in graph.edges(data=True):
        data["weight"] = chance.choice([1.0, 2.0, 5.0])
    network = from_graph(graph, 1, publishers=0)
    nodes = Nodes(network)
    whole = network.graph()
    parents = nodes.shortest_paths(0)
    best = nx.single_source_dijkstra_path_length(whole, nodes.names[0])
    for node, parent in parents.items():
        if node:
            step = network.link(nodes.names[parent], nodes.names[node]).weight
            assert best[nodes.names[node]] == best[nodes.names[parent]] + step
    assert set(parents) == set(range(len(network.switches)))
