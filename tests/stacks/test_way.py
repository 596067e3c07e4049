"""The way of a frame in words is the way that the forwarding model takes it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from udfs.network.topology import fabric
from udfs.stacks.forwarding import ForwardingModel, network_tables, path_of_stack
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.header_stacks import HeaderStacks

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
        "hop 16000: no link of the network",
    )
    assert not unknown.copies
