"""Plain IPv4: every datagram comes to its host by a shortest way, and to no other."""

import dataclasses
import random
from ipaddress import IPv4Address, IPv4Network

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import random_network

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.switches.match import Match
from stackcast.udfs.switches.routes import DELIVER, SEND, routes

pytestmark = pytest.mark.unit


def looked_up(entries, address):
    """The action and parameters of the longest prefix that holds the address."""
    found = None
    for entry in entries:
        match = Match.parted(*entry.match[0])
        bits = int.from_bytes(match.value, "big")
        prefix = IPv4Network((bits, match.prefix_length))  # refuses bits outside the prefix
        if IPv4Address(address) in prefix and (found is None or match.prefix_length > found[0]):
            params = {name: int.from_bytes(value, "big") for name, value in entry.params}
            found = match.prefix_length, entry.action, params
    return found


def sent(network, tables, switch, address):
    """Where a datagram that comes in at a switch ends: links crossed, host, the MAC put in."""
    ends = {(link.switch, link.port): link for link in network.links}
    crossed = []
    for _ in network.switches:
        found = looked_up(tables[switch], address)
        if found is None:
            return crossed, None, None
        _, action, params = found
        link = ends[switch, params["port"]]
        crossed.append(link)
        if action == DELIVER:
            return crossed, link.neighbor, params["mac"]
        assert action == SEND
        switch = link.neighbor
    raise AssertionError("a datagram goes round")


@examples(60)
@given(st.randoms(use_true_random=False))
def test_a_datagram_takes_a_shortest_usable_way_to_its_host_from_everywhere(rng):
    network = random_network(rng, 8)
    tables = routes(network)
    assert sorted(network.switches) == sorted(tables)
    usable = nx.DiGraph()
    usable.add_nodes_from(network.switches)
    for link in network.links:
        if link.neighbor in network.switches and network.usable(link):
            usable.add_edge(link.switch, link.neighbor, weight=link.weight)
    for host in network.hosts.values():
        lengths = nx.single_source_dijkstra_path_length(usable.reverse(), host.switch)
        plugged = network.usable(network.link(host.switch, host.name))
        for switch in network.switches:
            crossed, end, mac = sent(network, tables, switch, host.ipv4)
            if switch not in lengths or not plugged:
                assert (crossed, end) == ([], None)
                continue
            assert (end, mac) == (host.name, host.mac)
            assert all(network.usable(link) for link in crossed)
            length = sum(link.weight for link in crossed[:-1])
            assert length == pytest.approx(lengths[switch])
    known = {host.ipv4 for host in network.hosts.values()}
    for address in (rng.getrandbits(32) for _ in range(20)):
        assert address in known or not any(looked_up(t, address) for t in tables.values())


def test_addresses_that_leave_by_one_port_share_prefixes_that_hold_no_other():
    network = fabric(pods=2, racks=2, hosts=8, planes=1, spines=1)
    tables = routes(network)
    hosts = network.hosts.values()
    for switch, entries in tables.items():
        own = sum(host.switch == switch for host in hosts)
        assert sum(entry.action == DELIVER for entry in entries) == own
        assert len(entries) < len(network.hosts)
        held = [
            IPv4Network((int.from_bytes(m.value, "big"), m.prefix_length))
            for m in (Match.parted(*entry.match[0]) for entry in entries)
        ]
        assert sum(prefix.num_addresses for prefix in held) == len(network.hosts)


def test_the_order_of_rows_has_no_effect_on_routes_of_equal_length():
    network = fabric(pods=2, racks=2, hosts=2, planes=2, spines=2)
    rows = [list(x) for x in (network.switches.values(), network.hosts.values(), network.links)]
    for part in rows:
        random.Random(3).shuffle(part)
    assert routes(Network.from_rows(*rows)) == routes(network)


def test_the_rest_of_the_network_knows_no_way_to_a_host_that_is_unplugged():
    network = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
    host = network.host("h3")
    links = [dataclasses.replace(link, up=link.neighbor != "h3") for link in network.links]
    broken = Network.from_rows(network.switches.values(), network.hosts.values(), links)
    assert all(looked_up(entries, host.ipv4) is None for entries in routes(broken).values())
