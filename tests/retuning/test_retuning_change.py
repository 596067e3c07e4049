"""A change of trees pays, keeps to its cap and to the budgets, and is made once."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.network.topology import fabric
from stackcast.udfs.retuning.change import TreeChange, plan_change
from stackcast.udfs.retuning.comparison import Trial
from stackcast.udfs.retuning.steps import rules
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.strategies.strategy import Edges, TreeCapacity, uniform

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=2)
HOSTS = sorted(NETWORK.subscribers())


def some_tree(seed: int) -> Edges:
    lots = random.Random(seed)
    return steiner_tree(NETWORK, lots.sample(HOSTS, lots.randint(2, len(HOSTS))))


TREES = list(dict.fromkeys(map(some_tree, range(40))))


class Costs:
    """Replays of made-up publications: each tree saves what it is said to."""

    def __init__(self, savings: dict[Edges, int], base: int = 10_000) -> None:
        self.savings, self.base, self.replays = savings, base, 0

    def __call__(self, trees: Sequence[Edges]) -> Trial:
        self.replays += 1
        uses = {edges: self.savings.get(edges, 0) for edges in trees}
        return Trial(self.base - sum(uses.values()), uses=uses)


def fitting(trees: Sequence[Edges], budget: dict[str, int]) -> dict[Edges, str]:
    capacity = TreeCapacity(NETWORK, budget)
    wanted = {}
    for edges in trees:
        if capacity.fits(edges):
            capacity.reserve(edges)
            wanted[edges] = "test"
    return wanted


def within(change: TreeChange, budget: dict[str, int]) -> bool:
    capacity = TreeCapacity(NETWORK, budget)
    for edges in change.wanted:
        capacity.reserve(edges)
    return all(left >= 0 for left in capacity.left.values())


@examples(200)
@given(st.data())
def test_a_change_saves_bytes_or_is_none_and_keeps_to_budget_and_cap(data: st.DataObject):
    budget = uniform(NETWORK, data.draw(st.integers(0, 6)))
    pick = st.lists(st.sampled_from(TREES), unique=True, max_size=12)
    standing = fitting(data.draw(pick), budget)
    target = fitting(data.draw(pick), budget)
    worth = st.integers(-200, 400)
    costs = Costs({edges: data.draw(worth) for edges in {**standing, **target}})
    cap = data.draw(st.none() | st.integers(0, 40))
    least = data.draw(st.sampled_from([0.0, 0.01, 0.05]))
    change = plan_change(NETWORK, standing, target, budget, costs, cap, least)
    assert within(change, budget)
    assert change.before == costs(list(standing)).cost
    assert change.after == costs(list(change.wanted)).cost
    assert change.rules == sum(rules(NETWORK, e) for e in (*change.added, *change.removed))
    assert change.forced == 0 and (cap is None or change.rules <= cap)
    if change.rules:
        assert change.after < change.before
        assert change.before - change.after > least * change.before
    else:
        assert change.wanted == standing
    again = plan_change(NETWORK, change.wanted, target, budget, costs, cap, least)
    assert again.after <= change.after


def test_a_change_that_was_made_is_not_made_again():
    budget = uniform(NETWORK, 3)
    target = fitting(TREES[10:20], budget)
    costs = Costs(dict.fromkeys(target, 300))
    change = plan_change(NETWORK, fitting(TREES[:10], budget), target, budget, costs)
    assert change.added
    again = plan_change(NETWORK, change.wanted, target, budget, costs)
    assert (again.added, again.removed, again.rules) == ((), (), 0)


def test_little_is_changed_where_there_is_little_to_save():
    budget = uniform(NETWORK, 9)
    old, new = fitting(TREES[:3], budget), fitting(TREES[3:6], budget)
    tiny = plan_change(NETWORK, old, new, budget, Costs(dict.fromkeys(new, 30)), None, 0.01)
    assert tiny.rules == 0 and tiny.wanted == old
    # One of them saves much, the others next to nothing: only that one comes.
    costs = Costs(dict.fromkeys(new, 10) | {next(iter(new)): 2_000})
    change = plan_change(NETWORK, old, new, budget, costs)
    assert change.added == (next(iter(new)),) and change.removed == ()


def test_trees_go_only_for_the_room_of_better_ones():
    budget = uniform(NETWORK, 1)
    whole = steiner_tree(NETWORK, HOSTS)
    small = steiner_tree(NETWORK, HOSTS[:2])
    change = plan_change(
        NETWORK, {whole: "broadcast"}, {small: "tree"}, budget, Costs({whole: 500, small: 900})
    )
    assert (change.added, change.removed) == ((small,), (whole,))
    worse = plan_change(
        NETWORK, {whole: "broadcast"}, {small: "tree"}, budget, Costs({whole: 900, small: 500})
    )
    assert worse.rules == 0
    roomy = plan_change(
        NETWORK,
        {whole: "broadcast"},
        {small: "tree"},
        uniform(NETWORK, 2),
        Costs({whole: 500, small: 900}),
    )
    assert (roomy.added, roomy.removed) == ((small,), ())


def test_the_cap_is_spent_on_what_saves_most_for_its_rules():
    budget = uniform(NETWORK, 9)
    new = fitting(TREES[:8], budget)
    best = min(new, key=lambda edges: (rules(NETWORK, edges), sorted(edges)))
    costs = Costs(dict.fromkeys(new, 200) | {best: 2_000})
    change = plan_change(NETWORK, {}, new, budget, costs, rules(NETWORK, best))
    assert change.added == (best,)
    nothing = plan_change(NETWORK, {}, new, budget, costs, 0)
    assert nothing.rules == 0 and nothing.after == nothing.before


def test_a_smaller_budget_forces_out_the_least_worth():
    old = fitting(TREES[:6], uniform(NETWORK, 6))
    costs = Costs({edges: 100 * n for n, edges in enumerate(old)})
    budget = uniform(NETWORK, 2)
    change = plan_change(NETWORK, old, {}, budget, costs, 0)
    assert within(change, budget) and change.forced == change.rules > 0
    assert list(old)[-1] in change.wanted
    # What limits force out is a cost, and no saving.
    assert change.before == costs(list(old)).cost < change.after and change.saving < 0
    assert change.left == change.after == costs(list(change.wanted)).cost


def test_few_replays_are_enough():
    budget = uniform(NETWORK, 30)
    costs = Costs(dict.fromkeys(TREES, 50))
    plan_change(NETWORK, {}, fitting(TREES, budget), budget, costs)
    assert costs.replays <= 14
