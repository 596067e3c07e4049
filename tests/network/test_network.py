"""What a network must be, and which networks sizes and graphs make."""

import dataclasses
import pickle
import random

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Host, Link, Network, Switch
from stackcast.udfs.network.rows import (
    network_from_rows,
    network_to_rows,
    tree_from_row,
    tree_to_row,
)
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.tunnel import Tunnel, TunnelEnd
from stackcast.udfs.network.virtual_tree import VirtualTree, tree_ports
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.steiner import steiner_tree

pytestmark = pytest.mark.unit

SWITCHES = [Switch("a", 1), Switch("b", 2)]
HOSTS = [Host("h1", "a", 1, 0x02000000000A, 0x0A000001), Host("h2", "b", 1, 11, 12, "publisher")]
LINKS = [
    Link(1, "a", 1, "h1", None),
    Link(2, "b", 1, "h2", None),
    Link(3, "a", 2, "b", 2),
    Link(4, "b", 2, "a", 2),
]


END = TunnelEnd(0x0A090001, 0x02CC00000001, 0x02EE00000001)


def change(rows, index, **fields):
    return [dataclasses.replace(row, **fields) if i == index else row for i, row in enumerate(rows)]


def test_a_small_network_answers_by_name_and_id():
    network = Network.from_rows(SWITCHES, HOSTS, LINKS)
    assert network.link("a", "b") is network.link_by_id[3]
    assert network.hosts["h1"].switch == "a"
    assert (network.publishers(), network.subscribers()) == (("h2",), ("h1",))
    assert set(network.graph().edges) == {("a", "b"), ("a", "h1"), ("b", "h2")}


def test_the_order_of_rows_does_not_matter_and_a_network_pickles():
    network = Network.from_rows(SWITCHES, HOSTS, LINKS)
    turned = Network.from_rows(SWITCHES[::-1], HOSTS[::-1], LINKS[::-1])
    assert turned == network == pickle.loads(pickle.dumps(network))
    assert list(turned.hosts) == list(network.hosts)
    assert hash(turned) == hash(network)


@pytest.mark.parametrize(
    ("what", "switches", "hosts", "links"),
    [
        ("NO_SWITCH", [], [], []),
        ("BAD_NAME", change(SWITCHES, 0, name="a\x1b[2J"), HOSTS, LINKS),
        ("BAD_NAME", change(SWITCHES, 0, name=""), HOSTS, LINKS),
        ("BAD_NAME", SWITCHES, change(HOSTS, 0, name="h\u202e1"), LINKS),
        ("BAD_NAME", SWITCHES, change(HOSTS, 0, name="h" * 256), LINKS),
        ("DUPLICATE_NAME", change(SWITCHES, 1, name="a"), HOSTS, LINKS),
        ("DUPLICATE_NAME", SWITCHES, change(HOSTS, 0, name="a"), LINKS),
        ("DUPLICATE_DEVICE_ID", change(SWITCHES, 1, device_id=1), HOSTS, LINKS),
        ("DUPLICATE_ADDRESS", SWITCHES, change(HOSTS, 0, ipv4=12), LINKS),
        ("DUPLICATE_ADDRESS", SWITCHES, change(HOSTS, 0, mac=11), LINKS),
        ("TOO_MANY_LINKS", SWITCHES, HOSTS, change(LINKS, 3, id=16384)),
        ("TOO_MANY_LINKS", SWITCHES, HOSTS, change(LINKS, 0, id=0)),
        ("DUPLICATE_LINK", SWITCHES, HOSTS, change(LINKS, 0, id=2)),
        ("UNKNOWN_SWITCH", SWITCHES[:1], HOSTS[:1], LINKS),
        ("UNKNOWN_SWITCH", SWITCHES, HOSTS, [*LINKS, Link(5, "a", 3, "nowhere", 1)]),
        ("UNKNOWN_SWITCH", SWITCHES, HOSTS, [*LINKS, Link(5, "a", 3, "a", 3)]),
        ("TOO_MANY_PORTS", SWITCHES, HOSTS, change(LINKS, 0, port=512)),
        ("TOO_MANY_PORTS", SWITCHES, HOSTS, change(LINKS, 0, port=0)),
        ("DUPLICATE_PORT", SWITCHES, HOSTS, change(LINKS, 0, port=2)),
        ("ONE_WAY_LINK", SWITCHES, HOSTS, LINKS[:3]),
        ("ONE_WAY_LINK", SWITCHES, HOSTS, change(LINKS, 3, neighbor_port=3)),
        ("BAD_WEIGHT", SWITCHES, HOSTS, change(LINKS, 2, weight=0.0)),
        ("BAD_WEIGHT", SWITCHES, HOSTS, change(LINKS, 2, weight=float("nan"))),
        ("BAD_WEIGHT", SWITCHES, HOSTS, change(LINKS, 2, weight=1.1e12)),
        ("BAD_WEIGHT", SWITCHES, HOSTS, change(LINKS, 2, weight=1e305)),
        ("BAD_DEVICE_ID", change(SWITCHES, 0, device_id=-1), HOSTS, LINKS),
        ("BAD_ADDRESS", SWITCHES, change(HOSTS, 0, mac=1 << 48), LINKS),
        ("BAD_ADDRESS", SWITCHES, change(HOSTS, 0, mac=-1), LINKS),
        ("BAD_ADDRESS", SWITCHES, change(HOSTS, 0, ipv4=1 << 32), LINKS),
        ("UNATTACHED_HOST", SWITCHES, HOSTS, LINKS[1:]),
        ("UNATTACHED_HOST", SWITCHES, change(HOSTS, 0, port=3), LINKS),
        ("UNATTACHED_HOST", SWITCHES, HOSTS, change(LINKS, 0, neighbor_port=1)),
        ("UNATTACHED_HOST", SWITCHES, HOSTS, [*LINKS, Link(5, "b", 3, "h1", None)]),
        ("DISCONNECTED", SWITCHES, HOSTS, LINKS[:2]),
        ("BAD_TUNNEL", SWITCHES, HOSTS, change(LINKS, 2, tunnel=END)),
        ("BAD_TUNNEL", SWITCHES, HOSTS, change(LINKS, 3, tunnel=END)),
        ("BAD_TUNNEL", SWITCHES, HOSTS, change(LINKS, 0, tunnel=END)),
        ("BAD_TUNNEL", SWITCHES, HOSTS, change(LINKS, 1, tunnel=TunnelEnd(0, 1, 2))),
        ("BAD_TUNNEL", SWITCHES, HOSTS, change(LINKS, 1, tunnel=TunnelEnd(1, 1 << 48, 2))),
        ("BAD_TUNNEL", SWITCHES, HOSTS, change(LINKS, 1, tunnel=TunnelEnd(1, 2, -1))),
        (
            "BAD_TUNNEL",
            SWITCHES,
            HOSTS,
            change(change(LINKS, 2, tunnel=END), 3, tunnel=dataclasses.replace(END, mac=9)),
        ),
    ],
)
def test_a_network_that_cannot_be_is_refused_with_its_reason(what, switches, hosts, links):
    with pytest.raises(NetworkError) as caught:
        Network.from_rows(switches, hosts, links)
    assert caught.value.code == f"NETWORK.{what}"


