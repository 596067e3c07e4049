"""Retuning says in which encoding what was published would load links least."""

from __future__ import annotations

from random import Random

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network, relabelled

from stackcast.udfs.network.encodings import ROUTES
from stackcast.udfs.network.topology import fabric, jellyfish
from stackcast.udfs.retuning.comparison import Record
from stackcast.udfs.retuning.encodings import ENCODINGS, encoding_costs, least
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publications import Publication
from stackcast.udfs.trees.publisher_trees import first_trees

pytestmark = pytest.mark.unit

ROOM = 10_000


def published(network, share: float) -> list[Publication]:
    random = Random(4)
    (publisher,) = network.publishers()
    hosts = network.subscribers()
    return [
        Publication(publisher, frozenset(random.sample(hosts, round(share * len(hosts)))), 3, 300)
        for _ in range(10)
    ]


def room(network, rows: int) -> dict[str, int]:
    return dict.fromkeys(network.switches, rows)


def test_bytes_on_links_are_counted_frame_by_frame():
    """One receiver three links away: its frames carry two labels, then one, then none."""
    network = fabric(1, 2, 1, 1, 1)
    (publisher,) = network.publishers()
    away = next(name for name, host in network.hosts.items() if host.switch == "pod1-rack2")
    one = [Publication(publisher, frozenset([away]), 5, 500)]
    found = {each.encoding: each for each in encoding_costs(network, (), one, room(network, ROOM))}
    # From the publisher, to the pod's switch, to the rack and to the host: 14 and 100 bytes each.
    assert found["destinations"].bytes == 5 * (4 * 114 + 3 * (2 + 2))
    assert found["port"].bytes == found["hops"].bytes == 5 * (4 * 114 + 3 * 2 + 2 * (3 + 2 + 1))
    assert found["bitmask"].bytes == 5 * (4 * 114 + 3 * 2 + 3 * (3 + 2 + 1))
    assert {each.frames for each in found.values()} == {5}


@pytest.mark.parametrize("encoding", ROUTES)
@examples(20)
@given(st.randoms(use_true_random=False))
def test_a_record_costs_what_its_frames_take_in_any_encoding(encoding, rng):
    plain = mended(random_network(rng, 8, hosts=rng.choice([1, 2, 4])))
    network = relabelled(plain, ROUTES[encoding])
    publisher, trees = rng.choice(network.publishers()), first_trees(network)
    others = sorted(set(network.subscribers()) - {publisher})
    sets = [frozenset(rng.sample(others, rng.randint(1, len(others)))) for _ in range(3)]
    record = Record(network, [Publication(publisher, each, 2, 90) for each in sets])
    model = ForwardingModel(network, network_tables(network, trees))
    encoder = encoder_of(network, publisher, trees)
    wanted = 0
    for each in record.publications:
        for stack in encoder.encode(each.receivers):
            links = model.deliver(publisher, stack.labels).links
            heads = sum(2 + network.labels.size * labels for *_, labels in links if labels)
            wanted += each.notifications * (14 * len(links) + heads)
            wanted += each.datagram_bytes * len(links)
    assert record.replay([tree.edges for tree in trees]).bytes == wanted


def test_what_has_no_labels_or_no_room_is_not_offered():
    network = jellyfish(260, 3)
    costs = encoding_costs(network, (), published(network, 0.1), room(network, 100))
    of = {each.encoding: each.error for each in costs}
    assert "NO_LABEL" in of["bitmask"] and "NO_LABEL" in of["mixed"]
    assert "261 rows, but has room for 100" in of["destinations"]
    assert least(costs).encoding == "hops" and not of["hops"]


def test_where_narrow_labels_have_no_room_wide_ones_are_offered():
    """`port` has 8 bits for a switch in labels of 16, and 16 bits in labels of 32."""
    bits = {}
    for switches in (100, 260):
        network = jellyfish(switches, 3)
        costs = encoding_costs(network, (), published(network, 0.1), room(network, 100))
        (port,) = (each for each in costs if each.encoding == "port")
        assert port.bytes and not port.error
        bits[switches] = port.bits
    assert bits == {100: 16, 260: 32}


def test_labels_of_hosts_are_offered_where_switches_have_room_for_them():
    """Several at a rack take fewer labels as a bitmap of its ports, one alone its own."""
    network = fabric(4, 4, 8, 2, 2)
    publications = published(network, 0.3)
    trees = broadcast_trees(network)
    costs = encoding_costs(network, trees, publications, room(network, ROOM))
    assert [each.encoding for each in costs] == ["virtual_trees", *ENCODINGS]
    assert least(costs).encoding == "port_bitmaps"
    apart = fabric(4, 4, 1, 2, 2)
    found = encoding_costs(apart, trees[:0], published(apart, 0.3), room(apart, ROOM))
    assert least(found).encoding == "destinations"
    tight = encoding_costs(network, trees, publications, room(network, 50))
    assert least(tight).encoding not in ("destinations", "port_bitmaps", "virtual_trees")


def test_trees_that_serve_what_is_published_are_as_they_should_be():
    """Everybody receives: one label of the broadcast tree does it."""
    network = fabric(4, 4, 8, 2, 2)
    publications = published(network, 1.0)
    costs = encoding_costs(network, broadcast_trees(network), publications, room(network, ROOM))
    assert least(costs).encoding == "virtual_trees"
