"""The way of a frame in words is the way that the forwarding model takes it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network, relabelled

from stackcast.udfs.network.encodings import ROUTES
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.forwarding import ForwardingModel, forward, network_tables, path_of_stack
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.header_stacks import HeaderStacks
from stackcast.udfs.trees.publisher_trees import first_trees

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=2, racks=2, hosts=2, planes=1, spines=2)
TREES = broadcast_trees(NETWORK)
MODEL = ForwardingModel(NETWORK, network_tables(NETWORK, TREES))
(PUBLISHER,) = NETWORK.publishers()


@given(st.sets(st.sampled_from(NETWORK.subscribers()), min_size=1), st.booleans())
def test_each_receiver_has_a_path_of_links_that_carried_the_frame(receivers, with_trees):
    stacks = HeaderStacks(NETWORK, PUBLISHER, TREES if with_trees else ())
    for part in stacks.of(tuple(sorted(receivers))).parts:
        way = path_of_stack(NETWORK, TREES, PUBLISHER, part.labels)
        links = {(u, v) for u, v, _ in MODEL.deliver(PUBLISHER, part.labels).links}
        assert {(u, v) for u, v, _ in way.links} == links
        assert way.paths.keys() == set(part.receivers)
        assert set(way.copies.values()) == {1}
        for host, path in way.paths.items():
            assert (path[0], path[-1]) == (PUBLISHER, host)
            assert set(pairwise(path)) <= links
            assert len(set(path)) == len(path)


def test_labels_say_what_they_do():
    labels = NETWORK.labels
    link = NETWORK.links[0]
    (tree,) = TREES
    where = f"from {link.switch} to {link.neighbor} by port {link.port}"
    way = path_of_stack(
        NETWORK,
        TREES,
        PUBLISHER,
        [labels.label(1, tree.id), labels.label(2, link.id), labels.label(3, link.id)],
    )
    assert way.labels == (
        f"tree {tree.id}: the stored tree ({tree.strategy}, over {len(tree.edges)} links)",
        f"hop {link.id}: a copy {where}",
        f"stop {link.id}: no copy {where}",
    )
    unknown = path_of_stack(NETWORK, (), PUBLISHER, [labels.label(1, 9), labels.label(2, 16_000)])
    assert unknown.labels == (
        "tree 9: the stored tree (unknown)",
        "hop 16000: no such link in the network",
    )
    assert not unknown.copies


@pytest.mark.parametrize("encoding", ROUTES)
@examples(20)
@given(st.randoms(use_true_random=False))
def test_a_label_leaves_the_stack_where_it_is_said_to(encoding, rng):
    network = relabelled(mended(random_network(rng, 8, hosts=2)), ROUTES[encoding])
    publisher, trees = rng.choice(network.publishers()), first_trees(network)
    others = sorted(set(network.hosts) - {publisher})
    receivers = frozenset(rng.sample(others, rng.randint(1, len(others))))
    tables = network_tables(network, trees)
    behind = {(link.switch, link.port): link.neighbor for link in network.links}
    for stack in encoder_of(network, publisher, trees).encode(receivers):
        told = path_of_stack(network, trees, publisher, stack.labels)
        # Where a frame came with a label, and a copy went on without it.
        lost: set[tuple[int, str]] = set()
        waiting = [(publisher, network.hosts[publisher].switch, stack.labels)]
        while waiting:
            came_from, switch, labels = waiting.pop()
            port = network.link(switch, came_from).port
            for out, left in forward(tables[switch], port, labels):
                lost |= {(label, switch) for label in labels if label not in (left or ())}
                if left is not None:
                    waiting.append((switch, behind[switch, out], left))
        for label, switch in zip(stack.labels, told.leave_at, strict=True):
            assert bool(switch) == (network.labels.meaning(label).of != "tree")
            assert not switch or (label, switch) in lost
