"""The program with a table and its controller: as the model says, and nothing lost for long."""

from __future__ import annotations

import pytest
import state_cases as cases
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network
from state_cases import (
    ACK,
    PUBLISH,
    REGISTER,
    REMOVE,
    ControlledSwitch,
    ack_frame,
    entries_of,
    state_frame,
    told,
    wanted_copies,
)
from switch_model import Message

from stackcast.udfs.states.messages import StateHeader
from stackcast.udfs.states.subscriptions import PERIOD_BITS
from stackcast.udfs.states.switch_controller import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Send,
    SetPorts,
    SwitchController,
    acknowledged,
)

pytestmark = pytest.mark.unit

RANDOM = st.randoms(use_true_random=False)
STATES = (1, 2, (1 << 22) - 1)
LINKS, HOSTS = 0b0111, 0b11000
LONG = 30


class Clock:
    """The time of switches, in microseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def frame_of(kind, number=1, state=1, source=0x0A000001) -> bytes:
    return state_frame(Message(kind, state, source), StateHeader(7, number))


def controller(rows=(), lease=LONG) -> SwitchController:
    return SwitchController(LINKS, HOSTS, lease, dict(rows), 0)


@examples(100)
@given(RANDOM)
def test_an_ack_is_that_of_the_program_with_registers(rng):
    message = Message(
        rng.choice([REGISTER, REMOVE]), rng.randint(1, (1 << 22) - 1), rng.getrandbits(32)
    )
    header = StateHeader(rng.getrandbits(16), rng.getrandbits(24))
    assert acknowledged(state_frame(message, header)) == ack_frame(message, header)


@examples(60)
@given(RANDOM)
def test_any_message_is_treated_as_the_model_says(rng):
    model = cases.random_model(rng)
    model.capacity, model.acknowledges_switches = 0, True
    clock = Clock()
    switch = ControlledSwitch(clock)
    switch.apply({entry.key: entry for entry in entries_of(model)})
    for number in range(40):
        clock.now += rng.choice([0, 0, 0, 1 << 18, 1 << 20, 3 << 20])
        switch.tick()
        port, message = rng.randint(1, 21), cases.random_message(rng)
        header = StateHeader(7, number, 1, 1)
        frame = state_frame(message, header)
        verdict = model.process(port, message, clock.now)
        copies, reasons = told(switch, port, frame)
        assert copies == wanted_copies(verdict, message, header, frame), (port, message)
        assert reasons == ([verdict.reason] if verdict.reason else [])


@examples(30)
@given(RANDOM)
def test_networks_of_both_programs_deliver_the_same(rng):
    clock = Clock()
    network = mended(random_network(rng, 6))
    switches = {name: ControlledSwitch(clock) for name in network.switches}
    world = cases.StateNetwork(network, switches, controlled=True)
    plain = cases.StateNetwork(network)
    hosts = sorted(network.hosts)
    for _ in range(25):
        host, state = rng.choice(hosts), rng.choice([1, 2])
        kind = rng.choice([REGISTER, REGISTER, REMOVE])
        world.send(host, kind, state)
        plain.send(host, kind, state)
        publisher = rng.choice(network.publishers())
        assert world.send(publisher, PUBLISH, state) == plain.send(publisher, PUBLISH, state)


@examples(30)
@given(RANDOM)
def test_no_message_between_switches_is_lost_for_long(rng):
    clock = Clock()
    network = mended(random_network(rng, 5))
    switches = {name: ControlledSwitch(clock) for name in network.switches}
    world = cases.StateNetwork(network, switches, controlled=True, held_to_models=False, lease=40)
    subscribed = {state: set() for state in STATES}
    world.lose = lambda link: rng.random() < 0.4
    for _ in range(8):
        host, state = rng.choice(sorted(network.hosts)), rng.choice(STATES)
        kind = rng.choice([REGISTER, REGISTER, REMOVE])
        (subscribed[state].add if kind == REGISTER else subscribed[state].discard)(host)
        world.send(host, kind, state)
        for _ in range(200):
            if not any(switch.controller.waits for switch in switches.values()):
                break
            clock.now += LONGEST_PAUSE
            world.tick()
    world.lose = lambda link: False
    for state in STATES:
        publisher = rng.choice(network.publishers())
        got, _ = world.send(publisher, PUBLISH, state)
        assert got == dict.fromkeys(subscribed[state] - {publisher}, 1)


def test_a_message_goes_to_a_neighbor_until_it_is_acknowledged():
    held, register = controller(), frame_of(REGISTER)
    assert held.packet_in(4, register, 0) == [
        SetPorts(1, 0b1000),
        Send(0b1000, acknowledged(register)),
        Send(0b0111, register),
    ]
    for port in (1, 3):
        assert held.packet_in(port, frame_of(ACK), 0) == []
    assert held.tick(FIRST_PAUSE - 1) == []
    times, now = [], 0
    while now < 40_000_000:
        now += FIRST_PAUSE
        if sent := held.tick(now):
            assert sent == [Send(0b0010, register)]
            times.append(now)
    gaps = [after - before for before, after in zip([0, *times], times, strict=False)]
    assert gaps == [FIRST_PAUSE << n for n in range(6)] + [LONGEST_PAUSE] * (len(gaps) - 6)
    assert held.packet_in(2, frame_of(ACK, number=2), now) == []
    assert held.waits
    held.packet_in(2, frame_of(ACK), now)
    assert not held.waits
    assert held.tick(now + LONGEST_PAUSE) == []


@pytest.mark.parametrize("kind", [REGISTER, REMOVE])
def test_a_message_that_comes_again_is_acknowledged_and_goes_no_further(kind):
    held, message = controller(), frame_of(kind)
    assert Send(0b0111, message) in held.packet_in(4, message, 0)
    for now in (5, 1 << LONG):
        assert held.packet_in(4, message, now) == [Send(0b1000, acknowledged(message))]


def test_a_refresh_goes_on_and_registers_of_other_ports_until_then_do_not():
    held, period = controller(), 1 << LONG - PERIOD_BITS
    held.packet_in(4, frame_of(REGISTER), 0)
    other = frame_of(REGISTER, number=2)
    assert held.packet_in(5, other, 9) == [
        SetPorts(1, 0b11000),
        Send(0b10000, acknowledged(other)),
    ]
    refresh = frame_of(REGISTER, number=3)
    assert Send(0b0111, refresh) in held.packet_in(4, refresh, period)


def test_a_remove_takes_the_place_of_the_register_before_it():
    held, register, remove = controller(), frame_of(REGISTER), frame_of(REMOVE, number=2)
    held.packet_in(4, register, 0)
    assert held.packet_in(4, remove, 1)[0] == SetPorts(1, 0)
    assert {effect.frame for effect in held.tick(FIRST_PAUSE + 1)} == {remove}


def test_a_port_that_nobody_refreshes_leaves_the_row():
    held = controller(lease=20)
    held.packet_in(4, frame_of(REGISTER), 0)
    held.packet_in(5, frame_of(REGISTER, number=2), 1 << 20)
    assert SetPorts(1, 0b10000) in held.tick(2 << 20)
    assert held.tick(3 << 20) == [SetPorts(1, 0)]


def test_a_controller_that_starts_again_goes_on_with_the_rows():
    held = controller({1: 0b11000}.items(), lease=20)
    assert held.tick((2 << 20) - 1) == []
    # It has sent no register yet.
    register = frame_of(REGISTER)
    assert Send(0b0111, register) in held.packet_in(4, register, 0)
    assert held.packet_in(4, frame_of(REMOVE), 0)[0] == SetPorts(1, 0b10000)


def test_rows_lose_ports_that_left_the_tree():
    held = controller({1: 0b01001, 2: 0b00001}.items())
    assert held.span(0b0110, HOSTS, 0) == [SetPorts(1, 0b01000), SetPorts(2, 0)]
    assert held.span(0b0110, HOSTS, 0) == []
