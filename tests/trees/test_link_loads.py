"""Bytes on links: what stacks, unicast and broadcast put on each of them."""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise
from random import Random

import pytest

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric, line
from stackcast.udfs.retuning.costs import PrunedTreeReplayer
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.link_loads import WAYS, LinkLoads
from stackcast.udfs.trees.publications import Publication

pytestmark = pytest.mark.unit

ETHERNET = 14


def some(network: Network, count: int = 40) -> list[Publication]:
    random, hosts = Random(7), network.subscribers()
    return [
        Publication(
            "feed1",
            frozenset(random.sample(hosts, random.randint(1, min(6, len(hosts))))),
            random.randint(1, 9),
            random.randint(100, 5_000),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("trees", [0, 1, 3])
def test_all_links_together_carry_what_retuning_reckons_with(trees: int):
    network = fabric(pods=3, racks=2, hosts=2, planes=2, spines=2)
    stored, published = broadcast_trees(network, trees) if trees else [], some(network)
    loads = LinkLoads(network, stored).of(published)
    costs = PrunedTreeReplayer(network, stored).replay(published)
    assert int(loads[0].sum()) == int(costs.bytes_on_links.sum()) > 0


def test_unicast_takes_a_shortest_path_a_receiver():
    network = fabric(pods=2, racks=2, hosts=2, planes=2, spines=1)
    published = some(network)
    loads = LinkLoads(network, ()).of(published)
    graph: dict[str, set[str]] = {}
    for link in network.links:
        graph.setdefault(link.switch, set()).add(link.neighbor)
        graph.setdefault(link.neighbor, set()).add(link.switch)
    far, waiting = {"feed1": 0}, deque(["feed1"])
    while waiting:
        node = waiting.popleft()
        for other in graph[node]:
            if other not in far:
                far[other] = far[node] + 1
                waiting.append(other)
    wanted = sum(
        far[host] * (each.notifications * ETHERNET + each.datagram_bytes)
        for each in published
        for host in each.receivers
    )
    assert int(loads[WAYS.index("unicast")].sum()) == wanted


def test_broadcast_crosses_each_link_to_a_host_once():
    network = fabric(pods=2, racks=2, hosts=2, planes=1, spines=1)
    published = some(network)
    loads = LinkLoads(network, ())
    row = dict(zip(loads.pairs, loads.of(published)[WAYS.index("broadcast")].tolist(), strict=True))
    size = sum(each.notifications * ETHERNET + each.datagram_bytes for each in published)
    for name in network.subscribers():
        host = network.hosts[name]
        assert row[host.switch, name] == size and row[name, host.switch] == 0
    assert row["feed1", network.hosts["feed1"].switch] == size
    assert set(row.values()) == {0, size}


def test_each_link_of_a_line_has_what_passes_it():
    network = line(3, 1, 1)
    names = {host.switch: name for name, host in network.hosts.items() if name != "feed1"}
    first, second, third = network.switches
    published = [Publication("feed1", frozenset({names[third]}), 2, 200)]
    loads = LinkLoads(network, ())
    row = dict(zip(loads.pairs, loads.of(published)[0].tolist(), strict=True))
    used = Counter({pair for pair, size in row.items() if size})
    way = ["feed1", first, second, third, names[third]]
    assert set(used) == set(pairwise(way))
    # Labels leave on the way, and the last link has a plain frame.
    sizes = [row[pair] for pair in pairwise(way)]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] == 2 * ETHERNET + 200
    assert sizes[0] - sizes[1] == sizes[1] - sizes[2] == 2 * network.labels.size


def test_what_is_no_part_of_the_network_takes_nothing():
    network = line(3, 1, 1)
    strangers = [
        Publication("nobody", frozenset({"h1"}), 1, 100),
        Publication("feed1", frozenset({"gone"}), 1, 100),
    ]
    loads = LinkLoads(network, ()).of(strangers)
    assert not loads[0].any() and not loads[1].any()
