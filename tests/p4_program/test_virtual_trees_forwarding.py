"""The compiled program of virtual trees forwards as the forwarding model says, bit by bit."""

from __future__ import annotations

import dataclasses
import random
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import IPv4Address

import program_switches
import pytest
import virtual_trees_cases as cases
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network, random_trees
from p4_coverage import soil
from program_switches import holding, sent
from real_switch import RealSwitch
from scapy.layers.inet import IP, UDP, IPOption_Router_Alert
from scapy.layers.l2 import Ether
from tunnels import in_tunnel
from virtual_trees_cases import REASONS, datagram, modelled, plain_frame, stack_frame

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.labels import NARROW, STOP, TREE, WIDE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.tunnel import Tunnel, TunnelEnd
from stackcast.udfs.network.virtual_tree import stored
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.switches.stack_entries import LABELS_A_PASS, switch_entries
from stackcast.udfs.switches.tunnels import end_entries
from stackcast.udfs.trees.encode import Encoder

pytestmark = pytest.mark.unit

dropped = partial(program_switches.dropped, REASONS)
told = partial(program_switches.told, REASONS)

RANDOM = st.randoms(use_true_random=False)


def switch_with(entries, form=NARROW, **options) -> SimpleSwitch:
    switch = SimpleSwitch(**options)
    switch.load(program_of(form))
    switch.apply({entry.key: entry for entry in entries})
    return switch


def program_of(form) -> bytes:
    _, path = cases.program(form)
    return path.read_bytes()


@pytest.fixture(scope="module", params=[NARROW, WIDE], ids=["16 bits", "32 bits"])
def form(request):
    """The format of labels; each has a program of its own."""
    return request.param


@pytest.fixture(scope="module")
def bare(form):
    """A switch without entries; each test applies its own and takes them away again."""
    return switch_with([], form, cached=False)


@pytest.fixture(scope="module")
def odd(form):
    """A switch for `cases.odd_frames`."""
    return switch_with(cases.entries_of(cases.odd_tables(form), 20), form, cached=False)


@pytest.fixture(scope="module")
def pool(form):
    """Switches without entries, as many as a random network can have."""
    return [switch_with([], form) for _ in range(8)]


@contextmanager
def running(pool, network, trees):
    """The network's switches, each with what it should hold."""
    entries = switch_entries(network, trees)
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(holding(switch, [e for e in entries if e.switch == name]))
            for name, switch in zip(network.switches, pool, strict=False)
        }


def why(tables, port, labels):
    """The reason to drop a stack that leads nowhere."""
    if port not in tables.sources:
        return "UNKNOWN_PORT" if port % 2 else "NO_PUBLISHER"
    bits = {16: 14, 32: 30}[tables.labels.bits]
    if any(value >> bits == 0 for value in labels):
        return "TYPE_00"
    held = (None, tables.trees, tables.hops, tables.stops)
    known = any(value & (1 << bits) - 1 in held[value >> bits] for value in labels)
    return "NO_PORT" if known else "UNKNOWN_LABELS"


@examples(60)
@given(RANDOM)
def test_any_stack_is_forwarded_as_the_model_says(bare, form, rng):
    ports = rng.choice([1, 3, 8, 9, 20])
    tables, numbers = cases.random_tables(rng, ports, form), range(1, ports + 1)
    if rng.random() < 0.5:
        tables, numbers = cases.spread(rng, tables, ports)
    with holding(bare, cases.entries_of(tables, numbers)):
        for _ in range(10):
            labels = cases.random_stack(rng, form=form)
            port = rng.choice(numbers)
            behind = datagram(rng.randbytes(rng.choice([0, 1, 9, 300])))
            wanted = modelled(tables, port, labels, behind)
            copies, reasons = told(bare, port, stack_frame(labels, behind, form=form))
            assert copies == wanted
            assert reasons == ([] if wanted else [why(tables, port, labels)])


def test_all_63_ports_at_once_are_served_once_each():
    ports = range(1, 64)
    tables = dataclasses.replace(
        cases.ODD_TABLES, trees={1: (1 << 63) - 1}, sources=frozenset(ports)
    )
    switch = switch_with(cases.entries_of(tables, 63))
    for port in ports:
        behind = datagram()
        copies, _ = told(switch, port, stack_frame([NARROW.label(TREE, 1)], behind))
        assert copies == modelled(tables, port, [NARROW.label(TREE, 1)], behind)
        assert [out for out, _ in copies] == [out for out in ports if out != port]


def test_a_plain_frame_reaches_the_last_port_too(form):
    entries = cases.entries_of(cases.odd_tables(form), [1, 3, 511])
    copies, reasons = told(switch_with(entries, form), 1, plain_frame(datagram(dst="10.4.2.3")))
    assert [out for out, _ in copies] == [511] and not reasons


