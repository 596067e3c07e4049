"""The headers that benchmarks compare with have the sizes that their definitions say."""

from functools import cache

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph

from benchmarks.trees.other_encodings import (
    BIT_STRINGS,
    Headers,
    Spread,
    bare_bits,
    bier,
    elmo,
    port_bitmaps,
    spread,
)
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.encode import Encoder

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def network():
    """Two pods of two racks of two hosts, a feed on the first rack: 9 hosts."""
    return fabric(2, 2, 2, 1, 1)


@cache
def chain(switches):
    return from_graph(nx.path_graph(switches))


def test_bier_takes_the_shortest_string_for_all_hosts_and_twelve_bytes(network):
    assert bier(network, {"h1"}) == bier(network, set(network.subscribers())) == Headers((20,))
    large = chain(200)
    assert bier(large, {"h1"}).sizes == (12 + 32,)
    assert bare_bits(large, {"h1"}).sizes == (26,)
    assert bare_bits(large, ()) == bier(large, ()) == Headers(())


@examples(50)
@given(st.sets(st.integers(1, 300), min_size=1), st.sampled_from(BIT_STRINGS))
def test_bier_sends_a_frame_for_each_set_with_a_receiver(numbers, bits):
    large = chain(300)
    hosts = list(large.hosts)
    headers = bier(large, {hosts[number - 1] for number in numbers}, bits)
    sets = {(number - 1) // bits for number in numbers}
    assert headers.sizes == (12 + bits // 8,) * len(sets)
    assert headers.total == len(sets) * headers.largest


def test_a_bit_string_of_another_length_is_refused(network):
    with pytest.raises(ValueError, match="RFC 8296"):
        bier(network, {"h1"}, 100)


@pytest.mark.parametrize(
    ("receivers", "bits"),
    [
        # The first rack has a feed and two hosts: bitmaps of hosts have three bits.
        ("h2", 3 + 1),
        # Up to the pod (2 racks), then down to one rack of four: 3 + 1 bits, id 2 + 1.
        ("h3", 4 + (2 + 1) + (4 + 3)),
        # Over the core (2 pods), one pod's rule (2 + 1 bits, id 1 + 1), one rack's.
        ("h8", 4 + 3 + 2 + (3 + 2) + (4 + 3)),
        # Both racks of the other pod in full share one bitmap, with two ids.
        ("h5 h6 h7 h8", 4 + 3 + 2 + (3 + 2) + (4 + 3 + 3)),
        # Different hosts of two racks take two bitmaps.
        ("h5 h8", 4 + 3 + 2 + (3 + 2) + 2 * (4 + 3)),
    ],
)
def test_elmo_has_a_rule_a_layer_on_the_way_up_and_shared_bitmaps_down(network, receivers, bits):
    assert elmo(network, "feed1", receivers.split()).sizes == (-(-bits // 8),)


def test_elmo_needs_a_fabric_and_receivers(network):
    assert elmo(network, "feed1", ()) == Headers(())
    with pytest.raises(ValueError, match="rack"):
        elmo(from_graph(nx.path_graph(3)), "feed1", {"h2"})


def test_port_bitmaps_have_a_rule_for_each_bitmap_of_the_delivery_tree():
    # A star: its middle has six ports, so bitmaps have six bits; ids of five switches three.
    star = from_graph(nx.star_graph(4))
    edges = Encoder(star, "feed1", []).encode(frozenset({"h2", "h3", "h5"}))[0].edges
    # s0 has a bitmap of its own; the three others send out of the same port, and share one.
    assert port_bitmaps(star, edges).sizes == (-(-(2 * (6 + 1) + 4 * (3 + 1)) // 8),)
    assert port_bitmaps(star, ()) == Headers(())


def test_port_bitmaps_are_counted_by_layer(network):
    edges = Encoder(network, "feed1", []).encode(frozenset({"h3"}))[0].edges
    # Racks have four ports at most, fabric switches three; there are four and two of them.
    racks, pods = 2 * (4 + 1) + 2 * (2 + 1), (3 + 1) + (1 + 1)
    assert port_bitmaps(network, edges).sizes == (-(-(racks + pods) // 8),)


def test_a_spread_is_mean_and_maximum():
    assert spread([2, 4, 9]) == Spread(5.0, 9)
    with pytest.raises(ValueError, match="no publication"):
        spread([])