def test_links_that_are_tunnels_survive_their_table_and_know_the_far_end():
    ends = [END, TunnelEnd(0x0A090002, 2, 3), TunnelEnd(0x0A090003, 4, 5)]
    links = [
        dataclasses.replace(LINKS[at], tunnel=end) for at, end in zip((2, 3, 1), ends, strict=True)
    ]
    network = Network.from_rows(SWITCHES, HOSTS, [LINKS[0], *links])
    assert network.tunnels == {
        2: Tunnel(ends[2], HOSTS[1].ipv4, sends=False),
        3: Tunnel(END, 0x0A090002, sends=True),
        4: Tunnel(ends[1], 0x0A090001, sends=True),
    }
    rows = network_to_rows(network, {"a": "", "b": ""})
    assert rows["links"][2]["tunnel"]["ipv4"] == "10.9.0.1"
    assert network_from_rows(**rows).links == network.links
    for row, code in (
        ({"ipv4": "10.9", "mac": 1, "next_hop": 2}, "BAD_ADDRESS"),
        ({"ipv4": "10.9.0.1", "mac": None, "next_hop": 2}, "BAD_TUNNEL"),
    ):
        rows["links"][2]["tunnel"] = row
        with pytest.raises(NetworkError, match=code):
            network_from_rows(**rows)


def test_of_two_cables_the_lightest_that_is_up_is_taken_and_trees_keep_to_the_first():
    second = [Link(5, "a", 511, "b", 64), Link(6, "b", 64, "a", 511)]
    network = Network.from_rows(SWITCHES, HOSTS, [*LINKS, *second])
    first = network.tree_link("a", "b")
    assert network.link("a", "b") == first and first.port != 511
    assert network.parallel() == (("a", "b"), ("b", "a"))
    assert network.words().endswith("4 links")
    # A cable that failed one way counts as failed, and both ends change to the other.
    back = network.tree_link("b", "a")
    for down in (first, back):
        links = [dataclasses.replace(x, up=x != down) for x in (*LINKS, *second)]
        failed = Network.from_rows(SWITCHES, HOSTS, links)
        assert [failed.link("a", "b"), failed.link("b", "a")] == second
        assert failed.tree_link("a", "b").port == first.port
        assert failed.graph().edges["a", "b"]["up"]
    dear = [
        dataclasses.replace(x, weight=2.0 if x in (first, back) else 1.0) for x in (*LINKS, *second)
    ]
    assert Network.from_rows(SWITCHES, HOSTS, dear).link("a", "b").port == 511


