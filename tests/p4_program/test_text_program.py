"""The text's program of virtual trees (WERNECKE 5.2.6) serves the hosts of the forwarding model."""

from __future__ import annotations

import dataclasses
import random

import p4_products
import pytest
import virtual_trees_cases as cases
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network, random_trees
from program_switches import holding, sent
from real_switch import RealSwitch
from virtual_trees_cases import datagram, plain_frame, stack_frame

from benchmarks.p4.text_program import PASSES, PROGRAM, by_hand, entries
from benchmarks.p4.workloads import ports_of_switch
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE
from stackcast.udfs.network.virtual_tree import stored
from stackcast.udfs.stacks.forwarding import ForwardingModel, forward, network_tables
from stackcast.udfs.trees.encode import Encoder

pytestmark = pytest.mark.unit

INFO, JSON = p4_products.products(PROGRAM, p4_products.TEXT)
RANDOM = st.randoms(use_true_random=False)
LIMITS = [(8, 64), (20, 16)]
"""Ports and labels of which no frame takes more passes than the software switch lets it."""


def bare() -> SimpleSwitch:
    switch = SimpleSwitch(cached=False)
    switch.load(JSON.read_bytes())
    return switch


@pytest.fixture(scope="module")
def alone():
    """A switch without entries; each test applies its own and takes them away again."""
    return bare()


@pytest.fixture(scope="module")
def pool():
    """Switches without entries, as many as a random network can have."""
    return [bare() for _ in range(8)]


def drawn(rng, ports, most):
    """Tables whose ports all take stacks, a port, and labels in any order."""
    everywhere = frozenset(range(1, ports + 1))
    tables = dataclasses.replace(cases.random_tables(rng, ports), sources=everywhere)
    return tables, rng.randint(1, ports), cases.random_stack(rng)[:most]


def counted(switch):
    return sum(switch.counter(PASSES, index)[0] for index in range(switch.counter_size(PASSES)))


@examples(100)
@given(RANDOM)
def test_it_takes_the_passes_and_sends_the_copies_that_are_counted_by_hand(alone, rng):
    ports, most = rng.choice(LIMITS)
    tables, port, labels = drawn(rng, ports, most)
    behind = datagram(rng.randbytes(rng.choice([0, 1, 9, 300])))
    with holding(alone, entries(tables, range(1, ports + 1))):
        passes, told = alone.passes, counted(alone)
        copies = sorted(alone.process(port, stack_frame(labels, behind)))
        way = by_hand(tables, port, labels)
        assert copies == [(out, stack_frame(left, behind)) for out, left in way.copies]
        assert alone.passes - passes == counted(alone) - told == way.passes


@examples(100)
@given(RANDOM)
def test_it_serves_the_ports_of_the_forwarding_model_where_stops_come_last(alone, rng):
    """As in all that the encoder makes: a clone sees only what is behind the label that made it."""
    ports, most = rng.choice(LIMITS)
    tables, port, labels = drawn(rng, ports, most)
    labels = [label for label in sorted(labels) if label > NARROW.max_id]
    with holding(alone, entries(tables, range(1, ports + 1))):
        copies = alone.process(port, stack_frame(labels, datagram()))
    wanted = forward(tables, port, tuple(labels))
    assert sorted(out for out, _ in copies) == [out for out, _ in wanted]


def test_a_stop_before_its_tree_is_not_seen(alone):
    """What the order of labels is for."""
    tree, stop = NARROW.label(TREE, 1), NARROW.label(STOP, 103)
    tables = cases.ODD_TABLES
    with holding(alone, entries(tables, range(1, 21))):
        served = [
            sorted(out for out, _ in alone.process(1, stack_frame(labels, datagram())))
            for labels in ([tree, stop], [stop, tree])
        ]
    assert served == [[5], [3, 5]]


@examples(40)
@given(RANDOM)
def test_a_stack_reaches_the_hosts_of_the_forwarding_model_once_each(pool, rng):
    network = mended(random_network(rng, 8))
    trees = stored(random_trees(rng, network, 6))
    publisher = rng.choice(network.publishers())
    others = sorted(set(network.hosts) - {publisher})
    receivers = frozenset(rng.sample(others, rng.randint(0, len(others))))
    tables = network_tables(network, trees)
    switches = dict(zip(network.switches, pool, strict=False))
    held = {name: entries(tables[name], ports_of_switch(network, name)) for name in switches}
    for name, switch in switches.items():
        switch.apply({entry.key: entry for entry in held[name]})
    host, behind = network.hosts[publisher], datagram()
    for encoding in Encoder(network, publisher, trees).encode(receivers):
        wanted = ForwardingModel(network, tables).deliver(publisher, encoding.labels)
        frame = stack_frame(encoding.labels, behind)
        got, links = sent(network, switches, host.switch, host.port, frame)
        assert sorted(name for name, _ in got.elements()) == sorted(encoding.receivers)
        assert all(copy.endswith(behind) for _, copy in got)
        assert sorted(links) == sorted((u, v) for u, v, _ in wanted.links if u in switches)
    for name, switch in switches.items():
        switch.apply(dict.fromkeys(entry.key for entry in held[name]))


@pytest.mark.parametrize(
    "frame",
    [
        plain_frame(datagram()),
        stack_frame([], datagram()),
        stack_frame([NARROW.label(TREE, 1)] * 65, datagram()),
        stack_frame([NARROW.label(TREE, 1)] * 30, b"")[:-1],
    ],
    ids=["no stack", "no labels", "65 labels", "cut within its labels"],
)
def test_a_frame_that_it_cannot_read_is_dropped(alone, frame):
    with holding(alone, entries(cases.ODD_TABLES, range(1, 21))):
        assert alone.process(1, stack_frame([NARROW.label(HOP, 103)], datagram()))
        assert alone.process(1, frame) == []


@pytest.mark.bmv2
@pytest.mark.integration
def test_bmv2_takes_as_many_passes_and_sends_the_same_copies(pytestconfig, tmp_path):
    rng = random.Random(7)
    real = RealSwitch(str(pytestconfig.getoption("--bmv2")), tmp_path, 8)
    try:
        real.load(INFO.read_text(), JSON.read_bytes())
        tables, *_ = drawn(rng, 8, 64)
        real.insert(entries(tables, range(1, 9)))
        passes = 0
        for _ in range(200):
            _, port, labels = drawn(rng, 8, 64)
            behind = datagram(rng.randbytes(20))
            way = by_hand(tables, port, labels)
            copies = real.process(port, stack_frame(labels, behind), len(way.copies), quiet=0.05)
            assert sorted(copies) == [(out, stack_frame(left, behind)) for out, left in way.copies]
            passes += way.passes
        assert sum(packets for packets, _ in real.counter(PASSES)) == passes
    finally:
        real.close()
