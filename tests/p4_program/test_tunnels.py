"""Islands of P4 switches, joined through networks that know nothing of stacks (WERNECKE 3.4.1)."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from functools import partial

import program_switches
import pytest
import routes_cases as cases
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from networks import mended, random_network, relabelled
from program_switches import holding
from routes_cases import stack_frame
from tunnels import end_of, in_tunnel, routed, some_tunnels, tunnelled
from virtual_trees_cases import datagram, plain_frame

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.encodings import ALL
from stackcast.udfs.network.labels import NARROW
from stackcast.udfs.network.network import Link, Network
from stackcast.udfs.network.topology import line
from stackcast.udfs.network.tunnel import TUNNEL_PORT, Tunnel, TunnelEnd
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publisher_trees import first_trees

pytestmark = pytest.mark.unit

told = partial(program_switches.told, cases.REASONS)

RANDOM = st.randoms(use_true_random=False)


def loaded(form) -> SimpleSwitch:
    switch = SimpleSwitch()
    switch.load(cases.program(form))
    return switch


@pytest.fixture(scope="module", params=ALL, ids=lambda form: form.program)
def form(request):
    """The format of labels; each has a program of its own."""
    return request.param


@pytest.fixture(scope="module")
def pool(form):
    """Switches without entries, as many as a random network can have."""
    return [loaded(form) for _ in range(4)]


def walked(
    network: Network, switches: dict[str, SimpleSwitch], switch: str, port: int, frame: bytes
) -> tuple[list[tuple[str, bytes]], list[tuple[int, bytes]]]:
    """What hosts get of a frame, and what each link carries, sorted; between the ends of a tunnel
    are routers."""

    def between(link: Link, copy: bytes) -> bytes:
        if link.tunnel is None:
            return copy
        back = network.link_at(link.neighbor, link.neighbor_port)
        return routed(copy, network.tunnels[link.id], back.tunnel)

    crossed = [*program_switches.crossings(network, switches, switch, port, frame, between)]
    got = [(link.neighbor, copy) for link, copy in crossed if link.neighbor_port is None]
    return sorted(got), sorted((link.id, copy) for link, copy in crossed)


def sent_by(network, pool, frames):
    """What becomes of frames ``(switch, port, frame)`` of a network, one after the other."""
    entries = switch_entries(network, first_trees(network))
    with ExitStack() as stack:
        switches = {
            name: stack.enter_context(holding(switch, [e for e in entries if e.switch == name]))
            for name, switch in zip(network.switches, pool, strict=False)
        }
        return [walked(network, switches, *frame) for frame in frames]


@pytest.mark.integration
@examples(20)
@given(RANDOM)
def test_hosts_get_by_tunnels_what_they_get_without_bit_by_bit(pool, form, rng):
    """And each tunnel carries the very frame that the cable carried, in a datagram."""
    network = mended(random_network(rng, 4))
    assume(len(network.switches) > 1)
    network = relabelled(network, form)
    publisher = rng.choice(network.publishers())
    host = network.hosts[publisher]
    others = sorted(set(network.hosts) - {publisher})
    encoder = encoder_of(network, publisher, first_trees(network))
    behind = datagram(rng.randbytes(rng.choice([8, 40, 300])))
    frames, expected = [], []
    for receivers in (others, rng.sample(others, rng.randint(1, len(others)))):
        for encoding in encoder.encode(frozenset(receivers)):
            frames.append((host.switch, host.port, stack_frame(form, encoding.labels, behind)))
            expected.append(sorted((name, plain_frame(behind)) for name in encoding.receivers))
    # Plain traffic crosses as well.
    source, target = rng.choice(others), rng.choice(others)
    plain = datagram(src=network.hosts[source].ipv4, dst=network.hosts[target].ipv4, chksum=None)
    frames.append((network.hosts[source].switch, network.hosts[source].port, plain_frame(plain)))
    joined = some_tunnels(network, rng)
    by_cable, by_tunnel = sent_by(network, pool, frames), sent_by(joined, pool, frames)
    assert [got for got, _ in by_tunnel[:-1]] == expected
    for (got, carried), (same, within) in zip(by_cable, by_tunnel, strict=True):
        assert same == got
        assert within == sorted(
            (number, in_tunnel(joined.tunnels[number], copy))
            if number in joined.tunnels
            else (number, copy)
            for number, copy in carried
        )


@pytest.fixture(scope="module")
def islands(form):
    """Two switches with a tunnel between them, and the second of them with its entries."""
    network = relabelled(line(2, 1, 1, NARROW), form)
    (there,) = (x for x in network.links if (x.switch, x.neighbor) == ("s1", "s2"))
    network = tunnelled(network, {there.id})
    switch = loaded(form)
    trees = first_trees(network)
    entries = switch_entries(network, trees)
    switch.apply({e.key: e for e in entries if e.switch == "s2"})
    (publisher,) = network.publishers()
    receiver = next(n for n in network.subscribers() if network.hosts[n].switch == "s2")
    first = loaded(form)
    with holding(first, [e for e in entries if e.switch == "s1"]):
        (stack,) = encoder_of(network, publisher, trees).encode(frozenset({receiver}))
        host = network.hosts[publisher]
        ((out, copy),) = first.process(host.port, stack_frame(form, stack.labels, datagram()))
    assert out == there.port
    back = network.link_at("s2", there.neighbor_port)
    return network, switch, back, copy, network.hosts[receiver]


def test_only_datagrams_of_the_far_end_are_taken_off(islands):
    network, switch, back, copy, receiver = islands
    tunnel = network.tunnels[back.id]
    far = Tunnel(TunnelEnd(tunnel.far, 1, 2), tunnel.end.ipv4, True)
    within = copy[42:]
    whole = in_tunnel(far, within)
    assert told(switch, back.port, whole) == ([(receiver.port, plain_frame(datagram()))], [])
    # Of others it is a datagram like any other, for an address that no route leads to.
    elsewhere = Tunnel(TunnelEnd(tunnel.far + 1, 1, 2), tunnel.end.ipv4, True)
    for wrong in (
        in_tunnel(elsewhere, within),
        in_tunnel(far, within, dst=tunnel.end.ipv4 + 1),
        in_tunnel(far, within, flags="MF"),
        in_tunnel(far, within, frag=1),
        whole[:36] + (TUNNEL_PORT + 1).to_bytes(2) + whole[38:],
    ):
        assert told(switch, back.port, wrong) == ([], ["NO_ROUTE"])
    assert told(switch, receiver.port, whole) == ([], ["FORGED_ADDRESS"])
    damaged = whole[:24] + (int.from_bytes(whole[24:26]) ^ 1).to_bytes(2) + whole[26:]
    assert told(switch, back.port, damaged) == ([], ["BAD_CHECKSUM"])
    assert told(switch, back.port, whole[:-1]) == ([], ["CUT_SHORT"])
    # What is within is looked at like a frame that arrives, and one tunnel is in no other.
    assert told(switch, back.port, in_tunnel(far, within[:16]))[1] == ["CUT_SHORT"]
    assert told(switch, back.port, in_tunnel(far, whole)) == ([], ["NO_ROUTE"])
    assert told(switch, back.port, in_tunnel(far, b"")) == ([], ["CUT_SHORT"])


def test_a_frame_that_is_not_in_the_tunnel_is_taken_as_ever(islands):
    _, switch, back, copy, receiver = islands
    assert told(switch, back.port, copy[42:]) == ([(receiver.port, plain_frame(datagram()))], [])


def test_a_publisher_behind_other_networks_sends_by_a_tunnel_as_the_sink_does(form):
    network = relabelled(line(1, 1, 1, NARROW), form)
    (publisher,) = network.publishers()
    host = network.hosts[publisher]
    link = network.link("s1", publisher)
    links = [dataclasses.replace(x, tunnel=end_of(x)) if x is link else x for x in network.links]
    joined = Network.from_rows(network.switches.values(), network.hosts.values(), links, form)
    trees = first_trees(joined)
    (stack,) = encoder_of(joined, publisher, trees).encode(frozenset(joined.subscribers()))
    frame = stack_frame(form, stack.labels, datagram())
    sink = Tunnel(TunnelEnd(host.ipv4, host.mac, 7), end_of(link).ipv4, True)
    switch = loaded(form)
    switch.apply({e.key: e for e in switch_entries(joined, trees)})
    by_cable = switch.process(host.port, frame)
    assert switch.process(host.port, in_tunnel(sink, frame)) == by_cable
    assert len(by_cable) == len(joined.subscribers())
    # What goes to it is no frame in a datagram.
    subscriber = joined.hosts[joined.subscribers()[0]]
    plain = plain_frame(datagram(src=subscriber.ipv4, dst=host.ipv4))
    ((out, copy),) = switch.process(subscriber.port, plain)
    assert out == host.port and copy[34:] == plain[34:]
