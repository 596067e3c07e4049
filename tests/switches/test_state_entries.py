"""Entries of switches that carry replicated state, from the tables of a network."""

from __future__ import annotations

from random import Random

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import random_network

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import REPLICATING
from stackcast.udfs.switches.derivation import derive
from stackcast.udfs.switches.rollout import NetworkVersion
from stackcast.udfs.switches.sources import HOST, SOURCE, TRUST
from stackcast.udfs.switches.state_entries import LEASE, PUBLISHER, TREE, state_entries

pytestmark = pytest.mark.unit


def spans(network: Network) -> dict[str, dict[str, int]]:
    """The parameters of each switch's tree."""
    rows = [entry for entry in state_entries(network) if entry.table == TREE]
    assert sorted(entry.switch for entry in rows) == sorted(network.switches)
    return {e.switch: {n: int.from_bytes(value) for n, value in e.params} for e in rows}


@examples(60)
@given(st.randoms(use_true_random=False))
def test_the_tree_joins_what_usable_links_join_and_closes_no_circle(rng):
    network = random_network(rng, 9, failing=0.2)
    held = spans(network)
    usable = nx.Graph()
    usable.add_nodes_from(network.switches)
    tree = usable.copy()
    for link in network.links:
        if link.neighbor in network.switches:
            on_tree = held[link.switch]["links"] >> link.port - 1 & 1
            back = network.link(link.neighbor, link.switch)
            assert on_tree == held[link.neighbor]["links"] >> back.port - 1 & 1
            if on_tree:
                assert network.usable(link)
                tree.add_edge(link.switch, link.neighbor)
            if network.usable(link):
                usable.add_edge(link.switch, link.neighbor)
        else:
            assert held[link.switch]["hosts"] >> link.port - 1 & 1
    assert nx.is_forest(tree)
    assert set(map(frozenset, nx.connected_components(tree))) == set(
        map(frozenset, nx.connected_components(usable))
    )
    assert {params["lease"] for params in held.values()} == {LEASE}


def test_each_port_says_who_may_send_what():
    network = random_network(Random(3), 5)
    publisher, other = (
        network.publishers()[0],
        next(host.name for host in network.hosts.values() if host.role == "subscriber"),
    )
    behind = {}
    for entry in state_entries(network):
        if entry.table == SOURCE:
            port = int.from_bytes(entry.match[0][2])
            behind[network.link_at(entry.switch, port).neighbor] = entry
    assert behind[publisher].action == PUBLISHER
    assert behind[other].action == HOST
    assert int.from_bytes(behind[other].params[0][1]) == network.hosts[other].ipv4
    assert {behind[link.neighbor].action for link in network.links if link.neighbor_port} <= {TRUST}


@pytest.mark.parametrize("program", REPLICATING)
def test_the_refresher_derives_them_for_both_programs(program):
    network = random_network(Random(4), 4, failing=0)
    source = NetworkVersion(network, [])
    wanted = derive(source, [], dict.fromkeys(network.switches, program), {program: [TREE]})
    assert sorted(e.key for e in wanted.entries) == sorted(e.key for e in state_entries(network))
    one = min(network.switches)
    rest = derive(source, [], {one: program}, {program: [TREE]})
    assert {entry.switch for entry in rest.entries} == {one}


def test_a_lease_may_be_another():
    network = random_network(Random(4), 2)
    rows = [e for e in state_entries(network, 20) if e.table == TREE]
    assert {dict(e.params)["lease"] for e in rows} == {b"\x14"}
