"""How often registers of a state cross a link, and how soon one follows that was lost.

All hosts register a state again at the same time, every 30 seconds, in networks of models of the
switch and of switches that run the program. The tree alone determines what switches must send: at
each refresh, one register of a state crosses each link in a direction if there are replicas behind
the end that it comes from.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from random import Random

import networkx as nx
import pytest
import state_cases as cases
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network
from state_cases import PUBLISH, REGISTER, REMOVE, StateNetwork

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.network import Link, Network
from stackcast.udfs.states.requests import REFRESH
from stackcast.udfs.states.subscriptions import PERIOD_BITS, Subscriptions
from stackcast.udfs.switches.bridge import spanning_links
from stackcast.udfs.switches.state_entries import LEASE

pytestmark = pytest.mark.unit

RANDOM = st.randoms(use_true_random=False)
INTERVAL = int(REFRESH * 1e6)
"""Microseconds between two refreshes."""
SKEW = 1_000_000
"""Microseconds by which the clocks of hosts differ at most."""
PERIOD = 1 << LEASE - PERIOD_BITS
STATE = 3
KINDS = pytest.mark.parametrize("kind", ["models", "programs"])


class Replicas:
    """Hosts that hold replicas of a state and refresh them, in a network of switches.

    Attributes:
        holders: the time of the next refresh of each host.
        crossed: ``(time, switch, port)`` of each message that left a switch for another one.
    """

    def __init__(self, rng: Random, kind: str, skew: int) -> None:
        self.rng = rng
        self.skew = skew
        network = mended(random_network(rng, 7))
        switches = {name: self._switch() for name in network.switches} if kind == "programs" else {}
        self.world = StateNetwork(network, switches, lease=LEASE)
        self.world.lose = self._crosses
        self.crossed: list[tuple[int, str, int]] = []
        self.loses = lambda link: False
        hosts = sorted(network.hosts)
        self.phase = rng.randrange(INTERVAL)
        self.holders = {
            host: self.next_refresh() for host in rng.sample(hosts, rng.randint(1, len(hosts)))
        }

    @property
    def now(self) -> int:
        return self.world.now

    def next_refresh(self) -> int:
        """Returns when a host that registers now does so again, by its own clock."""
        passed = (self.now - self.phase) % INTERVAL
        return self.now + INTERVAL - passed + self.rng.randint(0, self.skew)

    def run(self, until: int) -> None:
        """Lets all refreshes up to a time happen."""
        while (time := min(self.holders.values())) <= until:
            self.world.now = time
            for host in sorted(h for h, due in self.holders.items() if due == time):
                self.world.send(host, REGISTER, STATE)
                self.holders[host] = self.next_refresh()
        self.world.now = until

    def busy_links(self) -> set[tuple[str, int]]:
        """Returns the ports of links that have replicas behind their near end."""
        links = spanning_links(self.world.network)
        tree = nx.Graph((link.switch, link.neighbor) for link in links)
        at = {self.world.network.hosts[host].switch for host in self.holders}
        found = set()
        for link in links:
            tree.remove_edge(link.switch, link.neighbor)
            if at & nx.node_connected_component(tree, link.switch):
                found.add((link.switch, link.port))
            tree.add_edge(link.switch, link.neighbor)
        return found

    def crossings(self, since: int) -> Counter[tuple[str, int]]:
        return Counter((switch, port) for time, switch, port in self.crossed if time > since)

    def are_reached(self) -> bool:
        """Whether an update of each publisher reaches exactly the holders."""
        return all(
            self.world.send(publisher, PUBLISH, STATE)[0]
            == dict.fromkeys(set(self.holders) - {publisher}, 1)
            for publisher in self.world.network.publishers()
        )

    def _switch(self) -> SimpleSwitch:
        switch = SimpleSwitch(clock=lambda: self.world.now)
        switch.load(cases.program())
        return switch

    def _crosses(self, link: Link) -> bool:
        self.crossed.append((self.now, link.switch, link.port))
        return self.loses(link)


def settled(rng: Random, kind: str, skew: int = SKEW) -> Replicas:
    """Replicas after two or three refreshes of each."""
    replicas = Replicas(rng, kind, skew)
    replicas.run(3 * INTERVAL)
    return replicas


@KINDS
@examples(40)
@given(RANDOM)
def test_at_a_refresh_one_register_crosses_a_link_however_many_replicas(kind, rng):
    replicas = settled(rng, kind, skew=0)
    for _ in range(3):
        before = replicas.now
        replicas.run(before + INTERVAL)
        assert replicas.crossings(before) == Counter(dict.fromkeys(replicas.busy_links(), 1))
    assert replicas.are_reached()


@KINDS
@examples(40)
@given(RANDOM)
def test_if_clocks_differ_a_link_gets_two_registers_at_most(kind, rng):
    replicas = settled(rng, kind)
    replicas.run(replicas.phase + 4 * INTERVAL - 1)
    for _ in range(3):
        before = replicas.now
        replicas.run(before + INTERVAL)
        crossings = replicas.crossings(before)
        assert set(crossings) == replicas.busy_links()
        assert max(crossings.values(), default=1) <= 2


@KINDS
@examples(40)
@given(RANDOM)
def test_a_lost_register_is_followed_by_another_at_the_next_refresh(kind, rng):
    replicas = settled(rng, kind)
    busy = sorted(replicas.busy_links())
    if not busy:
        return
    target = rng.choice(busy)
    lost: list[int] = []

    def lose_first(link: Link) -> bool:
        if lost or (link.switch, link.port) != target:
            return False
        lost.append(replicas.now)
        return True

    replicas.run(replicas.now + rng.randrange(INTERVAL))
    replicas.loses = lose_first
    replicas.run(replicas.now + INTERVAL + SKEW)
    assert lost
    replicas.run(lost[0] + INTERVAL + SKEW)
    assert replicas.crossings(lost[0])[target] >= 1


def reweighed(rng: Random, network: Network) -> Network:
    links = [dataclasses.replace(link, weight=rng.random() + 0.1) for link in network.links]
    return Network.from_rows(network.switches.values(), network.hosts.values(), links)


def disturb(rng: Random, replicas: Replicas, *events: str) -> None:
    """Lets events happen, each up to a minute after the one before."""
    world = replicas.world
    for _ in range(rng.randint(1, 6)):
        replicas.run(replicas.now + rng.randrange(2 * INTERVAL))
        event = rng.choice(events)
        if event == "register":
            world.send(rng.choice(sorted(replicas.holders)), REGISTER, STATE)
        elif event == "tree":
            world.change_tree(reweighed(rng, world.network))
        else:
            names = sorted(world.models)
            for name in rng.sample(names, rng.randint(1, len(names))):
                world.restart(name)


@KINDS
@examples(40)
@given(RANDOM)
def test_after_any_restarts_and_changes_of_the_tree_the_next_refresh_restores_all(kind, rng):
    replicas = settled(rng, kind)
    disturb(rng, replicas, "restarts", "tree")
    replicas.run(replicas.now + INTERVAL + SKEW)
    assert replicas.are_reached()


@KINDS
@examples(40)
@given(RANDOM)
def test_a_host_that_registers_more_often_delays_that_by_a_period_at_most(kind, rng):
    replicas = settled(rng, kind)
    disturb(rng, replicas, "restarts", "tree", "register")
    replicas.run(replicas.now + INTERVAL + SKEW + PERIOD)
    assert replicas.are_reached()


@pytest.mark.integration
@KINDS
@examples(40)
@given(RANDOM)
def test_hosts_that_come_and_go_are_served_at_once(kind, rng):
    replicas = settled(rng, kind)
    hosts = sorted(replicas.world.network.hosts)
    for _ in range(20):
        replicas.run(replicas.now + rng.randrange(INTERVAL))
        host = rng.choice(hosts)
        if host not in replicas.holders:
            replicas.world.send(host, REGISTER, STATE)
            replicas.holders[host] = replicas.next_refresh()
        elif len(replicas.holders) > 1:
            replicas.world.send(host, REMOVE, STATE)
            del replicas.holders[host]
        assert replicas.are_reached()


def all_holders_but_one_die(rng: Random, replicas: Replicas) -> Iterator[int]:
    for host in rng.sample(sorted(replicas.holders), len(replicas.holders) - 1):
        del replicas.holders[host]
        yield replicas.now + rng.randrange(2 * INTERVAL)


@KINDS
@examples(40)
@given(RANDOM)
def test_a_replica_is_kept_while_others_die_without_a_word(kind, rng):
    replicas = settled(rng, kind)
    for time in all_holders_but_one_die(rng, replicas):
        replicas.run(time)
    (host,) = replicas.holders
    for _ in range(12):
        replicas.run(replicas.now + INTERVAL)
        for publisher in set(replicas.world.network.publishers()) - {host}:
            assert replicas.world.send(publisher, PUBLISH, STATE)[0][host] == 1


def test_in_a_period_a_link_gets_one_register_even_if_a_request_is_repeated():
    subscriptions = Subscriptions(links=0b111, hosts=0b111000, lease=LEASE)
    assert subscriptions.register(1, 4, 9 * PERIOD) == 0b111
    for now in range(9 * PERIOD, 10 * PERIOD, PERIOD // 9):
        assert subscriptions.register(1, 4, now) == 0
        assert subscriptions.register(1, 5, now) == 0
    assert subscriptions.register(1, 6, 10 * PERIOD) == 0b111


def test_a_register_goes_by_links_that_came_to_the_tree_or_that_a_remove_went_by():
    subscriptions = Subscriptions(links=0b011, hosts=0b111000, lease=LEASE)
    assert subscriptions.register(1, 4, 0) == 0b011
    subscriptions.links = 0b111
    assert subscriptions.register(1, 5, 0) == 0b100
    assert subscriptions.register(1, 3, 0) == 0
    # A link that left the tree in between is not known to have kept anything.
    subscriptions.links = 0b110
    assert subscriptions.register(1, 6, 0) == 0
    subscriptions.links = 0b111
    assert subscriptions.register(1, 4, 0) == 0b001
    subscriptions.remove(1, 6, 0)
    for port in (4, 5):
        onward = subscriptions.remove(1, port, 0)
    assert onward == 0b100
    assert subscriptions.register(1, 6, 0) == 0b100