def test_a_way_of_the_heaviest_links_is_a_way_to_trees_of_both_kinds():
    line = from_graph(nx.path_graph(20), publishers=1)
    heavy = Network.from_rows(
        line.switches.values(),
        line.hosts.values(),
        [dataclasses.replace(link, weight=1e12) for link in line.links],
    )
    (tree,) = broadcast_trees(heavy)
    assert tree.edges == steiner_tree(heavy, heavy.hosts)
    assert set(heavy.hosts) <= {name for pair in tree.edges for name in pair}


@pytest.mark.parametrize("edges", [[{"u": "a", "v": None}], [{"u": None, "v": None}], [None]])
def test_a_row_of_a_tree_with_an_edge_that_lacks_an_end_is_named(edges):
    row = {"tree_id": 7, "edges": edges, "strategy": "test", "state": "active"}
    with pytest.raises(NetworkError, match=r"NOT_A_TREE.*virtual tree 7.*end"):
        tree_from_row(row)


def test_the_default_fabric_has_the_shape_of_the_text():
    network = fabric(pods=4, racks=2, hosts=2, planes=2, spines=2)
    layers = [switch.layer for switch in network.switches.values()]
    assert {layer: layers.count(layer) for layer in set(layers)} == {
        "rack": 8,
        "fabric": 8,
        "spine": 4,
    }
    assert network.subscribers() == tuple(f"h{i}" for i in range(1, 17))
    assert network.hosts["feed1"].switch == "pod1-rack1"
    graph = network.graph()
    # Racks link to every fabric switch of their pod, those to every spine of their plane.
    assert set(graph["pod3-rack2"]) == {"pod3-fabric1", "pod3-fabric2", "h11", "h12"}
    assert set(graph["plane2-spine1"]) == {f"pod{pod}-fabric2" for pod in range(1, 5)}
    assert len(network.links) == 16 + 1 + 2 * (8 * 2 + 8 * 2)


def test_a_fabric_beyond_the_limits_of_labels_and_switches_says_so():
    for sizes, what in [
        ((0, 1, 1, 1, 1), "BAD_SIZE"),
        ((1, 1, 511, 1, 1), "TOO_MANY_PORTS"),
        ((48, 20, 10, 4, 8), "TOO_MANY_LINKS"),
    ]:
        with pytest.raises(NetworkError) as caught:
            fabric(*sizes)
        assert caught.value.what == what


def test_a_graph_gives_its_largest_component_without_parallel_links():
    graph = nx.MultiDiGraph()
    graph.add_edges_from([("B n", "C"), ("C", "B n"), ("C", "C"), ("C", "h7"), ("x", "y")])
    graph.add_edge("B n", "C", weight=0.5)
    network = from_graph(graph, hosts_per_switch=2, publishers=2)
    assert list(network.switches) == ["c", "sh7", "b-n"]
    assert network.link("b-n", "c").weight == 0.5
    assert len(network.links) == 2 * 2 + 6 + 2
    assert [network.hosts[name].switch for name in network.publishers()] == ["c", "sh7"]


def test_an_empty_graph_is_no_network():
    with pytest.raises(NetworkError, match="NO_SWITCH"):
        from_graph(nx.Graph())


def test_the_same_graph_gives_the_same_network_however_it_was_built():
    edges = list(nx.random_regular_graph(3, 12, seed=4).edges)
    shuffled = [pair[::-1] for pair in edges]
    random.Random(0).shuffle(shuffled)
    assert from_graph(nx.Graph(edges)) == from_graph(nx.Graph(shuffled))


def test_a_network_and_a_tree_survive_their_tables():
    network = fabric(2, 2, 2, 2, 1)
    rows = network_to_rows(
        network, {name: f"127.0.0.1:{i}" for i, name in enumerate(network.switches)}
    )
    assert network_from_rows(rows["switches"], rows["hosts"], rows["links"]) == network
    assert rows["hosts"][0]["ipv4"] == "10.0.0.1"
    assert "tunnel" not in rows["links"][0]
    tree = broadcast_trees(network)[0]
    assert tree_from_row(tree_to_row(tree)) == tree
    with pytest.raises(NetworkError, match=r"BAD_ADDRESS.*10\.0\.0"):
        network_from_rows(
            rows["switches"],
            [{**rows["hosts"][0], "ipv4": "10.0.0"}, *rows["hosts"][1:]],
            rows["links"],
        )


