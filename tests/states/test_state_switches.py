"""The program with registers does what the reference model says; networks of it deliver exactly."""

from __future__ import annotations

import random

import networkx as nx
import pytest
import state_cases as cases
from control_traffic import neighbor_frames
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import from_graph, mended, random_network
from program_switches import holding
from state_cases import PUBLISH, REGISTER, REMOVE, entries_of, state_frame, told, wanted_copies
from switch_model import Message, Port, SwitchModel
from virtual_trees_cases import datagram, plain_frame

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.network import Network
from stackcast.udfs.states import subscriptions
from stackcast.udfs.states.messages import StateHeader

pytestmark = pytest.mark.unit

RANDOM = st.randoms(use_true_random=False)
GENERATION = 1 << cases.LEASE
STATES = range(1, 4)
REFRESH = 0.25
"""Generations between two refreshes of a host; somewhat more than 30 seconds of 134."""


class Clock:
    """The time of switches, in microseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def fresh(clock=None) -> SimpleSwitch:
    switch = SimpleSwitch(clock=clock or Clock())
    switch.load(cases.program())
    return switch


@examples(60)
@given(RANDOM)
def test_any_message_is_treated_as_the_model_says(rng):
    model, clock = cases.random_model(rng), Clock()
    switch = fresh(clock)
    with holding(switch, entries_of(model)):
        for number in range(40):
            clock.now += rng.choice([0, 0, 0, GENERATION // 3, GENERATION, 3 * GENERATION])
            port, message = rng.randint(1, 21), cases.random_message(rng)
            header = StateHeader(7, number, 1, 1)
            frame = state_frame(message, header)
            verdict = model.process(port, message, clock.now)
            copies, reasons = told(switch, port, frame)
            assert copies == wanted_copies(verdict, message, header, frame), (port, message)
            assert reasons == ([verdict.reason] if verdict.reason else [])


def spread(rng, clock) -> cases.StateNetwork:
    network = mended(random_network(rng, 6))
    return cases.StateNetwork(network, {name: fresh(clock) for name in network.switches})


def everybody(world, subscribed, state, publisher):
    return dict.fromkeys(subscribed[state] - {publisher}, 1)


@examples(40)
@given(RANDOM)
def test_updates_reach_exactly_the_subscribers_each_once(rng):
    clock = Clock()
    world = spread(rng, clock)
    hosts = sorted(world.network.hosts)
    subscribed = {state: set() for state in STATES}
    for _ in range(25):
        host, state = rng.choice(hosts), rng.choice(STATES)
        if rng.random() < 0.6:
            world.send(host, REGISTER, state)
            subscribed[state].add(host)
        else:
            world.send(host, REMOVE, state)
            subscribed[state].discard(host)
        publisher = rng.choice(world.network.publishers())
        got, crossed = world.send(publisher, PUBLISH, state)
        assert got == everybody(world, subscribed, state, publisher)
        assert crossed <= len(world.network.switches) - 1
        if not got:
            assert crossed == 0


@pytest.mark.integration
@examples(30)
@given(RANDOM)
def test_leases_heal_lost_messages_restarted_switches_and_hosts_that_died(rng):
    clock = Clock()
    world = spread(rng, clock)
    hosts = sorted(world.network.hosts)
    subscribed = {state: set() for state in STATES}

    def refresh():
        for state in STATES:
            for host in sorted(subscribed[state]):
                world.send(host, REGISTER, state)

    def later(share):
        clock.now = world.now = clock.now + int(GENERATION * share)

    world.lose = lambda link: rng.random() < 0.4
    for _ in range(20):
        host, state = rng.choice(hosts), rng.choice(STATES)
        kind = rng.choice([REGISTER, REMOVE])
        world.send(host, kind, state)
        (subscribed[state].add if kind == REGISTER else subscribed[state].discard)(host)
        if rng.random() < 0.2:
            world.restart(rng.choice(sorted(world.switches)))
        if rng.random() < 0.2:
            # It dies and says nothing.
            subscribed[state].discard(rng.choice(hosts))
        later(rng.choice([0, 0.1, 0.5]))
    world.lose = lambda link: False
    # One refresh of all mends what was lost, and another two if hosts that sent it have left since.
    for _ in range(3):
        later(REFRESH)
        refresh()
    for state in STATES:
        publisher = rng.choice(world.network.publishers())
        got, _ = world.send(publisher, PUBLISH, state)
        assert got.items() >= everybody(world, subscribed, state, publisher).items()
    for _ in range(3):
        later(1)
        refresh()
    for state in STATES:
        publisher = rng.choice(world.network.publishers())
        got, _ = world.send(publisher, PUBLISH, state)
        assert got == everybody(world, subscribed, state, publisher)


def test_what_is_no_message_is_dropped_and_counted_once():
    ports = {1: Port(0x0A000001, True), 2: Port(), 3: Port(0x0A000003)}
    model = SwitchModel(ports, 0b10, cases.LEASE, cases.CAPACITY)
    switch = fresh()
    switch.apply({entry.key: entry for entry in entries_of(model)})
    told(switch, 2, state_frame(Message(REGISTER, 1), StateHeader(7, 1)))
    for name, frame, reason in cases.odd_frames():
        copies, reasons = told(switch, 1, frame)
        wanted = [] if reason else [(2, frame)]
        assert (copies, reasons) == (wanted, [reason] if reason else []), name


def test_control_traffic_between_neighbors_is_counted_apart_from_forged_addresses():
    ports = {1: Port(0x0A000001, True), 2: Port(), 3: Port(0x0A000003)}
    switch = fresh()
    model = SwitchModel(ports, 0b10, cases.LEASE, cases.CAPACITY)
    switch.apply({entry.key: entry for entry in entries_of(model)})
    for port in ports:
        for name, frame in neighbor_frames(0x0A000000 + port):
            assert told(switch, port, frame) == ([], ["LINK_LOCAL"]), (port, name)
            assert told(switch, 4, frame) == ([], ["UNKNOWN_PORT"]), name


def test_plain_ipv4_is_routed_beside_the_states():
    rng = random.Random(5)
    network = mended(random_network(rng, 4))
    world = cases.StateNetwork(network, {name: fresh() for name in network.switches})
    one, *_, other = network.hosts.values()
    frame = plain_frame(datagram(src=cases._dotted(one.ipv4), dst=cases._dotted(other.ipv4)))
    name, port, copy, ends = one.switch, one.port, frame, network.links
    for _ in network.switches:
        ((out, copy),) = world.switches[name].process(port, copy)
        link = next(each for each in ends if (each.switch, each.port) == (name, out))
        name, port = link.neighbor, link.neighbor_port
        if port is None:
            break
    assert name == other.name
    assert copy[:6] == other.mac.to_bytes(6)


@examples(60)
@given(RANDOM)
def test_any_bytes_are_sent_on_or_counted_or_only_remembered(rng):
    ports = {1: Port(0x0A000001, True), 2: Port(), 3: Port(0x0A000003)}
    switch = fresh()
    model = SwitchModel(ports, 0b10, cases.LEASE, cases.CAPACITY)
    switch.apply({entry.key: entry for entry in entries_of(model)})
    for _ in range(10):
        whole = state_frame(cases.random_message(rng), StateHeader(7, 1), rng.randbytes(9))
        frame = bytearray(rng.choice([rng.randbytes(rng.randint(0, 64)), whole]))
        for _ in range(rng.randint(0, 3)):
            if frame:
                frame[rng.randrange(len(frame))] = rng.getrandbits(8)
        if rng.random() < 0.3:
            del frame[rng.randint(0, 60) :]
        copies, reasons = told(switch, rng.randint(1, 4), bytes(frame))
        assert len(reasons) <= 1
        assert not (copies and reasons)
    assert not switch.drops["program_failed"]


def two_and_one() -> Network:
    """Two hosts on s1, a publisher on s2."""
    return from_graph(nx.path_graph(2), hosts_per_switch=2, publishers=1)


def test_the_authors_remove_cuts_off_who_stays(monkeypatch):
    network = two_and_one()
    publisher = network.hosts[network.publishers()[0]]
    one, other = (host for host in network.hosts.values() if host.switch != publisher.switch)

    def stays(world) -> bool:
        for host in (one, other):
            world.send(host.name, REGISTER, 1)
        world.send(one.name, REMOVE, 1)
        got, _ = world.send(publisher.name, PUBLISH, 1)
        return got == {other.name: 1}

    assert stays(cases.StateNetwork(network, {name: fresh() for name in network.switches}))
    # As in their code, where every remove is flooded.
    monkeypatch.setattr(subscriptions, "needless", lambda left, links: links)
    assert not stays(cases.StateNetwork(network))
