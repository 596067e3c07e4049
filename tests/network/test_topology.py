"""Networks from sizes and graphs: what they are like, and what is said of what was left out."""

import os
import subprocess
import sys

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph
from paths import ROOT

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.jellyfish import jellyfish_links
from stackcast.udfs.network.labels import WIDE
from stackcast.udfs.network.topology import fabric, jellyfish, read_graph

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("switches", range(3, 13))
def test_every_small_jellyfish_is_connected_and_regular(switches: int):
    for degree in range(2, switches):
        for seed in range(10):
            links = jellyfish_links(switches, degree, seed)
            graph = nx.Graph(links)
            assert nx.is_connected(graph)
            assert graph.number_of_nodes() == switches
            # Without loops and parallel links; the odd port stays free.
            assert graph.number_of_edges() == len(links) == switches * degree // 2
            assert max(dict(graph.degree).values()) == degree


@examples(40)
@given(st.integers(10, 120), st.integers(2, 9), st.integers(0, 1 << 32))
def test_any_jellyfish_is_connected_and_regular(switches: int, degree: int, seed: int):
    graph = nx.Graph(jellyfish_links(switches, degree, seed))
    assert nx.is_connected(graph)
    assert sorted(dict(graph.degree).values())[1:] == [degree] * (switches - 1)
    assert graph.number_of_edges() == switches * degree // 2


@pytest.mark.parametrize(("switches", "degree"), [(1, 0), (2, 1)])
def test_the_smallest_jellyfish_is_one_switch_or_two(switches: int, degree: int):
    network = jellyfish(switches, degree, hosts_per_switch=2)
    assert len(network.switches) == switches
    assert len(network.links) == 2 * switches + 1 + 2 * (switches - 1)


@pytest.mark.parametrize(("switches", "degree"), [(0, 0), (3, 1), (4, 4), (4, 5), (5, -1), (2, 0)])
def test_a_jellyfish_that_cannot_be_is_refused(switches: int, degree: int):
    with pytest.raises(NetworkError, match="BAD_SIZE"):
        jellyfish(switches, degree)


@pytest.mark.integration
def test_a_jellyfish_is_the_same_on_any_machine():
    # Known links: a change of these changes networks that people have made by name and seed.
    assert jellyfish_links(8, 3, 1) == [
        (0, 3),
        (0, 5),
        (0, 7),
        (1, 4),
        (1, 6),
        (1, 7),
        (2, 3),
        (2, 4),
        (2, 6),
        (3, 5),
        (4, 7),
        (5, 6),
    ]
    program = (
        "from stackcast.udfs.network.topology import jellyfish; n = jellyfish(60, 5, seed=3)\n"
    )
    program += "print([(x.switch, x.port, x.neighbor) for x in n.links])"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_seeds_make_different_networks():
    assert jellyfish_links(20, 4, 1) != jellyfish_links(20, 4, 2)


def test_each_network_takes_the_labels_that_are_asked_for():
    for network in (
        fabric(2, 1, 1, 1, 1, labels=WIDE),
        jellyfish(6, 3, labels=WIDE),
        from_graph(nx.path_graph(3), labels=WIDE),
    ):
        assert network.labels == WIDE


def test_a_network_over_14_bits_of_links_needs_wide_labels():
    with pytest.raises(NetworkError, match=r"TOO_MANY_LINKS.*16383.*32-bit labels"):
        jellyfish(1024, 16)
    assert len(jellyfish(1024, 16, labels=WIDE).links) == 2 * 8 * 1024 + 1024 + 1


def test_a_switch_with_too_many_neighbors_is_named_with_what_to_do():
    with pytest.raises(
        NetworkError, match=r"TOO_MANY_PORTS.*needs 515 ports.*reduce the number of hosts"
    ) as error:
        from_graph(nx.star_graph(512), hosts_per_switch=2)
    assert error.value.switch == "s0"
    assert "513" not in str(error.value).split("needs")[0]


