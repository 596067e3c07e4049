"""Succession of one network by another in the same tables: rows that stay, come, go and change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stackcast.udfs.network.labels import LabelFormat
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import STACKS, check_labels
from stackcast.udfs.network.rows import (
    Row,
    host_to_row,
    link_to_row,
    switch_to_row,
    tree_from_row,
    with_states,
)
from stackcast.udfs.network.virtual_tree import stored

KEYS: Mapping[str, str] = {"switches": "switch", "hosts": "host", "links": "link_id"}
"""The tables of a network, and the column that names a row."""

_ENDS = ("switch", "port", "neighbor", "neighbor_port")


@dataclass(frozen=True)
class SwitchSettings:
    """Settings of the switches that people choose; None leaves a column as it is in the table.

    addresses: P4Runtime address of each switch; ``default_addresses`` for those that the table has
    not. pipeline: the program of all switches; by default one that reads the network's labels.
    """

    default_addresses: Mapping[str, str]
    addresses: Mapping[str, str] | None = None
    pipeline: str | None = None
    max_rules: int | None = None


@dataclass(frozen=True)
class RowChanges:
    """Counts the rows of a table that are new, gone and changed."""

    added: int
    removed: int
    changed: int

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        return f"{self.added} new, {self.removed} gone, {self.changed} changed"


@dataclass(frozen=True)
class Succession:
    """Holds the tables of the new network.

    rows: of ``switches``, ``hosts`` and ``links``. changes: of each table.

    retired: id and state of stored trees of the old network that the new one has no links for.
    kept_links: links that keep their id. fresh: True if all others have an id that no row had;
    else stacks of the old network must be out of use before switches take the new one.
    """

    rows: Mapping[str, list[dict[str, Any]]]
    changes: Mapping[str, RowChanges]
    retired: Mapping[int, str]
    kept_links: int
    fresh: bool

    @property
    def destroys(self) -> bool:
        """True if rows that are there go or change: a network that may be in use."""
        return any(change.removed or change.changed for change in self.changes.values())


def succession(
    network: Network,
    held: Mapping[str, Sequence[Mapping[str, Any]]],
    trees: Iterable[Row],
    choices: SwitchSettings,
) -> Succession:
    """Works out the tables when ``network`` takes the place of the one that they hold.

    A link between the same ports keeps its id and whether it is up; other links get ids that none
    of the rows has, as far as labels have room, so that stacks of the old network keep their
    meaning until they are out of use. Columns that others added keep their values in rows that
    stay. The same network again changes nothing.

    Raises NetworkError ``WRONG_PIPELINE`` for a chosen program that reads labels of another width.
    """
    numbered, kept, fresh = _numbered(network, held["links"])
    rows = {
        "switches": _switches(numbered, held["switches"], choices),
        "hosts": [host_to_row(host) for host in numbered.hosts.values()],
        "links": with_states([link_to_row(link) for link in numbered.links], held["links"]),
    }
    rows = {name: _with_added(rows[name], held[name], KEYS[name]) for name in rows}
    changes = {name: _change(rows[name], held[name], KEYS[name]) for name in rows}
    return Succession(rows, changes, _lost_trees(rows["links"], held["links"], trees), kept, fresh)


def _numbered(network: Network, held: Sequence[Row]) -> tuple[Network, int, bool]:
    """Returns the network with the ids of links that stay; their number; True if all others are
    new."""
    largest = network.labels.max_id
    before = {tuple(row[name] for name in _ENDS): row["link_id"] for row in held}
    taken = {row["link_id"] for row in held}
    ends = [(x.switch, x.port, x.neighbor, x.neighbor_port) for x in network.links]
    known = [number if (number := before.get(e, 0)) <= largest else 0 for e in ends]
    kept = sum(map(bool, known))
    fresh = _fresh(taken, len(ends) - kept, largest)
    if fresh is None:
        return network, 0, False
    numbers = iter(fresh)
    links = [
        dataclasses.replace(link, id=number or next(numbers))
        for link, number in zip(network.links, known, strict=True)
    ]
    return (
        Network.from_rows(network.switches.values(), network.hosts.values(), links, network.labels),
        kept,
        True,
    )


def _fresh(taken: set[int], count: int, largest: int) -> list[int] | None:
    """Returns so many ids that are not taken: above all that are, and only then between them."""
    top = max((number for number in taken if number <= largest), default=0)
    found = list(range(top + 1, min(top + count, largest) + 1))
    below = (number for number in range(1, top) if number not in taken)
    found += [number for number, _ in zip(below, range(count - len(found)), strict=False)]
    return found if len(found) == count else None


def _switches(
    network: Network, held: Sequence[Mapping[str, Any]], choices: SwitchSettings
) -> list[dict[str, Any]]:
    before = {row["switch"]: row for row in held}
    addresses = choices.addresses or {}
    rows = []
    for switch in network.switches.values():
        was = before.get(switch.name, {})
        row = switch_to_row(
            switch,
            addresses.get(switch.name)
            or was.get("address")
            or choices.default_addresses[switch.name],
            choices.pipeline or _pipeline(was.get("pipeline"), network.labels),
            was.get("max_rules") if choices.max_rules is None else choices.max_rules,
            was.get("max_groups"),
        )
        rows.append(row)
    check_labels({row["switch"]: row["pipeline"] for row in rows}, network.labels)
    return rows


def _pipeline(was: str | None, labels: LabelFormat) -> str:
    """Returns the program that a switch has, unless it reads labels of another width."""
    if was is not None and STACKS.get(was, labels) == labels:
        return was
    return labels.program


def _with_added(
    rows: Sequence[dict[str, Any]], held: Sequence[Mapping[str, Any]], key: str
) -> list[dict[str, Any]]:
    before = {row[key]: row for row in held}
    return [{**before.get(row[key], {}), **row} for row in rows]


def _change(
    rows: Sequence[Mapping[str, Any]], held: Sequence[Mapping[str, Any]], key: str
) -> RowChanges:
    before = {row[key]: row for row in held}
    after = {row[key]: row for row in rows}
    both = before.keys() & after.keys()
    return RowChanges(
        len(after) - len(both),
        # Two rows of one name are one too many.
        len(held) - len(both),
        sum(before[name] != after[name] for name in both),
    )


def _lost_trees(links: Sequence[Row], held: Sequence[Row], trees: Iterable[Row]) -> dict[int, str]:
    """Returns the states by id of stored trees that mean other ports, or none, now."""
    after, before = _taken_by_trees(links), _taken_by_trees(held)
    lost: dict[int, str] = {}
    for row in trees:
        tree = tree_from_row(row)
        # An edge to a host is a link one way, and one between switches both ways.
        known = [[p for p in ((u, v), (v, u)) if p in before] for u, v in tree.edges]
        same = all(found and all(before[p] == after.get(p) for p in found) for found in known)
        if stored([tree]) and not same:
            lost[tree.id] = tree.state
    return lost


def _taken_by_trees(links: Sequence[Row]) -> dict[tuple[Any, Any], tuple[Any, ...]]:
    """Returns the ends of the link that a stored tree takes from one node to another: of parallel
    ones that of the lowest ids (`Network.tree_link`)."""
    numbers: dict[Any, int] = {(row["switch"], row["port"]): row["link_id"] for row in links}

    def cable(row: Row) -> int:
        number = numbers[row["switch"], row["port"]]
        return min(number, numbers.get((row["neighbor"], row["neighbor_port"]), number))

    found: dict[tuple[Any, Any], tuple[Any, ...]] = {}
    for row in sorted(links, key=cable):
        ends = tuple(row[name] for name in _ENDS)
        found.setdefault((row["switch"], row["neighbor"]), ends)
    return found
