"""Retuning says in which encoding what was published would load links least."""

from __future__ import annotations

from random import Random

import pytest

from udfs.network.topology import fabric, jellyfish
from udfs.retuning.encodings import ENCODINGS, encoding_costs, least
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.publications import Publication

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


def test_what_has_no_labels_or_no_room_is_not_offered():
    network = jellyfish(260, 3)
    costs = encoding_costs(network, (), published(network, 0.1), room(network, 100))
    of = {each.encoding: each.error for each in costs}
    assert "NO_LABEL" in of["port"] and "NO_LABEL" in of["bitmask"]
    assert "261 rows and has room for 100" in of["destinations"]
    assert least(costs).encoding == "hops" and not of["hops"]


def test_destinations_are_offered_where_switches_have_room_for_them():
    network = fabric(4, 4, 8, 2, 2)
    publications = published(network, 0.3)
    trees = broadcast_trees(network)
    costs = encoding_costs(network, trees, publications, room(network, ROOM))
    assert [each.encoding for each in costs] == ["virtual_trees", *ENCODINGS]
    assert least(costs).encoding == "destinations"
    tight = encoding_costs(network, trees, publications, room(network, 50))
    assert least(tight).encoding not in ("destinations", "virtual_trees")


def test_trees_that_serve_what_is_published_are_as_they_should_be():
    """Everybody receives: one label of the broadcast tree does it."""
    network = fabric(4, 4, 8, 2, 2)
    publications = published(network, 1.0)
    costs = encoding_costs(network, broadcast_trees(network), publications, room(network, ROOM))
    assert least(costs).encoding == "virtual_trees"
