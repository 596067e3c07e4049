"""A step of a retuning stands in the table, whoever writes it at the same time."""

from __future__ import annotations

from typing import Any

import pytest

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.retune import writing
from stackcast.jobs.adapters.retune.deployment import Deployment
from stackcast.jobs.adapters.retune.options import RetuneOptions
from stackcast.udfs.errors import TableError
from stackcast.udfs.network.rows import tree_from_row, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit


class Trees:
    """Table ``virtual_trees``; another run retires tree 1 before our first commit."""

    def __init__(self, tree: VirtualTree) -> None:
        self.held = {tree.id: tree_to_row(tree)}
        self.commits = 0

    def version(self, name: str) -> int:
        assert name == "virtual_trees"
        return self.commits

    def rows(self, name: str, version: int) -> list[dict[str, Any]]:
        assert version == self.version(name)
        return [dict(row) for row in self.held.values()]

    def merge(
        self, name: str, changed: list[dict[str, Any]], gone: Any, keys: Any, onto: int
    ) -> bool:
        self.commits += 1
        if self.commits == 1:
            self.held[1]["state"] = "retired"
            return False
        assert onto == self.commits - 1
        self.held |= {row[keys[0]]: row for row in changed}
        return True


def writer(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[writing.TreeWriter, Trees, VirtualTree]:
    """One whose table has a tree that is to go, and the tree."""
    network = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
    (broadcast, *_) = broadcast_trees(network)
    tree = VirtualTree(1, broadcast.edges, "broadcast", "retiring")
    budget = dict.fromkeys(network.switches, 5)
    monkeypatch.setattr(writing, "read_deployment", lambda *_: Deployment(network, {}, budget, []))
    trees = Trees(tree)
    made = writing.TreeWriter(trees, Settings(), RetuneOptions())  # type: ignore[arg-type]
    return made, trees, tree


def test_a_tree_that_another_run_retired_meanwhile_is_not_reported_as_active(monkeypatch):
    made, trees, tree = writer(monkeypatch)
    step = made.step({tree.edges: "broadcast"})
    # It is stored anew, under an id of its own.
    assert not step.moved
    assert [(each.edges, each.state) for each in step.installed] == [(tree.edges, "installing")]
    states = {number: tree_from_row(row).state for number, row in trees.held.items()}
    assert states == {1: "retired", step.installed[0].id: "installing"}


def test_who_may_not_write_any_more_is_asked_each_time_before_it_writes(monkeypatch):
    made, trees, tree = writer(monkeypatch)
    asked = []

    def may_write() -> None:
        asked.append(trees.commits)
        if trees.commits:
            raise TableError("FENCED", "a newer run has begun")

    with pytest.raises(TableError, match="FENCED"):
        made.step({tree.edges: "broadcast"}, may_write)
    assert asked == [0, 1]
    assert {n: row["state"] for n, row in trees.held.items()} == {1: "retired"}


@pytest.mark.parametrize(
    "error, tries",
    [
        (StorageError("another protocol version", conflict=True), 2),
        (StorageError("/data/concurrent/virtual_trees: the disk is full"), 1),
    ],
)
def test_a_commit_is_tried_again_after_a_conflict_and_after_no_other_error(
    error: Exception, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, trees, tree = writer(monkeypatch)
    write, failed = trees.merge, []

    def failing(*arguments: Any) -> bool:
        failed.append(error)
        if len(failed) == 1:
            raise error
        return write(*arguments)

    monkeypatch.setattr(trees, "merge", failing)
    trees.commits = 1  # no other run retires the tree
    if tries == 1:
        with pytest.raises(StorageError, match="the disk is full"):
            made.step({tree.edges: "broadcast"})
    else:
        made.step({tree.edges: "broadcast"})
    assert len(failed) == tries