def test_broadcast_trees_are_one_a_spine_and_reach_every_host():
    network = fabric(4, 2, 2, 2, 2, publishers=2)
    trees = broadcast_trees(network, count=9, first_id=5)
    assert [tree.id for tree in trees] == [5, 6, 7, 8]
    spines = []
    for tree in trees:
        graph = nx.Graph(tree.edges)
        assert nx.is_tree(graph)
        assert set(network.hosts) <= set(graph)
        assert all(network.switches[n].layer == "rack" for h in network.hosts for n in graph[h])
        inner = [node for node in graph if graph.degree(node) == 1]
        assert set(inner) == set(network.hosts)
        spines += [n for n in graph if n.startswith("plane")]
    # The first two stand on different planes, so that they share the load.
    assert spines == ["plane1-spine1", "plane2-spine1", "plane1-spine2", "plane2-spine2"]


def test_a_broadcast_tree_goes_round_a_failed_link():
    network = fabric(2, 1, 1, 2, 1)
    failed = network.link("plane1-spine1", "pod1-fabric1")
    links = change(network.links, network.links.index(failed), up=False)
    broken = Network.from_rows(network.switches.values(), network.hosts.values(), links)
    (tree, *_) = broadcast_trees(broken)
    assert ("plane1-spine1", "pod1-fabric1") not in tree.edges
    assert set(network.hosts) <= {node for pair in tree.edges for node in pair}


@pytest.mark.parametrize(
    ("what", "number", "edges"),
    [
        ("BAD_TREE_ID", 0, [("a", "b")]),
        ("BAD_TREE_ID", 1 << 30, [("a", "b")]),
        ("NOT_A_TREE", 1, []),
        ("NOT_A_TREE", 1, [("b", "a")]),
        ("NOT_A_TREE", 1, [("a", "b"), ("b", "c"), ("a", "c")]),
        # As many edges as a tree of these nodes has: frames would circle in the first three.
        ("NOT_A_TREE", 1, [("a", "b"), ("b", "c"), ("a", "c"), ("d", "e")]),
        ("NOT_A_TREE", 1, [("a", "b"), ("c", "d")]),
    ],
)
def test_what_is_no_tree_is_refused(what, number, edges):
    with pytest.raises(NetworkError) as caught:
        VirtualTree(number, frozenset(edges), "test")
    assert caught.value.what == what


def test_a_tree_over_an_edge_that_is_no_link_is_refused():
    network = Network.from_rows(SWITCHES, HOSTS, LINKS)
    assert tree_ports(network, VirtualTree(1, frozenset({("a", "b"), ("a", "h1")}), "t")) == {
        "a": 0b11,
        "b": 0b10,
    }
    with pytest.raises(NetworkError, match="UNKNOWN_LINK"):
        tree_ports(network, VirtualTree(1, frozenset({("a", "h2")}), "t"))


@examples(60)
@given(st.randoms(use_true_random=False))
def test_a_steiner_tree_joins_its_terminals_and_costs_at_most_twice_the_best(rng):
    graph = nx.path_graph(rng.randint(2, 9))
    nodes = list(graph)
    graph.add_edges_from(rng.choices(nodes, k=2) for _ in nodes)
    for _, _, data in graph.edges(data=True):
        data["weight"] = rng.randint(1, 5)
    network = from_graph(graph)
    terminals = rng.sample(network.subscribers(), rng.randint(2, len(network.subscribers())))
    edges = steiner_tree(network, terminals)
    tree = nx.Graph(edges)
    assert nx.is_tree(tree)
    assert set(terminals) <= set(tree)
    assert {node for node in tree if node in network.hosts} == set(terminals)
    assert {node for node in tree if tree.degree(node) == 1} <= set(terminals)
    # The metric closure's spanning tree is at most twice the best Steiner tree, and joining the
    # nearest terminal by a shortest path never costs more than that spanning tree.
    full = network.graph()
    closure = nx.Graph()
    for a in terminals:
        lengths = nx.single_source_dijkstra_path_length(full, a)
        closure.add_weighted_edges_from((a, b, lengths[b]) for b in terminals if b != a)
    bound = nx.minimum_spanning_tree(closure).size("weight")
    assert sum(full.edges[pair]["weight"] for pair in edges) <= bound + 1e-6


def test_free_edges_are_preferred_and_hosts_are_never_passed_through():
    network = from_graph(nx.cycle_graph(6))
    s = list(network.switches)
    far = frozenset({(s[0], s[5]), (s[4], s[5]), (s[3], s[4]), (s[2], s[3])})
    assert steiner_tree(network, [s[0], s[2]]) == {(s[0], s[1]), (s[1], s[2])}
    assert steiner_tree(network, [s[0], s[2]], free=far) == far