@pytest.mark.parametrize(
    ("labels", "passes"),
    [(1, 1), (LABELS_A_PASS, 1), (LABELS_A_PASS + 1, 2), (3 * LABELS_A_PASS, 3), (64, 8)],
)
def test_a_pass_looks_at_several_labels_and_one_more_is_for_several_subsets(
    odd, form, labels, passes
):
    before = odd.passes
    rest = [form.label(STOP, 16000)] * (labels - 1)
    odd.process(1, stack_frame([form.label(TREE, 1), *rest], datagram(), form=form))
    assert odd.passes - before == passes
    odd.process(1, stack_frame([*rest, form.label(TREE, 2)], datagram(), form=form))
    # Each of the three subsets' copies has a pass more; those without a port end before it.
    assert odd.passes - before == 2 * passes + 2


@examples(40)
@given(RANDOM)
def test_every_receiver_gets_the_plain_datagram_once_and_nobody_else(pool, form, rng):
    network = with_labels(mended(random_network(rng, 8)), form)
    trees = stored(random_trees(rng, network, 6))
    publisher = rng.choice(network.publishers())
    others = sorted(set(network.hosts) - {publisher})
    receivers = frozenset(rng.sample(others, rng.randint(0, len(others))))
    behind = datagram()
    host = network.hosts[publisher]
    with running(pool, network, trees) as switches:
        for encoding in Encoder(network, publisher, trees).encode(receivers):
            wanted = ForwardingModel(network, network_tables(network, trees)).deliver(
                publisher, encoding.labels
            )
            frame = stack_frame(encoding.labels, behind, form=form)
            got, links = sent(network, switches, host.switch, host.port, frame)
            assert got == {(name, plain_frame(behind)): 1 for name in encoding.receivers}
            crossed = [(u, v) for u, v, _ in wanted.links if u in network.switches]
            assert sorted(links) == sorted(crossed)


def with_labels(network, form):
    """The network with labels of another format; wide ones have ids that need the width."""
    if form == NARROW:
        return network
    links = [dataclasses.replace(link, id=link.id + (1 << 29)) for link in network.links]
    return Network.from_rows(network.switches.values(), network.hosts.values(), links, form)


def test_a_frame_from_a_port_above_64_goes_to_every_port(odd, form):
    labels, behind = [form.label(TREE, 1), form.label(TREE, 2)], datagram()
    whole = modelled(cases.odd_tables(form), 64, labels, behind)
    assert [port for port, _ in whole] == [3, 5, 9, 20]
    for entered in (0, 65, 257, 259, 261, 265, 276, 510):
        copies, reasons = told(odd, entered, stack_frame(labels, behind, form=form))
        assert (copies, reasons) == (whole, [])


def test_metadata_need_not_be_zeros_at_first(monkeypatch):
    rng = random.Random(6)
    switch = switch_with(cases.entries_of(cases.ODD_TABLES, 20), cached=False)
    soil(monkeypatch, switch, program_of(NARROW))
    for _, frame, reason in cases.odd_frames():
        copies, reasons = told(switch, 1, frame)
        assert (bool(copies), reasons) == (reason is None, [reason] if reason else [])
    for _ in range(200):
        labels, port, behind = cases.random_stack(rng), rng.randint(1, 20), datagram()
        wanted = modelled(cases.ODD_TABLES, port, labels, behind)
        assert told(switch, port, stack_frame(labels, behind))[0] == wanted


@examples(40)
@given(RANDOM)
def test_other_traffic_comes_to_its_host_by_ipv4_alone(pool, rng):
    network = mended(random_network(rng, 8))
    source, target = (network.hosts[rng.choice(sorted(network.hosts))] for _ in range(2))
    ends = (str(IPv4Address(host.ipv4)) for host in (source, target))
    packet = IP(src=next(ends), dst=next(ends), ttl=64, tos=rng.randint(0, 255))
    packet.options = [IPOption_Router_Alert()] * rng.choice([0, 0, 1, 10])
    packet = packet / UDP(dport=9) / rng.randbytes(30)
    frame = plain_frame(bytes(packet))
    with running(pool, network, []) as switches:
        got, links = sent(network, switches, source.switch, source.port, frame)
    ((name, copy),) = got.elements()
    assert name == target.name
    arrived = Ether(copy)
    assert arrived.dst.replace(":", "") == f"{target.mac:012x}"
    packet.ttl -= len(links)
    assert bytes(arrived[IP]) == bytes(packet)


@pytest.mark.parametrize("name", [name for name, _, _ in cases.odd_frames()])
def test_what_cannot_be_forwarded_is_dropped_and_counted_once(odd, form, name):
    ((frame, reason),) = [case for what, *case in cases.odd_frames(form) if what == name]
    copies, reasons = told(odd, 1, frame)
    assert reasons == ([reason] if reason else [])
    assert bool(copies) == (reason is None)