def test_what_a_graph_loses_is_named():
    graph = nx.MultiDiGraph()
    graph.add_edges_from([("a", "b"), ("b", "a"), ("b", "c"), ("c", "c"), ("c", "c")])
    graph.add_edges_from([("x", "y"), ("y", "x", {"weight": 2}), ("a", "b"), ("b", "a")])
    graph.add_node("alone", label="Far \x1b[1m away")
    read = read_graph(graph)
    assert read.switches == {"a": "a", "b": "b", "c": "c"}
    assert read.dropped.lines() == (
        "2 smaller parts of the graph ignored, with 3 of 6 nodes and 1 link: x, y, "
        r"Far \x1b[1m away",
        "1 parallel edge replaced by the lightest: a - b",
        "2 edges from a node to itself ignored: c",
        "1 pair of opposite edges with different weights or states replaced by the lighter "
        "edge that is up: x - y",
        "1 one-way edge turned into bidirectional links: b - c",
    )


def test_a_line_about_a_graph_lists_few_names():
    graph = nx.Graph([("a", "b")])
    graph.add_nodes_from(f"alone{number}" for number in range(1, 31))
    (line,) = read_graph(graph).dropped.lines()
    assert line.startswith("30 smaller parts of the graph ignored, with 30 of 32 nodes")
    assert line.endswith(
        ": alone1, alone2, alone3, alone4, alone5, alone6, alone7, alone8 and 22 more"
    )


def test_parallel_edges_are_cables_of_their_own_where_asked_for():
    graph = nx.MultiGraph()
    graph.add_edges_from([("b", "a", {"weight": 3}), ("b", "c", {}), ("a", "b", {"weight": 2})])
    graph.add_edge("a", "b", up=False)
    read = read_graph(graph, parallel=True)
    cables = [
        (link.switch, link.neighbor, link.weight, link.up)
        for link in read.network.links
        if link.neighbor in read.network.switches
    ]
    assert cables[:6:2] == [("a", "b", 2, True), ("a", "b", 3, True), ("a", "b", 1, False)]
    assert len({link.port for link in read.network.links if link.switch == "a"}) == 5
    assert read.dropped.lines() == ()
    # Edges that go opposite ways are one cable.
    both = nx.MultiDiGraph([("a", "b"), ("b", "a"), ("b", "a")])
    assert len(read_graph(both, parallel=True).network.parallel()) == 2
    assert read_graph(both).dropped.parallel == ("a - b",)


def test_nothing_is_said_of_a_graph_that_is_a_network():
    assert read_graph(nx.cycle_graph(4)).dropped.lines() == ()


def test_of_parallel_edges_the_lightest_that_is_up_counts():
    graph = nx.MultiGraph()
    graph.add_edge("a", "b", weight=1, up="false")
    graph.add_edge("a", "b", weight="3")
    graph.add_edge("a", "b", weight=2.5, up=True)
    graph.add_edge("b", "c", weight=4, up=0)
    network = from_graph(graph)
    assert (network.link("a", "b").weight, network.link("b", "a").up) == (2.5, True)
    failed = network.link("b", "c")
    assert (failed.weight, failed.up, network.usable(failed)) == (4.0, False, False)


@pytest.mark.parametrize("weight", ["heavy", 0, -1, float("nan"), [1], "1e13"])
def test_a_weight_that_is_none_is_refused(weight: object):
    graph = nx.Graph([("a", "b")])
    graph.edges["a", "b"]["weight"] = weight
    with pytest.raises(NetworkError, match="BAD_WEIGHT"):
        from_graph(graph)


def test_switches_of_one_name_are_told_apart_and_none_is_called_like_a_host():
    graph = nx.path_graph(6)
    for node, name in enumerate(["New York", "new york", "new-york-2", "H1", "feed1", "None"]):
        graph.nodes[node]["label"] = name
    network = from_graph(graph)
    assert list(network.switches) == [
        "new-york",
        "new-york-2",
        "new-york-2-2",
        "sh1",
        "sfeed1",
        "none",
    ]
