"""Whoever reads the tables while a network is put into them sees the old one, the new one, or none:
never a mixture; and a load that broke off anywhere is mended by doing it again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.tables.network_loading import compare, load
from stackcast.udfs.errors import NetworkError, TableError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_from_rows, tree_from_row, tree_to_row
from stackcast.udfs.network.succession import SwitchSettings
from stackcast.udfs.network.topology import fabric, jellyfish
from stackcast.udfs.network.virtual_tree import stored, tree_ports
from stackcast.udfs.switches.rollout import NetworkVersion, check_meaning
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

NAMES = ("switches", "hosts", "links", "virtual_trees")


class BrokenOffError(Exception):
    """The job was killed."""


class Memory:
    """What the loading asks of tables, in memory; it keeps each state that a reader could see."""

    location = "memory"

    def __init__(self, held: dict[str, list[dict[str, Any]]], writes: int = 99) -> None:
        self.held = copy.deepcopy(held)
        self.seen = [copy.deepcopy(held)]
        self._left = writes

    def version(self, _name: str) -> int:
        return len(self.seen)

    def rows(self, name: str, _: int | None = None) -> list[dict[str, Any]]:
        return copy.deepcopy(self.held[name])

    def overwrite(self, name: str, rows: list[dict[str, Any]]) -> None:
        self._write(name, rows)

    def merge(self, name: str, changed: list[dict[str, Any]], gone: Any, keys: Any, _: int) -> bool:
        merged = {row[keys[0]]: row for row in [*self.held[name], *changed]}
        self._write(name, list(merged.values()))
        return True

    def _write(self, name: str, rows: list[dict[str, Any]]) -> None:
        if not self._left:
            raise BrokenOffError
        self._left -= 1
        self.held[name] = copy.deepcopy(rows)
        self.seen.append(copy.deepcopy(self.held))


def choices(network: Network) -> SwitchSettings:
    return SwitchSettings(dict.fromkeys(network.switches, "h:9559"))


def put(tables: Memory, network: Network) -> None:
    load(tables, compare(tables, network, choices(network)), replace=True)  # type: ignore[arg-type]


def network_of(held: dict[str, list[dict[str, Any]]]) -> Network | None:
    try:
        return network_from_rows(held["switches"], held["hosts"], held["links"])
    except NetworkError:
        return None


def some_network(kind: int) -> Network:
    if kind < 4:
        return fabric(2, 1 + kind % 2, 1, 1, 1 + kind // 2)
    return jellyfish(4 + kind % 3, 2 + kind // 8, hosts_per_switch=1 + kind % 2, seed=kind)


@examples(40)
@given(st.integers(0, 11), st.integers(0, 11), st.integers(0, 5))
def test_nobody_sees_a_mixture_wherever_the_load_breaks_off(before: int, after: int, writes: int):
    tables = Memory({name: [] for name in NAMES})
    put(tables, some_network(before))
    old = network_of(tables.held)
    assert old is not None
    trees = [tree_to_row(tree) for tree in broadcast_trees(old, count=2)]
    tables.held["virtual_trees"] = trees
    tables = Memory(tables.held, writes)
    try:
        put(tables, some_network(after))
    except BrokenOffError:
        seen, tables = tables.seen, Memory(tables.held)
        tables.seen = seen
        put(tables, some_network(after))
    new = network_of(tables.held)
    assert new is not None
    assert list(new.switches.values()) == list(some_network(after).switches.values())
    source = NetworkVersion(new, [tree_from_row(row) for row in tables.held["virtual_trees"]])
    check_meaning(source, [NetworkVersion(old, [tree_from_row(row) for row in trees])])
    for tree in stored(source.trees):
        tree_ports(new, tree)
    for held in tables.seen:
        assert network_of(held) in (None, old, new)
        if (seen := network_of(held)) is not None:
            for tree in stored(map(tree_from_row, held["virtual_trees"])):
                tree_ports(seen, tree)
    # What is as it should be is not written again.
    count = len(tables.seen)
    put(tables, some_network(after))
    assert len(tables.seen) == count


def test_another_network_needs_permission_and_a_larger_one_none():
    tables = Memory({name: [] for name in NAMES})
    small, large = fabric(2, 1, 1, 1, 1), fabric(2, 1, 1, 1, 2)
    put(tables, small)
    load(tables, compare(tables, large, choices(large)))  # type: ignore[arg-type]
    assert len(network_of(tables.held).switches) == len(large.switches)
    with pytest.raises(TableError, match=r"NETWORK_IN_USE: memory .*switches: 0 new, 1 gone"):
        load(tables, compare(tables, small, choices(small)))  # type: ignore[arg-type]
