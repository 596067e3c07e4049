"""The benchmark of encodings counts what the forwarding model does, and says it in its document."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network

from benchmarks.encodings import clos, document, figures, large, networks, ways
from stackcast.udfs.network.encodings import ENCODINGS, label_format
from stackcast.udfs.network.stored_routes import PORT_BITMAPS
from stackcast.udfs.network.topology import fabric, jellyfish
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.source_routes import RouteEncoder

pytestmark = pytest.mark.unit

RANDOM = st.randoms(use_true_random=False)


@examples(60)
@given(RANDOM)
def test_frames_are_followed_as_the_forwarding_model_does(rng):
    plain = mended(random_network(rng, 8))
    # All but the one that needs a stored tree for each set.
    encoding = rng.choice([name for name in ENCODINGS if name != "tree"])
    network = networks.relabelled(plain, encoding)
    publisher = rng.choice(network.publishers())
    others = sorted(set(network.hosts) - {publisher})
    hosts = frozenset(rng.sample(others, rng.randint(1, len(others))))
    stacks = [each.labels for each in encoder_of(network, publisher, ()).encode(hosts)]
    tables = network_tables(network, ())
    model = ForwardingModel(network, tables)
    links = [link for stack in stacks for link in model.deliver(publisher, stack).links]
    taken = ways.by_stacks(network, tables, publisher, stacks, 78)
    size = network.labels.size
    heads = sum(2 + size * labels for *_, labels in links if labels)
    assert taken.hosts == dict.fromkeys(hosts, 1) and taken.packets == len(links)
    assert taken.header_links == heads and taken.load == heads + 92 * len(links)
    assert taken.delay > 0 and taken.queued > taken.delay


def test_copies_that_are_cut_carry_the_labels_of_their_subtree():
    """A pod's switch with two racks: each copy has its rack's labels, not the other's."""
    network = fabric(1, 3, 2, 1, 1)
    (publisher,) = network.publishers()
    hosts = [name for name, host in network.hosts.items() if host.switch != "pod1-rack1"]
    (found,) = encoder_of(network, publisher, ()).encode(frozenset(hosts))
    tables = network_tables(network, ())
    whole = ways.by_stacks(network, tables, publisher, [found.labels], 78)
    cut = ways.cut_to_subtrees(network, [(found.labels, found.edges)], whole)
    # Up, two racks of two hosts, and a separator; in whole stacks racks get each other's labels.
    assert len(found.labels) == 7
    assert whole.header == 2 + 2 * 7 and cut.header == 2 + 2 * 8
    assert whole.header_links == (2 + 14) + (2 + 12) + 2 * (2 + 8)
    assert cut.header_links == (2 + 16) + (2 + 14) + 2 * (2 + 4)
    assert whole.load - cut.load == whole.header_links - cut.header_links


@pytest.mark.parametrize("encoding", ["port", "port_reactive"])
@examples(30)
@given(RANDOM)
def test_headers_of_the_texts_figures_are_those_of_source_routes(encoding, rng):
    network = networks.relabelled(jellyfish(30, 3, seed=rng.randint(0, 99)), encoding)
    (publisher,) = network.publishers()
    hosts = networks.drawn(network, rng, rng.random())
    encoder = RouteEncoder(network, publisher, label_format(encoding, 16), 10_000)
    (stack,) = encoder.encode(hosts)
    if len(stack.labels) > 64:
        return
    went = ForwardingModel(network, network_tables(network, ())).deliver(publisher, stack.labels)
    seen = {(u, v): 2 + 2 * labels if labels else 0 for u, v, labels in went.links}
    reactive = encoding == "port_reactive"
    assert figures.headers_of(stack.edges, 2, True, reactive) == seen


def test_leaves_of_elmos_network_take_the_labels_that_the_encoder_makes():
    """A fabric whose leaves have their hosts at the ports 1 to 48, as the count supposes."""
    random = Random(3)
    network = networks.relabelled(fabric(2, 3, 48, 1, 1), "port_bitmaps")
    (publisher,) = network.publishers()
    place = {name: number for number, name in enumerate(network.subscribers())}
    for _ in range(40):
        hosts = random.sample(network.subscribers(), random.randint(1, 200))
        masks: Counter[int] = Counter()
        for host in hosts:
            masks[place[host] // 48] |= 1 << place[host] % 48
        stacks = encoder_of(network, publisher, (), PORT_BITMAPS.max_labels).encode(
            frozenset(hosts)
        )
        assert sum(clos.port_bitmaps(masks).values()) == sum(len(s.labels) for s in stacks)


@examples(100)
@given(RANDOM, st.sampled_from([0, 12]))
def test_rules_of_elmo_have_every_leaf_once_and_no_more_bits_than_may_be_too_many(rng, most):
    masks = {leaf: rng.getrandbits(48) & rng.getrandbits(48) | 1 for leaf in range(20)}
    rules = clos._merged(masks, most)
    assert sorted(leaf for leaves, _ in rules for leaf in leaves) == sorted(masks)
    for leaves, mask in rules:
        assert len(leaves) <= clos.SHARED
        for leaf in leaves:
            assert not masks[leaf] & ~mask and (masks[leaf] ^ mask).bit_count() <= most


def test_groups_of_elmos_workload_are_as_large_as_its_paper_says():
    random = Random(1)
    sizes = clos.tenants(random, 20_000)
    assert 170 < sum(sizes) / len(sizes) < 190 and min(sizes) == 10 and max(sizes) < 5_001
    drawn = [clos.members(random, size) for size in random.choices(sizes, sizes, k=20_000)]
    assert 50 < sum(drawn) / len(drawn) < 70 and min(drawn) == 5


def test_headers_counted_along_edges_are_those_that_switches_forward():
    network = jellyfish(40, 4, labels=PORT_BITMAPS)
    (publisher,) = network.publishers()
    encoder = encoder_of(network, publisher, (), PORT_BITMAPS.max_labels)
    tables = network_tables(network, ())
    for seed in range(20):
        hosts = Random(seed).sample(network.subscribers(), 1 + seed)
        stacks = encoder.encode(frozenset(hosts))
        counted = sum(large.headers_on_links(network, each) for each in stacks)
        labels = [each.labels for each in stacks]
        assert counted == ways.by_stacks(network, tables, publisher, labels, 78).header_links


def test_the_document_has_tables_of_what_was_measured():
    way = dict.fromkeys(networks.COUNTED, 1.5) | {"entries": 30.0, "churn": 0.0}
    lines = [
        {"part": "networks", "name": "way", "network": "N 1", "share": 0.3, "way": "hops"} | way,
        {"part": "networks", "name": "way", "network": "N 1", "share": 0.3, "way": "port"}
        | {"refused": "NO_LABEL"},
    ]
    text = "".join(
        f"<!-- table encodings {name} -->\n{old}\n<!-- end -->\n"
        for name, old in (("networks N 1 30", "old"), ("clos 1", "kept"))
    )
    found = document.filled(text, {"networks": lines, "clos": [], "large": [], "figures": []})
    assert "old" not in found and "kept" in found
    assert "| `hops` | 1.5 |" in found and "| `port` | `NO_LABEL` |" in found
