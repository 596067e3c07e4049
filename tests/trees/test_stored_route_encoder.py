"""Stored routes bring a notification to exactly its receivers, on any network."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import random_network, random_publication, random_trees, relabelled

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.stored_routes import PORT_BITMAPS, STORED_ROUTES
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.header_stacks import HeaderStacks
from stackcast.udfs.trees.publisher_trees import first_trees

pytestmark = pytest.mark.unit

RANDOM = st.randoms(use_true_random=False)


@pytest.mark.integration
@pytest.mark.parametrize("encoding", STORED_ROUTES)
@examples(700)
@given(RANDOM)
def test_each_receiver_gets_it_once_and_nobody_else(encoding, rng):
    """28,000 publications in the long tier, with failed links and stored trees of any shape."""
    network = relabelled(
        random_network(rng, 10, hosts=rng.choice([1, 2, 5, 20])), STORED_ROUTES[encoding]
    )
    others = [
        VirtualTree(tree.id + 5_000, tree.edges, tree.strategy, tree.state)
        for tree in random_trees(rng, network, 6)
    ]
    trees = first_trees(network) + others
    model = ForwardingModel(network, network_tables(network, trees))
    for _ in range(10):
        publisher, receivers = random_publication(rng, network)
        most = rng.choice([6, 64])
        try:
            stacks = encoder_of(network, publisher, trees, most).encode(receivers)
        except NetworkError as error:
            assert error.what == "STACK_TOO_LONG" and encoding == "hybrid"
            continue
        got: Counter[str] = Counter()
        for stack in stacks:
            went = model.deliver(publisher, stack.labels)
            assert 0 < len(stack.labels) <= most and not went.loop
            assert went.hosts == Counter(stack.receivers)
            crossed = Counter((u, v) for u, v, _ in went.links)
            if encoding in ("destinations", "port_bitmaps"):
                # Paths to two hosts may part and meet again.
                assert crossed.keys() == set(stack.edges)
            else:
                assert crossed == Counter(stack.edges)
            got += went.hosts
        assert got == Counter(receivers)


def test_hosts_of_a_switch_are_named_by_its_ports_where_that_is_shorter():
    form = PORT_BITMAPS
    network = relabelled(fabric(1, 2, 20, 1, 1), form)
    (publisher,) = network.publishers()
    encoder = encoder_of(network, publisher, ())
    far = [name for name, host in network.hosts.items() if host.switch == "pod1-rack2"]
    device = network.switches["pod1-rack2"].device_id
    ids = [network.link("pod1-rack2", name).id for name in far]
    for many in (1, 2):
        (stack,) = encoder.encode(frozenset(far[:many]))
        words = [f"host {number}" for number in ids[:many]]
        assert [form.describe(label) for label in stack.labels] == words
    # Of as many labels hosts alone are named: they take one row, where ports take two.
    (stack,) = encoder.encode(frozenset(far[1:]))
    first, second = ",".join(map(str, range(2, 12))), ",".join(map(str, range(12, 21)))
    assert [form.describe(label) for label in stack.labels] == [
        f"switch {device}",
        f"ports {first}",
        f"ports {second}",
    ]


def test_a_host_whose_link_has_a_large_id_is_named_by_its_switch_and_port():
    form = PORT_BITMAPS
    small = fabric(1, 2, 2, 1, 1)
    links = [replace(link, id=link.id + 40_000) for link in small.links]
    network = Network.from_rows(small.switches.values(), small.hosts.values(), links, form)
    (publisher,) = network.publishers()
    model = ForwardingModel(network, network_tables(network, ()))
    for receivers in (["h1"], ["h4"], ["h1", "h3", "h4"]):
        (stack,) = encoder_of(network, publisher, ()).encode(frozenset(receivers))
        assert {form.describe(label).split()[0] for label in stack.labels} == {"switch", "ports"}
        assert model.deliver(publisher, stack.labels).hosts == Counter(receivers)


def test_as_many_labels_as_switches_parse_are_one_stack():
    form = PORT_BITMAPS
    network = relabelled(fabric(8, 16, 2, 1, 1), form)
    (publisher,) = network.publishers()
    everybody = frozenset(network.subscribers())
    (stack,) = encoder_of(network, publisher, (), form.max_labels).encode(everybody)
    assert len(stack.labels) == 2 * 8 * 16
    went = ForwardingModel(network, network_tables(network, ())).deliver(publisher, stack.labels)
    assert went.hosts == Counter(everybody)


def test_a_stack_names_a_tree_only_if_all_that_it_leads_to_receive():
    network = relabelled(fabric(2, 2, 2, 1, 1), STORED_ROUTES["hybrid"])
    (publisher,) = network.publishers()
    everybody = frozenset(network.subscribers())
    trees = first_trees(network)
    (whole,) = encoder_of(network, publisher, trees).encode(everybody)
    assert len(whole.labels) == 1
    # Of the host's whole switch, or of it alone: never of more than receive.
    for left_out in sorted(everybody):
        (stack,) = encoder_of(network, publisher, trees).encode(everybody - {left_out})
        assert stack.receivers == tuple(sorted(everybody - {left_out}))
        (hops,) = encoder_of(network, publisher, ()).encode(everybody - {left_out})
        assert 1 < len(stack.labels) < len(hops.labels)


def test_where_no_stored_tree_leads_a_host_is_cut_off_and_the_others_are_not():
    network = relabelled(fabric(1, 2, 2, 1, 1), STORED_ROUTES["tree"])
    (publisher,) = network.publishers()
    one, *others = sorted(network.subscribers())
    known = [
        tree
        for tree in first_trees(network)
        if one not in {node for pair in tree.edges for node in pair}
    ]
    with pytest.raises(NetworkError, match=f"NO_STORED_TREE.*{one}"):
        encoder_of(network, publisher, known).encode(frozenset([one, *others]))
    found = HeaderStacks(network, publisher, known).of((one, *others))
    assert [host for host, _ in found.cut_off] == [one]
    assert sorted(host for part in found.parts for host in part.receivers) == others


def test_a_tree_over_a_failed_link_is_left_alone():
    network = relabelled(fabric(1, 2, 2, 2, 1), STORED_ROUTES["hybrid"])
    (publisher,) = network.publishers()
    receivers = frozenset(network.subscribers())
    trees = first_trees(network)
    (before,) = encoder_of(network, publisher, trees).encode(receivers)
    lost = next(e for e in before.edges if e[0] in network.switches and e[1] in network.switches)
    links = [
        type(link)(**{**vars(link), "up": (link.switch, link.neighbor) != lost})
        for link in network.links
    ]
    broken = Network.from_rows(
        network.switches.values(), network.hosts.values(), links, network.labels
    )
    (after,) = encoder_of(broken, publisher, trees).encode(receivers)
    assert lost not in after.edges
    model = ForwardingModel(broken, network_tables(broken, trees))
    assert model.deliver(publisher, after.labels).hosts == Counter(receivers)
