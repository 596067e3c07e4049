"""Source routes bring a notification to exactly its receivers, on any network."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph, random_network, random_publication, relabelled

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.source_routes import SOURCE_ROUTES, WIDE_SOURCE_ROUTES
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.header_stacks import HeaderStacks
from stackcast.udfs.trees.source_routes import RouteEncoder

pytestmark = pytest.mark.unit

RANDOM = st.randoms(use_true_random=False)
FORMS = (*SOURCE_ROUTES.values(), *WIDE_SOURCE_ROUTES.values())


def with_high_numbers(network: Network, rng: random.Random) -> Network:
    """The same network with other numbers of switches, up to 65,535, and of ports, up to 511."""
    numbers = rng.sample(range(1, 1 << 16), len(network.switches))
    devices = dict(zip(network.switches, numbers, strict=True))
    ports = {
        name: [0, *rng.sample(range(1, 512), max(link.port for link in network.links))]
        for name in network.switches
    }
    return Network.from_rows(
        [replace(each, device_id=devices[each.name]) for each in network.switches.values()],
        [replace(each, port=ports[each.switch][each.port]) for each in network.hosts.values()],
        [
            replace(
                link,
                port=ports[link.switch][link.port],
                neighbor_port=link.neighbor_port and ports[link.neighbor][link.neighbor_port],
            )
            for link in network.links
        ],
    )


@pytest.mark.integration
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.program)
@examples(100)
@given(RANDOM)
def test_each_receiver_gets_it_once_and_nobody_else(form, rng):
    masks = form.encoding == "bitmask"
    plain = random_network(rng, 10, hosts=2 if masks else rng.choice([1, 2, 9]))
    if form.max_device > 255:
        plain = with_high_numbers(plain, rng)
    try:
        network = relabelled(plain, form)
    except NetworkError as error:
        assert error.what == "NO_LABEL" and masks
        return
    model = ForwardingModel(network, network_tables(network, ()))
    for _ in range(10):
        publisher, receivers = random_publication(rng, network)
        most = rng.choice([4, 8, 64])
        got: Counter[str] = Counter()
        try:
            stacks = RouteEncoder(network, publisher, network.labels, most).encode(receivers)
        except NetworkError as error:
            assert error.what == "STACK_TOO_LONG"
            continue
        for stack in stacks:
            went = model.deliver(publisher, stack.labels)
            assert len(stack.labels) <= most and not went.loop
            assert Counter((u, v) for u, v, _ in went.links) == Counter(stack.edges)
            assert went.hosts == Counter(stack.receivers)
            got += went.hosts
        assert got == Counter(receivers)


def test_a_tree_of_s_switches_and_r_receivers_has_as_many_labels_as_the_thesis_counts():
    """3.5: a port for each link of the tree but the publisher's, a mask for each switch."""
    network = fabric(2, 4, 2, 2, 2)
    receivers = frozenset(network.subscribers())
    (publisher,) = network.publishers()
    counts = {}
    for encoding in SOURCE_ROUTES:
        named = relabelled(network, SOURCE_ROUTES[encoding])
        (stack,) = RouteEncoder(named, publisher, named.labels).encode(receivers)
        switches = {v for _, v in stack.edges if v in network.switches}
        counts[encoding] = len(stack.labels), len(switches)
    size, switches = counts["port"]
    assert size == switches - 1 + len(receivers)
    assert counts["hops"] == counts["port"]
    assert counts["bitmask"] == (switches, switches)


def test_a_host_that_is_far_down_the_tree_of_many_gets_its_own_shortest_way():
    """Switches 0 to 8 in a row, and a way of four links from the first to the last."""
    ring = nx.cycle_graph(12)
    network = from_graph(ring, labels=SOURCE_ROUTES["hops"])
    row = frozenset(f"h{n + 1}" for n in range(1, 9))
    (stack,) = RouteEncoder(network, "feed1", network.labels).encode(row)
    assert len(stack.labels) == 16
    model = ForwardingModel(network, network_tables(network, ()))
    stacks = RouteEncoder(network, "feed1", network.labels, 8).encode(row)
    reached: Counter[str] = Counter()
    for each in stacks:
        assert len(each.labels) <= 8
        reached += model.deliver("feed1", each.labels).hosts
    assert reached == Counter(row)
    with pytest.raises(NetworkError, match="h9' alone needs 5 labels"):
        RouteEncoder(network, "feed1", network.labels, 4).encode(frozenset({"h9"}))


def test_header_stacks_are_those_of_the_networks_encoding():
    network = relabelled(fabric(2, 2, 2, 1, 1), SOURCE_ROUTES["mixed"])
    (publisher,) = network.publishers()
    receivers = tuple(sorted(network.subscribers()))
    found = HeaderStacks(network, publisher, ()).of(receivers)
    (part,) = found.parts
    model = ForwardingModel(network, network_tables(network, ()))
    assert model.deliver(publisher, part.labels).hosts == Counter(receivers)
