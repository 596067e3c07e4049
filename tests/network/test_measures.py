"""The figures of a network are those that networkx finds."""

import dataclasses
import random

import networkx as nx
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from networks import from_graph

from stackcast.udfs.network import measures
from stackcast.udfs.network.labels import WIDE
from stackcast.udfs.network.measures import measure
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric, jellyfish

pytestmark = pytest.mark.unit


@examples(40)
@example(700, random.Random(1))
@given(st.integers(1, 90), st.randoms(use_true_random=False))
def test_degrees_and_diameter_are_those_of_the_graph(size, rng):
    graph = nx.path_graph(size)
    graph.add_edges_from(
        (rng.randrange(size), rng.randrange(size)) for _ in range(rng.choice([0, 1, size // 4]))
    )
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    result = measure(from_graph(graph, hosts_per_switch=2, publishers=3))
    degrees = [degree for _, degree in graph.degree]
    assert (result.least_degree, result.largest_degree) == (min(degrees), max(degrees))
    assert result.mean_degree == pytest.approx(sum(degrees) / size)
    assert (result.diameter, result.exact) == (nx.diameter(graph), True)
    assert (result.switches, result.hosts, result.publishers) == (size, 2 * size + 3, 3)
    assert result.links == 2 * graph.number_of_edges() + 2 * size + 3


def test_the_fabric_of_the_text():
    result = measure(fabric(8, 4, 2, 2, 2))
    assert (result.diameter, result.least_degree, result.largest_degree) == (4, 2, 8)
    assert result.most_ports == 8
    assert (result.lightest, result.heaviest, result.failed) == (1.0, 1.0, 0)


def broken(network: Network, *ends: tuple[str, str]) -> Network:
    links = [
        dataclasses.replace(link, up=False) if (link.switch, link.neighbor) in ends else link
        for link in network.links
    ]
    return Network.from_rows(network.switches.values(), network.hosts.values(), links)


def test_a_diameter_goes_round_failed_links_and_is_none_where_they_part_the_network():
    ring = from_graph(nx.cycle_graph(6))
    once = measure(broken(ring, ("s0", "s1")))
    # A cable that failed one way counts as failed.
    assert (once.diameter, once.failed, once.least_degree) == (5, 2, 2)
    twice = measure(broken(ring, ("s0", "s1"), ("s3", "s4")))
    assert (twice.diameter, twice.failed) == (None, 4)


def test_where_an_exact_diameter_would_take_long_it_is_said_to_be_a_bound(monkeypatch):
    monkeypatch.setattr(measures, "_MOST_WORK", 1)
    result = measure(from_graph(nx.path_graph(40)))
    assert (result.diameter, result.exact) == (39, False)
    assert measure(from_graph(nx.path_graph(1))).exact


@pytest.mark.long
def test_ten_thousand_switches_are_measured():
    result = measure(jellyfish(10_000, 16, hosts_per_switch=2, seed=1, labels=WIDE))
    assert (result.diameter, result.exact, result.mean_degree) == (5, True, 16.0)
