"""Trees change in steps that never exceed a budget, whenever and however often they are cut off."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import NARROW, WIDE
from stackcast.udfs.network.network import Link, Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree, stored
from stackcast.udfs.retuning.steps import TreeStep, next_step, rules, under_way
from stackcast.udfs.trees.steiner import steiner_tree
from stackcast.udfs.trees.strategies.strategy import Edges, TreeCapacity, uniform

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=2)
HOSTS = sorted(NETWORK.subscribers())
RACK_TREES = [frozenset({tuple(sorted((NETWORK.hosts[name].switch, name)))}) for name in HOSTS]


def some_tree(seed: int) -> Edges:
    lots = random.Random(seed)
    return steiner_tree(NETWORK, lots.sample(HOSTS, lots.randint(2, len(HOSTS))))


TREES = list(dict.fromkeys(map(some_tree, range(40))))


def fitting(trees: list[Edges], budget: dict[str, int]) -> dict[Edges, str]:
    capacity = TreeCapacity(NETWORK, budget)
    wanted = {}
    for edges in trees:
        if capacity.fits(edges) and edges not in wanted:
            capacity.reserve(edges)
            wanted[edges] = "test"
    return wanted


class World:
    """The table, and a refresher that moves trees on when it likes."""

    def __init__(self, rows: list[VirtualTree], budget: dict[str, int]) -> None:
        self.rows = {tree.id: tree for tree in rows}
        self.budget = budget
        self.meaning = {tree.id: tree.edges for tree in rows}

    def write(self, step: TreeStep) -> None:
        for tree in step.installed:
            assert tree.id not in self.meaning, "an id is used again"
            assert tree.state == "installing"
            self.meaning[tree.id] = tree.edges
            self.rows[tree.id] = tree
        for number, (before, after) in step.moved.items():
            assert self.rows[number].state == before
            self.move(number, after)

    def move(self, number: int, state: str) -> None:
        tree = self.rows[number]
        self.rows[number] = VirtualTree(number, tree.edges, tree.strategy, state)

    def refresh(self, some: set[int] | None = None) -> None:
        onward = {"installing": "active", "retiring": "retired"}
        for number, tree in list(self.rows.items()):
            if tree.state in onward and (some is None or number in some):
                self.move(number, onward[tree.state])

    def load(self) -> Counter[str]:
        return Counter(
            name
            for tree in stored(self.rows.values())
            for name in {end for pair in tree.edges for end in pair} & NETWORK.switches.keys()
        )

    def holds(self) -> bool:
        return all(number <= self.budget[name] for name, number in self.load().items())

    def active(self) -> set[Edges]:
        return {tree.edges for tree in self.rows.values() if tree.state == "active"}

    def settled(self) -> bool:
        return all(tree.state in ("active", "retired") for tree in self.rows.values())


def worlds(draw: st.DrawFn, budget: dict[str, int]) -> World:
    before = fitting(draw(st.lists(st.sampled_from(TREES), max_size=12)), budget)
    states = ["active", "installing", "retiring"]
    rows = [
        VirtualTree(number, edges, "old", draw(st.sampled_from(states)))
        for number, edges in enumerate(before, 3)
    ]
    rows.append(VirtualTree(2, draw(st.sampled_from(TREES)), "old", "retired"))
    return World(rows, budget)


@examples(60)
@given(st.data())
def test_budgets_hold_at_every_moment_and_the_wanted_trees_stand_in_the_end(data: st.DataObject):
    budget = uniform(NETWORK, data.draw(st.integers(0, 5)))
    world = worlds(data.draw, budget)
    wanted = fitting(data.draw(st.lists(st.sampled_from(TREES), max_size=12)), budget)
    for _ in range(30):
        # A step is worked out from the rows alone: a crash before or after a write is no matter.
        step = next_step(NETWORK, world.rows.values(), wanted, budget)
        if data.draw(st.booleans()):
            world.write(step)
            assert world.holds()
        world.refresh(data.draw(st.sets(st.sampled_from(sorted(world.rows)))))
        assert world.holds()
    for _ in range(6):
        world.write(next_step(NETWORK, world.rows.values(), wanted, budget))
        assert world.holds()
        world.refresh()
    assert world.settled()
    assert world.active() == set(wanted)
    last = next_step(NETWORK, world.rows.values(), wanted, budget)
    assert not last.writes and last.left == 0 and not last.unfit


@examples(60)
@given(st.data())
def test_what_is_wanted_and_in_use_is_never_given_up_on_the_way(data: st.DataObject):
    budget = uniform(NETWORK, data.draw(st.integers(1, 5)))
    before = fitting(data.draw(st.lists(st.sampled_from(TREES), min_size=1)), budget)
    world = World([VirtualTree(n, e, "old") for n, e in enumerate(before, 1)], budget)
    wanted = fitting(data.draw(st.lists(st.sampled_from(TREES))), budget)
    common = {tree.id for tree in world.rows.values() if tree.edges in wanted}
    for _ in range(8):
        world.write(next_step(NETWORK, world.rows.values(), wanted, budget))
        world.refresh()
        assert all(world.rows[number].state == "active" for number in common)


def test_new_trees_are_in_use_before_the_old_ones_go():
    old, new = TREES[:2]
    world = World([VirtualTree(1, old, "old")], uniform(NETWORK, 2))
    step = next_step(NETWORK, world.rows.values(), {new: "new"}, world.budget)
    assert [tree.edges for tree in step.installed] == [new]
    assert not step.moved and step.left == 1
    world.write(step)
    waiting = next_step(NETWORK, world.rows.values(), {new: "new"}, world.budget)
    assert not waiting.writes and waiting.left == 1
    world.refresh()
    step = next_step(NETWORK, world.rows.values(), {new: "new"}, world.budget)
    assert step == TreeStep(moved={1: ("active", "retiring")})


def test_where_nothing_fits_beside_them_the_old_ones_go_first():
    old, new = TREES[:2]
    world = World([VirtualTree(1, old, "old")], uniform(NETWORK, 1))
    step = next_step(NETWORK, world.rows.values(), {new: "new"}, world.budget)
    assert step == TreeStep(moved={1: ("active", "retiring")}, left=1)
    world.write(step)
    # It still takes its room.
    assert not next_step(NETWORK, world.rows.values(), {new: "new"}, world.budget).writes
    world.refresh()
    step = next_step(NETWORK, world.rows.values(), {new: "new"}, world.budget)
    assert [tree.id for tree in step.installed] == [2]


def test_a_tree_that_stays_keeps_its_row_and_one_that_was_going_comes_back():
    rows = [VirtualTree(5, TREES[0], "old"), VirtualTree(6, TREES[1], "old", "retiring")]
    step = next_step(NETWORK, rows, dict.fromkeys(TREES[:2], "new"), uniform(NETWORK, 2))
    assert step == TreeStep(moved={6: ("retiring", "active")})


def test_ids_are_above_all_that_ever_were():
    rows = [VirtualTree(70, TREES[0], "old", "retired"), VirtualTree(3, TREES[1], "old")]
    step = next_step(NETWORK, rows, dict.fromkeys(TREES[:3], "new"), uniform(NETWORK, 9))
    assert [tree.id for tree in step.installed] == [71, 72]


def test_when_ids_run_out_wide_labels_are_the_advice():
    rows = [VirtualTree(NARROW.max_id, TREES[0], "old", "retired")]
    wanted = {TREES[1]: "new"}
    with pytest.raises(NetworkError, match="32-bit labels") as caught:
        next_step(NETWORK, rows, wanted, uniform(NETWORK, 9))
    assert caught.value.code == "NETWORK.TREE_IDS_EXHAUSTED"
    wide = Network.from_rows(
        NETWORK.switches.values(), NETWORK.hosts.values(), NETWORK.links, labels=WIDE
    )
    (tree,) = next_step(wide, rows, wanted, uniform(wide, 9)).installed
    assert tree.id == NARROW.max_id + 1


def test_ids_of_retired_trees_come_back_when_all_others_are_taken():
    rows = [
        VirtualTree(NARROW.max_id - 1, TREES[0], "old", "retired"),
        *(VirtualTree(number, TREES[0], "old", "retired") for number in (4, 7, 9)),
    ]
    wanted = dict.fromkeys(TREES[1:4], "new")
    step = next_step(NETWORK, rows, wanted, uniform(NETWORK, 9), {9, 4})
    assert [tree.id for tree in step.installed] == [NARROW.max_id, 4, 9]
    with pytest.raises(NetworkError, match="TREE_IDS_EXHAUSTED"):
        next_step(NETWORK, rows, dict.fromkeys(TREES[1:5], "new"), uniform(NETWORK, 9), {9, 4})


def without(network: Network, pair: tuple[str, str]) -> Network:
    links = [link for link in network.links if {link.switch, link.neighbor} != set(pair)]
    return Network.from_rows(network.switches.values(), network.hosts.values(), links)


def test_a_tree_that_lost_a_link_is_retired_and_one_over_a_failed_link_stays():
    spines = {s.name for s in NETWORK.switches.values() if s.layer == "spine"}
    tree, pair = next((t, pair) for t in TREES for pair in sorted(t) if spines & set(pair))
    rows = [VirtualTree(1, tree, "old"), VirtualTree(2, tree, "old", "retiring")]
    lost = without(NETWORK, pair)
    step = next_step(lost, rows, {tree: "old"}, uniform(lost, 9))
    assert step == TreeStep(moved={1: ("active", "retired"), 2: ("retiring", "retired")})
    failed = [
        Link(x.id, x.switch, x.port, x.neighbor, x.neighbor_port, x.weight, False)
        if {x.switch, x.neighbor} == set(pair)
        else x
        for x in NETWORK.links
    ]
    down = Network.from_rows(NETWORK.switches.values(), NETWORK.hosts.values(), failed)
    assert not next_step(down, rows[:1], {tree: "old"}, uniform(down, 9)).writes


def test_what_has_no_room_at_all_is_told():
    step = next_step(NETWORK, [], {TREES[0]: "new"}, uniform(NETWORK, 0))
    assert step == TreeStep(unfit=(TREES[0],))


def test_a_tree_costs_a_rule_in_each_of_its_switches():
    assert [rules(NETWORK, edges) for edges in RACK_TREES] == [1] * len(RACK_TREES)


def test_rules_are_under_way_until_switches_hold_them_or_do_no_more():
    one, two, three, four = TREES[:4]
    rows = [
        VirtualTree(1, one, "test", "installing"),
        VirtualTree(2, two, "test", "active"),
        VirtualTree(3, three, "test", "retiring"),
        VirtualTree(4, four, "test", "retired"),
    ]
    assert under_way(NETWORK, rows) == rules(NETWORK, one) + rules(NETWORK, three)
