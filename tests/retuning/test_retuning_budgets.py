"""Budgets are what programs have room for; publications are drawn as subscribers' counts say."""

from __future__ import annotations

from collections import Counter

import pytest

from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches.capacity import Limits, tree_budgets
from stackcast.udfs.switches.entry import GROUPS
from stackcast.udfs.switches.ordering import check_limits
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
SIZES = {f"ingress.label_{n}.look_up": 1024 for n in (1, 2)}
SPINE = next(s.name for s in NETWORK.switches.values() if s.layer == "spine")


def test_a_switch_gets_as_many_trees_as_its_limits_let_it_hold():
    (tree,) = broadcast_trees(NETWORK)
    for max_rules in range(10, 60):
        programs = dict.fromkeys(NETWORK.switches, Limits(SIZES, max_rules))
        found = tree_budgets(NETWORK, programs, 40)
        for number, fits in ((found[SPINE], True), (found[SPINE] + 1, False)):
            trees = [VirtualTree(n, tree.edges, "test") for n in range(1, number + 1)]
            own = [e for e in switch_entries(NETWORK, trees, 2) if e.switch == SPINE]
            if fits and number == 0:
                continue  # it may have no room for anything
            assert (not check_limits(SPINE, own, SIZES, max_rules)) == fits


def test_tables_have_limits_too_and_other_programs_hold_no_trees():
    used = Counter(e.table for e in switch_entries(NETWORK, (), 2) if e.switch == SPINE)
    assert GROUPS in used
    labels = used["ingress.label_1.look_up"]
    programs = {SPINE: Limits(dict.fromkeys(SIZES, labels + 7)), "other": Limits(SIZES)}
    found = tree_budgets(NETWORK, programs, 40)
    assert found[SPINE] == 7
    assert sum(found.values()) == 7
    assert (
        tree_budgets(NETWORK, {SPINE: Limits({"ingress.subscriptions.start": 9})}, 40)[SPINE] == 0
    )
    assert tree_budgets(NETWORK, {SPINE: Limits(SIZES)}, 40)[SPINE] == 40
