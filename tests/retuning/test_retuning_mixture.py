"""Strategies are compared by replays of the record; the choice is worse than none of them."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from dataclasses import replace

import pytest

from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.retuning.comparison import Record, StrategyResult, evaluate
from stackcast.udfs.retuning.costs import PrunedTreeReplayer
from stackcast.udfs.retuning.mixture import choose, mix
from stackcast.udfs.trees.publications import Clients, Publication, Statistics
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.strategies.registry import STRATEGIES
from stackcast.udfs.trees.strategies.strategy import (
    Edges,
    Situation,
    TreeCapacity,
    numbered,
    select,
    uniform,
)

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=3, racks=2, hosts=2, planes=2, spines=1)
HOSTS = sorted(NETWORK.subscribers())
SOME = [STRATEGIES[name] for name in ("hops", "broadcast", "random", "tree", "freq-relation")]


def published(seed: int, number: int = 12) -> list[Publication]:
    """Each host is a publisher of its own: all hosts may receive, each with its frequency."""
    lots = random.Random(seed)
    found = []
    for publisher in HOSTS[:4]:
        frequency = {name: lots.random() for name in HOSTS if name != publisher}
        for _ in range(number):
            receivers = frozenset(n for n, f in frequency.items() if lots.random() < f)
            found.append(Publication(publisher, receivers, lots.randint(1, 9), 78))
    return found


PUBLISHED = published(1)
RECORD = Record(NETWORK, PUBLISHED)
CLIENTS = Clients({name: frozenset(HOSTS) - {name} for name in HOSTS[:4]})
SITUATION = Situation(NETWORK, CLIENTS, Statistics(PUBLISHED))


def test_a_replay_costs_what_the_replayer_says_and_tells_what_each_tree_was_used_for():
    trees = select(STRATEGIES["tree"], SITUATION, uniform(NETWORK, 4))
    trial = RECORD.replay(trees)
    whole = PrunedTreeReplayer(NETWORK, numbered(trees, "")).replay(RECORD.publications)
    assert trial.cost == whole.bytes_on_links.sum() == sum(trial.costs)
    used = {n: sum(edges in named for named in trial.named) for n, edges in enumerate(trees, 1)}
    assert {n: k for n, k in used.items() if k} == dict(whole.used)
    few = RECORD.replay(trees, [3, 0])
    assert few.costs == (trial.costs[3], trial.costs[0])


def test_headers_may_be_what_is_to_be_saved():
    record = Record(NETWORK, PUBLISHED, "labels")
    whole = PrunedTreeReplayer(NETWORK, []).replay(record.publications)
    assert record.replay([]).cost == (whole.header_bytes * whole.notifications).sum()


def test_the_parts_of_a_record_are_the_record_and_it_survives_pickling():
    parts = [RECORD.part(number, 3).publications for number in range(3)]
    assert sorted(sum(parts, ()), key=RECORD.publications.index) == list(RECORD.publications)
    copy = pickle.loads(pickle.dumps(RECORD))
    assert copy.replay([]).costs == RECORD.replay([]).costs
    assert len(RECORD.heaviest(5).publications) == 5
    assert RECORD.heaviest(10**6) is RECORD


def test_what_the_network_cannot_carry_is_left_out_and_counted():
    here, there = HOSTS[0], HOSTS[-1]
    cut = NETWORK.hosts[there]
    links = [replace(link, up=False) if link.neighbor == there else link for link in NETWORK.links]
    network = Network.from_rows(NETWORK.switches.values(), NETWORK.hosts.values(), links)
    record = Record(
        network,
        [
            Publication(here, frozenset({here, "nobody", cut.name, HOSTS[1]}), 5, 100),
            Publication("nobody", frozenset({HOSTS[1]}), 2, 100),
            Publication(here, frozenset(), 7, 100),
            Publication(here, frozenset({HOSTS[1]}), 0, 0),
        ],
    )
    assert record.publications == (Publication(here, frozenset({HOSTS[1]}), 5, 100),)
    assert record.left_out == 3 * 5 + 2
    assert Record(network, []).replay([]).cost == 0


def test_a_strategy_that_fails_is_told_and_the_others_are_compared():
    class Broken:
        name = "broken"

        def candidates(self, situation, budget):
            yield from steiner_tree(situation.network, ["nobody"])

    (broken, hops) = [
        evaluate(strategy, SITUATION, uniform(NETWORK, 3), RECORD)
        for strategy in [Broken(), STRATEGIES["hops"]]
    ]
    assert "NETWORK.UNKNOWN_HOST" in broken.error
    assert hops.trees == () and hops.trial.cost == hops.unseen == RECORD.replay([]).cost
    assert choose(RECORD, [broken, hops], uniform(NETWORK, 3)).trees == {}


@pytest.mark.parametrize("rules", [0, 1, 3, 8])
def test_the_choice_fits_and_costs_no_more_than_any_strategy_on_the_record(rules: int):
    budget = uniform(NETWORK, rules)
    outcomes = [evaluate(strategy, SITUATION, budget, RECORD) for strategy in SOME]
    found = choose(RECORD, outcomes, budget)
    capacity = TreeCapacity(NETWORK, budget)
    for edges in found.trees:
        assert capacity.fits(edges)
        capacity.reserve(edges)
    assert found.trial.cost == RECORD.replay(list(found.trees)).cost
    if found.name == "mixture":
        assert found.trial.cost <= min(outcome.trial.cost for outcome in outcomes)
        assert found.unseen < min(outcome.unseen for outcome in outcomes)
    else:
        assert found.unseen == min(outcome.unseen for outcome in outcomes)
    assert set(found.trees.values()) <= {strategy.name for strategy in SOME}


@pytest.mark.integration
def test_the_choice_is_good_for_publications_to_come():
    budget = uniform(NETWORK, 4)
    lots = random.Random(5)
    ratios = []
    for seed in range(4):
        every = published(seed, 30)
        lots.shuffle(every)
        seen, unseen = every[::2], every[1::2]
        record = Record(NETWORK, seen)
        outcomes = [evaluate(strategy, SITUATION, budget, record) for strategy in SOME]
        later = Record(NETWORK, unseen)
        best = min(later.replay(outcome.trees).cost for outcome in outcomes)
        ratios.append(later.replay(list(choose(record, outcomes, budget).trees)).cost / best)
    assert max(ratios) <= 1.03
    assert sum(ratios) / len(ratios) <= 1.0


@pytest.mark.integration
def test_the_order_of_the_record_and_of_trees_in_use_has_no_effect():
    budget = uniform(NETWORK, 3)
    trees = [steiner_tree(NETWORK, HOSTS[n : n + 3]) for n in range(4)]
    found = []
    for direction in (1, -1):
        record = Record(NETWORK, PUBLISHED[::direction])
        outcomes = [evaluate(strategy, SITUATION, budget, record) for strategy in SOME]
        found.append(choose(record, outcomes, budget, trees))
    assert found[0].trees == found[1].trees


def test_a_mixture_takes_what_another_strategy_has_and_drops_what_lengthens_ways():
    groups = [HOSTS[:4], HOSTS[4:8]]
    record = Record(NETWORK, [Publication(g[0], frozenset(g[1:]), 10, 100) for g in groups])
    first, second = (steiner_tree(NETWORK, group) for group in groups)
    mixed, trial = mix(record, [first], [second], uniform(NETWORK, 2))
    assert set(mixed) == {first, second}
    assert trial == record.replay(mixed) and trial.labels == 1
    # With no room beside it, it stays out.
    assert mix(record, [first], [], uniform(NETWORK, 1)) == ((first,), record.replay([first]))


def test_a_search_encodes_no_publication_twice_under_the_same_trees():
    seen: Counter[tuple[int, frozenset[Edges]]] = Counter()

    class Watched(Record):
        def replay(self, trees, only=None):
            every = range(len(self.publications))
            seen.update((at, frozenset(trees)) for at in (every if only is None else only))
            return super().replay(trees, only)

    record, budget = Watched(NETWORK, PUBLISHED), uniform(NETWORK, 4)
    outcomes = [evaluate(strategy, SITUATION, budget, RECORD) for strategy in SOME]
    pool = list(dict.fromkeys(edges for each in outcomes for edges in each.pools[0]))
    for outcome in outcomes:
        seen.clear()
        mixed, trial = mix(record, outcome.trees, pool, budget)
        assert set(seen.values()) == {1}
        # What is remembered is what a replay says.
        assert trial == RECORD.replay(mixed)
    assert len(seen) > 2 * len(PUBLISHED)


def test_what_was_learnt_from_one_half_is_judged_by_the_other():
    outcome = evaluate(STRATEGIES["freq-relation"], SITUATION, uniform(NETWORK, 2), RECORD)
    assert isinstance(outcome, StrategyResult) and not outcome.error
    halves = [RECORD.part(n, 2) for n in (0, 1)]
    assert outcome.unseen == sum(halves[1 - n].replay(outcome.halves[n]).cost for n in (0, 1))
    assert outcome.seen == tuple(halves[n].replay(outcome.halves[n]).cost for n in (0, 1))


def test_a_search_that_takes_too_long_leaves_the_best_strategy():
    budget = uniform(NETWORK, 4)
    outcomes = [evaluate(strategy, SITUATION, budget, RECORD) for strategy in SOME]
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise TimeoutError

    choice = choose(RECORD, outcomes, budget, check=check)
    best = min(outcomes, key=lambda outcome: (outcome.unseen, outcome.trial.cost))
    assert (choice.name, tuple(choice.trees), choice.complete) == (best.name, best.trees, False)
