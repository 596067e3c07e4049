"""The order of writes that bring a switch from held entries to desired ones: make before break.

A target may reorder the updates of one Write, so updates that depend on each other never share a
step, and each step is written when the one before has been answered. Entries that others point at
come first: groups, then the tables at the end of a packet's way (host ports, routes, leaves), then
the tables before them from the last to the first, then the table of the way's start.
Removal is the same backwards.

Entries of the generic table of attributes (`EVENT`) overlap, and the highest priority wins. New
ones are written from the highest priority to the lowest, a step each, then those that change, then
old ones are removed from the lowest to the highest. So where a new entry wins it is the one that
wins in the end, and where an old one wins it is the one that won before: every event has its old or
its new outcome at any time. That costs as many steps as there are priorities among new and old
entries, whatever their number: at most 1057, and some dozens where rules ask for two attributes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from udfs.network.programs import EVENT
from udfs.switches.entry import GROUPS, Difference, SwitchEntry

Kind = Literal["insert", "modify", "delete"]
Rank = tuple[int, int]

_START = ".start"
_DEPTH = re.compile(r"^(.*\.)[a-z]+_(\d+)$")
_POSITION = re.compile(r"\.label_\d+\.")


@dataclass(frozen=True)
class WriteStep:
    """Updates of one kind that do not depend on each other, in any order."""

    kind: Kind
    entries: tuple[SwitchEntry, ...]


def write_steps(
    difference: Difference, tables: Sequence[str] = (), full: Collection[str] = ()
) -> list[WriteStep]:
    """Splits a difference of one switch into steps, to be taken one after the other.

    ``tables`` are the program's tables in the order of its P4Info, which is the way of a packet.
    From tables ``full`` (see :func:`full_tables`) old entries are removed before any is inserted:
    they cannot hold both.
    """
    early = [entry for entry in difference.delete if entry.table in full]
    late = [entry for entry in difference.delete if entry.table not in full]
    return [
        *reversed(_ranked("delete", early, tables)),
        *_ranked("insert", difference.insert, tables),
        *_ranked("modify", difference.modify, tables),
        *reversed(_ranked("delete", late, tables)),
    ]


def _ranked(kind: Kind, entries: Iterable[SwitchEntry], tables: Sequence[str]) -> list[WriteStep]:
    position = {_family(table): number for number, table in enumerate(tables)}
    by_rank: dict[Rank, list[SwitchEntry]] = defaultdict(list)
    for entry in entries:
        by_rank[_rank(kind, entry, position)].append(entry)
    return [WriteStep(kind, tuple(by_rank[rank])) for rank in sorted(by_rank)]


def _rank(kind: Kind, entry: SwitchEntry, position: Mapping[str, int]) -> Rank:
    """Returns the rank of an entry; low ranks are inserted first."""
    table = entry.table
    if table == GROUPS:
        return 0, 0
    if table.startswith("egress.") or ".route." in table or table.endswith(".leaf"):
        return 1, 0
    if entry.action.endswith(".stop"):
        # While tables are refilled, a tree without the stops that prune it would reach too many.
        return 2, 0
    if table == EVENT:
        # What is modified keeps its place among the others, so the order does not matter.
        return 4, 0 if kind == "modify" else -entry.priority
    if table.endswith(_START):
        return 4, 0
    return 3, -position.get(_family(table), 0)


def _family(table: str) -> str:
    """Names the tables whose entries do not point at each other: of one stage, and of all
    labels."""
    if _POSITION.search(table):
        return _POSITION.sub(".label.", table)
    depth = _DEPTH.match(table)
    return depth[1] + depth[2] if depth else table.rpartition(".")[0]


def withheld(step: WriteStep, failed: Iterable[SwitchEntry]) -> tuple[SwitchEntry, ...]:
    """Returns entries that a step must leave as they are, as an update before it has failed.

    Tables with a common start are one machine of states: an entry of it that could not be
    written may leave the old states in use, so none is removed. Of `EVENT` nothing more is written
    either: an entry stands for all below it that lack their groups or the entries above them.
    Entries of other tables stand for themselves, but a group may be pointed at by any that was not
    modified.
    """
    failed = list(failed)
    if any(entry.table in (EVENT, GROUPS) for entry in failed):
        overlapping = tuple(entry for entry in step.entries if entry.table == EVENT)
    else:
        overlapping = ()
    if step.kind != "delete":
        return overlapping
    troubled = {_machine(entry.table) for entry in failed} - {""}
    groups = any(entry.table != GROUPS for entry in failed)
    return overlapping + tuple(
        entry
        for entry in step.entries
        if _machine(entry.table) in troubled or (groups and entry.table == GROUPS)
    )


def _machine(table: str) -> str:
    """Returns the control that a table of a state machine is part of; empty for any other."""
    head, found, _ = table.partition(".subscriptions.")
    return head + found if found else ""


def full_tables(
    difference: Difference,
    held: Iterable[SwitchEntry],
    sizes: Mapping[str, int],
    max_rules: int | None = None,
    max_groups: int | None = None,
) -> frozenset[str]:
    """Returns tables that cannot hold new entries beside those that go. Limits as for
    :func:`check_limits`."""
    count = Counter(entry.table for entry in held)
    count.update(entry.table for entry in difference.insert)
    going = {entry.table for entry in difference.delete}
    rules = sum(number for table, number in count.items() if table != GROUPS)
    full = {table for table in going if _over(count[table], sizes.get(table))}
    if _over(rules, max_rules):
        full |= going - {GROUPS}
    if GROUPS in going and _over(count[GROUPS], max_groups):
        full.add(GROUPS)
    return frozenset(full)


def check_limits(
    switch: str,
    entries: Collection[SwitchEntry],
    sizes: Mapping[str, int],
    max_rules: int | None = None,
    max_groups: int | None = None,
) -> list[str]:
    """Checks the entries that a switch should hold against its limits: a sentence for each
    exceeded.

    sizes: entries that a table of the program can hold; 0 or absent: not said. max_rules: entries
    of all tables. max_groups: multicast groups. None: not said.
    """
    count = Counter(entry.table for entry in entries)
    groups = count.pop(GROUPS, 0)
    rules = count.total()
    errors = [
        f"switch {switch!r}: table {table!r} should hold {number} entries, its program allows "
        f"{sizes[table]}"
        for table, number in sorted(count.items())
        if _over(number, sizes.get(table))
    ]
    if _over(rules, max_rules):
        errors.append(
            f"switch {switch!r}: all tables together should hold {rules} entries, max_rules of "
            f"its row allows {max_rules}"
        )
    if _over(groups, max_groups):
        errors.append(
            f"switch {switch!r}: it should hold {groups} multicast groups, max_groups of its row "
            f"allows {max_groups}"
        )
    return errors


def _over(number: int, limit: int | None) -> bool:
    return bool(limit is not None and number > limit)
