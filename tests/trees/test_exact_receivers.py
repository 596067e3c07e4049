"""Stored trees to exactly the receivers of what is published, for stacks that name trees alone."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import mended, random_network, relabelled

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.stored_routes import TREES
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.retuning.comparison import Record, evaluate
from stackcast.udfs.retuning.mixture import choose
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.encoders import encoder_of
from stackcast.udfs.trees.publications import Clients, Publication, Statistics
from stackcast.udfs.trees.publisher_trees import host_trees
from stackcast.udfs.trees.strategies.registry import ALONE
from stackcast.udfs.trees.strategies.strategy import Edges, Situation, numbered, select, uniform

pytestmark = pytest.mark.unit

RANDOM = st.randoms(use_true_random=False)
EXACT = ALONE["exact"]
NETWORK = relabelled(fabric(2, 2, 2, 1, 1), TREES)
(PUBLISHER,) = NETWORK.publishers()
HOSTS = NETWORK.subscribers()


def chosen(network: Network, published: list[Publication], rules: int) -> list[Edges]:
    known = Situation(network, Clients({}), Statistics(published))
    return select(EXACT, known, uniform(network, rules))


def hosts_of(network: Network, edges: Edges) -> set[str]:
    return {name for pair in edges for name in pair if name in network.hosts}


def test_the_sets_that_spare_most_links_come_first():
    """Three receivers often beat five seldom; one alone needs no tree of its own."""
    often, seldom, alone = frozenset(HOSTS[:3]), frozenset(HOSTS[3:8]), frozenset(HOSTS[:1])
    published = [Publication(PUBLISHER, often, 50), Publication(PUBLISHER, seldom, 2)]
    published.append(Publication(PUBLISHER, alone, 1_000))
    found = [hosts_of(NETWORK, edges) for edges in chosen(NETWORK, published, 2)]
    assert found == [often, seldom]
    assert [hosts_of(NETWORK, edges) for edges in chosen(NETWORK, published, 1)] == [often]


def test_whatever_is_stored_a_record_can_be_sent_and_a_stored_set_takes_one_frame():
    base = host_trees(NETWORK, [PUBLISHER])
    sets = [frozenset(HOSTS[:3]), frozenset(HOSTS[2:6])]
    record = Record(NETWORK, [Publication(PUBLISHER, s, 10, 900) for s in sets], always=base)
    none, one = record.replay([]), record.replay(chosen(NETWORK, [*record.publications], 1))
    assert none.labels == 3.5 and one.labels < none.labels
    both = record.replay(chosen(NETWORK, [*record.publications], 2))
    assert both.labels == 1 and both.bytes < one.bytes < none.bytes
    assert set(both.uses) == set(chosen(NETWORK, [*record.publications], 2))


@examples(60)
@given(RANDOM)
def test_each_set_reaches_exactly_its_receivers_under_whatever_is_chosen(rng):
    network = relabelled(mended(random_network(rng, 8, hosts=rng.choice([1, 2, 4]))), TREES)
    publishers = network.publishers()
    hosts = sorted(network.hosts)
    published = []
    for n in range(rng.randint(1, 6)):
        publisher = rng.choice(publishers)
        others = [host for host in hosts if host != publisher]
        some = frozenset(rng.sample(others, rng.randint(1, len(others))))
        published.append(Publication(publisher, some, n + 1, 90))
    base = host_trees(network, publishers)
    budget = uniform(network, rng.randint(1, 3))
    record = Record(network, published, always=base)
    situation = Situation(network, Clients({}), Statistics(record.publications))
    choice = choose(record, [evaluate(EXACT, situation, budget, record)], budget)
    assert choice.trial.cost <= record.replay([]).cost
    stored = numbered(dict.fromkeys([*choice.trees, *base]), "exact")
    model = ForwardingModel(network, network_tables(network, stored))
    for each in record.publications:
        stacks = encoder_of(network, each.publisher, stored).encode(each.receivers)
        reached: dict[str, int] = {}
        for stack in stacks:
            for host, copies in model.deliver(each.publisher, stack.labels).hosts.items():
                reached[host] = reached.get(host, 0) + copies
        assert reached == dict.fromkeys(each.receivers, 1)
