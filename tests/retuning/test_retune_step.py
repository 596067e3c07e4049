"""A step of a retuning stands in the table, whoever writes it at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from jobs.adapters.retune.retune import Retuner
from udfs.network.rows import tree_from_row, tree_to_row
from udfs.network.topology import fabric
from udfs.network.virtual_tree import VirtualTree
from udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit


class Trees:
    """Table ``virtual_trees``; another run retires tree 1 before our first commit."""

    def __init__(self, tree: VirtualTree) -> None:
        self.held = {tree.id: tree_to_row(tree)}
        self.commits = 0

    def rows(self, name: str) -> list[dict[str, Any]]:
        assert name == "virtual_trees"
        return [dict(row) for row in self.held.values()]

    def move_and_add(
        self,
        name: str,
        key: str,
        column: str,
        moves: Mapping[int, tuple[dict[str, Any], str]],
        added: list[dict[str, Any]],
    ) -> None:
        """As `Tables.move_and_add`: rows that do not hold the text any more stay as they are."""
        self.commits += 1
        if self.commits == 1:
            self.held[1]["state"] = "retired"
        for number, (row, after) in moves.items():
            if self.held[number][column] == row[column]:
                self.held[number][column] = after
        for row in added:
            self.held.setdefault(row[key], row)


def test_a_tree_that_another_run_retired_meanwhile_is_not_reported_as_active(monkeypatch):
    network = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
    (broadcast, *_) = broadcast_trees(network)
    tree = VirtualTree(1, broadcast.edges, "broadcast", "retiring")
    trees = Trees(tree)
    made = Retuner.__new__(Retuner)
    made._tables = trees  # type: ignore[assignment]
    budget = dict.fromkeys(network.switches, 5)
    monkeypatch.setattr(made, "_read", lambda: (network, budget, []))
    step = made.step({tree.edges: "broadcast"})
    # It is stored anew, under an id of its own.
    assert not step.moved
    assert [(each.edges, each.state) for each in step.installed] == [(tree.edges, "installing")]
    states = {number: tree_from_row(row).state for number, row in trees.held.items()}
    assert states == {1: "retired", step.installed[0].id: "installing"}