@examples(100)
@given(RANDOM)
def test_any_bytes_are_forwarded_or_counted_and_never_more(odd, form, rng):
    for _ in range(10):
        frame = bytearray(
            rng.choice(
                [
                    rng.randbytes(rng.randint(0, 64)),
                    stack_frame(cases.random_stack(rng, form=form), datagram(), form=form),
                    plain_frame(datagram(dst="10.1.2.3")),
                ]
            )
        )
        for _ in range(rng.randint(0, 3)):
            if frame:
                frame[rng.randrange(len(frame))] = rng.getrandbits(8)
        if rng.random() < 0.3:
            del frame[rng.randint(0, 64) :]
        if rng.random() < 0.2:
            frame[12:14] = rng.choice([b"\x99\x99", b"\x99\x9a"])
        copies, reasons = told(odd, rng.randint(1, 20), bytes(frame))
        assert len(reasons) == (0 if copies else 1)


def test_every_statement_of_the_program_is_reached():
    rng = random.Random(4)
    switch = switch_with(cases.entries_of(cases.ODD_TABLES, 20), cached=False, coverage=True)
    for _, frame, _ in cases.odd_frames():
        switch.process(1, frame)
    for prefix in ("10.1.2.3", "10.2.9.9"):
        switch.process(1, plain_frame(datagram(dst=prefix)))
    # Each position, each kind of label; subsets of ports, those of many among them.
    ports = [*range(1, 64), 100, 200, 300, 511]
    tables = dataclasses.replace(cases.ODD_TABLES, trees={n: 1 << n - 1 for n in ports})
    links = {100 + port: port for port in ports}
    tables = dataclasses.replace(tables, hops=links, stops=links)
    switch.apply({entry.key: entry for entry in cases.entries_of(tables, ports)})
    switch.process(1, plain_frame(datagram(dst="10.4.2.3")))
    for _ in range(400):
        switch.process(rng.randint(1, 63), stack_frame(cases.random_stack(rng), datagram()))
    for port in ports:
        switch.process(0, stack_frame([NARROW.label(TREE, port)], datagram()))
    switch.process(257, stack_frame([NARROW.label(TREE, 1)], datagram()))
    # A tunnel, into it and out of it, and a datagram for another switch.
    here, there = TunnelEnd(0x0A090001, 1, 2), TunnelEnd(0x0A090002, 3, 4)
    tunnel, back = Tunnel(here, there.ipv4, sends=True), Tunnel(there, here.ipv4, sends=True)
    ends = [*end_entries("s", 63, tunnel), *end_entries("s", 1, tunnel._replace(sends=False))]
    switch.apply({entry.key: entry for entry in ends})
    frame = stack_frame([NARROW.label(TREE, 63)], datagram())
    ((_, within),) = switch.process(1, frame)
    assert within == in_tunnel(tunnel, frame)
    switch.process(1, in_tunnel(back, stack_frame([NARROW.label(TREE, 2)], datagram())))
    switch.process(1, in_tunnel(back, plain_frame(datagram(dst="10.1.2.3"))))
    switch.process(1, in_tunnel(back, frame, dst="10.9.0.3"))
    # A host that may only receive, and a port with nothing behind it.
    closed = dataclasses.replace(cases.ODD_TABLES, sources=frozenset())
    switch.apply({entry.key: entry for entry in cases.entries_of(closed, 20)})
    for source in ("10.0.0.2", "10.0.0.3"):
        switch.process(2, plain_frame(datagram(src=source)))
    for port in (2, 300):
        switch.process(port, stack_frame([NARROW.label(TREE, 1)], datagram()))
    missed = {
        what
        for number, what in switch.program.coverage_points.items()
        if number not in switch.program.covered
    }
    assert not missed


@pytest.mark.bmv2
@pytest.mark.integration
def test_bmv2_forwards_bit_by_bit_as_the_model_says(form, pytestconfig, tmp_path):
    rng = random.Random(5)
    real = RealSwitch(str(pytestconfig.getoption("--bmv2")), tmp_path, 20)
    try:
        real.load(cases.program(form)[0].read_text(), program_of(form))
        tables = cases.random_tables(rng, 20, form)
        entries = cases.entries_of(tables, 20)
        real.insert(entries)
        for _ in range(300):
            labels = cases.random_stack(rng, form=form)
            port, behind = rng.randint(1, 20), datagram()
            wanted = modelled(tables, port, labels, behind)
            frame = stack_frame(labels, behind, form=form)
            assert sorted(real.process(port, frame, len(wanted))) == wanted
        real.delete(reversed(entries))
        entries = cases.entries_of(cases.odd_tables(form), 20)
        real.insert(entries)
        ours = switch_with(entries, form)
        begin = [packets for packets, _ in real.counter("ingress.dropped")]
        # An interface takes no frame without a whole Ethernet header.
        for _, frame, _ in (case for case in cases.odd_frames(form) if len(case[1]) >= 14):
            wanted = sorted(ours.process(1, frame))
            assert sorted(real.process(1, frame, len(wanted))) == wanted
        counted = [packets for packets, _ in real.counter("ingress.dropped")]
        assert [b - a for a, b in zip(begin, counted, strict=True)] == dropped(ours)
    finally:
        real.close()
