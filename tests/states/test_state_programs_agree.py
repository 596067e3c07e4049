"""On one random tree, under one history of subscriptions and losses, the model, both programs and
the controller beside a switch deliver the same."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import state_cases as cases
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network
from state_cases import PUBLISH, REGISTER, REMOVE, ControlledSwitch, StateNetwork

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.states.switch_controller import LONGEST_PAUSE

pytestmark = pytest.mark.unit

STATES = (1, 2, 2047)
LEASE = 27
GENERATION = 1 << LEASE
REFRESH = 30_000_000


class Clock:
    """The time of switches, in microseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


class Worlds:
    """One network four times: models of both kinds of switch, and switches with the programs."""

    def __init__(self, rng: Random) -> None:
        self.clock = clock = Clock()
        network = mended(random_network(rng, 5))
        self.hosts, self.publishers = sorted(network.hosts), network.publishers()

        def registers() -> SimpleSwitch:
            made = SimpleSwitch(clock=clock)
            made.load(cases.program())
            return made

        controlled = {name: ControlledSwitch(clock) for name in network.switches}
        self.controlled = StateNetwork(
            network, controlled, controlled=True, held_to_models=False, lease=LEASE
        )
        self.all = [
            StateNetwork(network, lease=LEASE),
            StateNetwork(network, {name: registers() for name in network.switches}, lease=LEASE),
            StateNetwork(network, controlled=True, lease=LEASE),
            self.controlled,
        ]

    def lose(self, rng: Random, share: float) -> None:
        """Each network loses as many messages, and not the same: they do not send the same."""
        for world in self.all:
            world.lose = lambda link: rng.random() < share

    def send(self, host: str, kind: object, state: int) -> None:
        for world in self.all:
            world.send(host, kind, state)

    def later(self, microseconds: int) -> None:
        self.clock.now += microseconds
        for world in self.all:
            world.now = self.clock.now
        self.controlled.tick()

    def restart(self, name: str) -> None:
        """A switch with registers forgets, with its model."""
        self.all[1].restart(name)
        self.all[0].models[name].restart()

    def delivered(self, publisher: str, state: int) -> Iterator[dict[str, int]]:
        for world in self.all:
            yield dict(world.send(publisher, PUBLISH, state)[0])


@pytest.mark.integration
@examples(40)
@given(st.randoms(use_true_random=False), st.sampled_from([0.0, 0.2, 0.5]))
def test_all_deliver_the_same(rng: Random, share: float) -> None:
    worlds = Worlds(rng)
    subscribed: dict[int, set[str]] = {state: set() for state in STATES}
    worlds.lose(rng, share)
    for _ in range(15):
        host, state = rng.choice(worlds.hosts), rng.choice(STATES)
        kind = rng.choice([REGISTER, REGISTER, REMOVE])
        (subscribed[state].add if kind == REGISTER else subscribed[state].discard)(host)
        worlds.send(host, kind, state)
        if share and rng.random() < 0.1:
            worlds.restart(rng.choice(sorted(worlds.all[0].models)))
        worlds.later(rng.choice([0, 1_000_000, LONGEST_PAUSE]))
    worlds.lose(rng, 0)
    if share:
        # Refreshes bring what is lost, and leases end what is too much.
        for _ in range(3 * GENERATION // REFRESH):
            for state, hosts in subscribed.items():
                for host in sorted(hosts):
                    worlds.send(host, REGISTER, state)
            worlds.later(REFRESH)
    for state in STATES:
        publisher = rng.choice(worlds.publishers)
        wanted = dict.fromkeys(subscribed[state] - {publisher}, 1)
        assert list(worlds.delivered(publisher, state)) == [wanted] * 4
