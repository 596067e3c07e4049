"""Stored trees for the receivers that are stable by the record, and hops to the others."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network, relabelled

from stackcast.udfs.network.labels import HOP, TREE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.stored_routes import HYBRID
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.retuning.change import plan_change
from stackcast.udfs.retuning.comparison import Record, evaluate
from stackcast.udfs.retuning.costs import replayer_of
from stackcast.udfs.retuning.steps import next_step
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.switches.rollout import NetworkVersion
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publications import Clients, Publication, Statistics
from stackcast.udfs.trees.strategies.registry import WHOLE
from stackcast.udfs.trees.strategies.strategy import Situation, numbered, select, uniform

pytestmark = pytest.mark.unit

RANDOM = st.randoms(use_true_random=False)
STABLE = WHOLE["stable"]
NETWORK = relabelled(fabric(2, 2, 2, 1, 1), HYBRID)
(PUBLISHER,) = NETWORK.publishers()
HOSTS = NETWORK.subscribers()


def situation(network: Network, publications: list[Publication]) -> Situation:
    return Situation(network, Clients({}), Statistics(publications))


def hosts_of(network: Network, edges) -> set[str]:
    return {name for pair in edges for name in pair if name in network.hosts}


def test_who_gets_every_notification_is_in_the_tree_and_who_gets_some_is_reached_by_hops():
    """4.3: a tree reduced to stable subscribers, and further hops for the more dynamic ones."""
    stable = frozenset(HOSTS[:4])
    record = [
        Publication(PUBLISHER, stable | {HOSTS[5 + number % 2]}, 1, 100) for number in range(10)
    ]
    trees = select(STABLE, situation(NETWORK, record), uniform(NETWORK, 1))
    assert [hosts_of(NETWORK, edges) for edges in trees] == [stable]
    encoder = encoder_of(NETWORK, PUBLISHER, numbered(trees, "stable"))
    (stack,) = encoder.encode(record[0].receivers)
    kinds = [HYBRID.split(label)[0] for label in stack.labels]
    assert kinds.count(TREE) == 1 and HOP in kinds
    assert stack.edges[-1][1] == HOSTS[5]


def test_a_second_tree_goes_to_those_who_are_stable_for_fewer_notifications():
    record = [
        Publication(PUBLISHER, frozenset(HOSTS[:3]), 60, 100),
        Publication(PUBLISHER, frozenset(HOSTS[:7]), 40, 100),
    ]
    trees = select(STABLE, situation(NETWORK, record), uniform(NETWORK, 2))
    assert sorted(len(hosts_of(NETWORK, edges)) for edges in trees) == [3, 7]


@examples(60)
@given(RANDOM)
def test_every_tree_serves_some_notification_whole_and_costs_are_those_of_its_frames(rng):
    network = relabelled(mended(random_network(rng, 8, hosts=rng.choice([1, 2, 4]))), HYBRID)
    publisher = rng.choice(network.publishers())
    others = sorted(set(network.hosts) - {publisher})
    record = Statistics(
        Publication(publisher, frozenset(rng.sample(others, rng.randint(1, len(others)))), n, 9)
        for n in range(1, 5)
    ).publications
    budget = uniform(network, rng.randint(1, 3))
    trees = select(STABLE, situation(network, list(record)), budget)
    for edges in trees:
        assert any(hosts_of(network, edges) <= each.receivers for each in record)
    stored = numbered(trees, "stable")
    costs = replayer_of(network, stored).replay(record)
    model = ForwardingModel(network, network_tables(network, stored))
    encoder = encoder_of(network, publisher, stored)
    for number, each in enumerate(record):
        sent = [model.deliver(publisher, stack.labels) for stack in encoder.encode(each.receivers)]
        links = [link for went in sent for link in went.links]
        heads = sum(2 + 2 * labels for *_, labels in links if labels)
        wanted = each.notifications * (14 * len(links) + heads) + each.datagram_bytes * len(links)
        assert costs.bytes_on_links[number] == wanted


def test_the_split_follows_the_record_and_trees_are_made_before_others_break():
    """A host that used to get all gets none any more: another tree comes, then the old one goes."""
    old, new = frozenset(HOSTS[:5]), frozenset(HOSTS[1:6])
    budget = uniform(NETWORK, 1)

    def retuned(standing, receivers):
        record = Record(NETWORK, [Publication(PUBLISHER, receivers, 100, 5_000)])
        found = evaluate(STABLE, situation(NETWORK, list(record.publications)), budget, record)
        target = dict.fromkeys(found.trees, "stable")
        change = plan_change(NETWORK, standing, target, budget, record.replay)
        assert change.after < change.before
        return change.wanted

    first = retuned({}, old)
    assert [hosts_of(NETWORK, edges) for edges in first] == [old]
    second = retuned(first, new)
    assert [hosts_of(NETWORK, edges) for edges in second] == [new]
    rows = [VirtualTree(1, next(iter(first)), "stable")]
    step = next_step(NETWORK, rows, second, uniform(NETWORK, 2))
    assert [tree.edges for tree in step.installed] == list(second) and not step.moved
    # Stacks that name the old tree are carried until the new one is in use.
    source = NetworkVersion(NETWORK, [*rows, *step.installed])
    model = ForwardingModel(NETWORK, network_tables(NETWORK, source.trees))
    for trees, receivers in ((rows, old), (numbered(second, "", 2), new)):
        for stack in encoder_of(NETWORK, PUBLISHER, trees).encode(receivers):
            assert dict(model.deliver(PUBLISHER, stack.labels).hosts) == dict.fromkeys(receivers, 1)
