"""The order of writes that bring a switch from held entries to desired ones: make before break.

A target may reorder the updates of one Write, so updates that depend on each other never share a
step, and each step is written when the one before has been answered. Entries that others point at
come first: groups, then the tables at the end of a packet's way (host ports, routes, leaves), then
the tables before them from the last to the first, then the table of the way's start.
Removal is the same backwards.

Entries of the generic table of attributes (`EVENT`) overlap, and the highest priority wins. Where
rows change in their place, new ones are written from the highest priority to the lowest, a step
each, then those that change, then old ones are removed from the lowest to the highest. So where a
new entry wins it is the one that wins in the end, and where an old one wins it is the one that won
before: every event has its old or its new outcome at any time. That costs as many steps as there
are priorities among new and old entries, whatever their number: at most 1057, and some dozens where
rules ask for two attributes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import filterfalse
from operator import or_
from typing import Literal

from stackcast.udfs.network.programs import EVENT, PASSES, STATES, VALUES
from stackcast.udfs.switches.entry import GROUPS, Difference, SwitchEntry, canonical, group_id
from stackcast.udfs.switches.ports import groups_of

Kind = Literal["insert", "modify", "delete"]
Rank = tuple[int, int]

#: Names of the parameters that are masks of ports.
_PORT_MASKS = ("ports", "links", "hosts")
_START = ".start"
_LAST = re.compile(r"\.(route|bridged)\.|\.leaf$")
_DEPTH = re.compile(r"^(.*\.)[a-z]+_(\d+)$")
_POSITION = re.compile(r"\.label_\d+\.")


@dataclass(frozen=True)
class WriteStep:
    """Updates of one kind that do not depend on each other, in any order."""

    kind: Kind
    entries: tuple[SwitchEntry, ...]


def write_steps(
    difference: Difference,
    tables: Sequence[str] = (),
    full: Collection[str] = (),
    held: Iterable[SwitchEntry] | None = None,
) -> list[WriteStep]:
    """Splits a difference of one switch into steps, to be taken one after the other.

    ``tables`` are the program's tables in the order of its P4Info, which is the way of a packet.
    From tables ``full`` (see :func:`full_tables`) old entries are removed before any is inserted:
    they cannot hold both. ``held``: entries that the switch holds, if that is known. Rows of
    `EVENT` that no pass of these takes, as a write that was cut off leaves them, are removed or
    changed first, too.
    """
    taken = None if held is None else _rows_taken(held)

    def idle(entry: SwitchEntry) -> bool:
        return taken is not None and entry.table == EVENT and entry.match[0][2] not in taken

    early = [entry for entry in difference.delete if idle(entry) or entry.table in full]
    late = [e for e in difference.delete if not idle(e) and e.table not in full]
    return [
        *reversed(_ranked("delete", early, tables)),
        *_ranked("modify", filter(idle, difference.modify), tables),
        *_ranked("insert", difference.insert, tables),
        *_ranked("modify", filterfalse(idle, difference.modify), tables),
        *reversed(_ranked("delete", late, tables)),
    ]


def _rows_taken(held: Iterable[SwitchEntry]) -> set[bytes]:
    """Returns the numbers of the rows that an event meets, from pass 0 on."""
    passes = {e.match[0][2]: dict(e.params) for e in held if e.table == PASSES}
    found: set[bytes] = set()
    number = canonical(0)
    while taken := passes.pop(number, None):
        found.add(taken["rows"])
        number = taken["next"]
    return found


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
    if table == STATES or table.startswith(("egress.", VALUES)) or _LAST.search(table):
        return 1, 0
    if _is_stop(entry):
        # While tables are refilled, a tree without the stops that prune it would reach too many.
        return 2, 0
    if table == EVENT:
        # What is modified keeps its place among the others, so the order does not matter.
        return 4, 0 if kind == "modify" else -entry.priority
    if _is_start(entry):
        return 6, 0
    if table == PASSES:
        return 5, 0
    return 3, -position.get(_family(table), 0)


def _family(table: str) -> str:
    """Names the tables whose entries do not point at each other: of one stage, and of all
    labels."""
    if _POSITION.search(table):
        return _POSITION.sub(".label.", table)
    depth = _DEPTH.match(table)
    return depth[1] + depth[2] if depth else table.rpartition(".")[0]


def withheld(step: WriteStep, failed: Iterable[SwitchEntry]) -> tuple[SwitchEntry, ...]:
    """Return the entries of a step that must not be written because an earlier update failed.

    - Tables with a common start are one state machine. If an entry of it could not be written, the
      old states stay in use: its start is not changed, and none of its entries is deleted.
    - An entry of `EVENT` is only right together with the entries of higher priority, so no other
      entry of this table is written.
    - If a group could not be written, entries that send to it are not written either. The same
      holds for a port whose stop could not be written. What such an entry replaces stays in use.
    - A group is not deleted if any entry of a table failed, because the old entry may send to it.

    Args:
        step: updates to write.
        failed: entries of earlier steps that were refused or withheld.
    """
    failed = list(failed)
    machines = {_machine(entry.table) for entry in failed} - {""}
    event_failed = any(entry.table == EVENT for entry in failed)
    delete = step.kind == "delete"
    groups_in_use = any(entry.table != GROUPS for entry in failed)
    missing_groups = {group_id(entry) for entry in failed if entry.table == GROUPS}
    missing_stops = reduce(or_, (_ports(entry) for entry in failed if _is_stop(entry)), 0)

    def is_withheld(entry: SwitchEntry) -> bool:
        if entry.table == GROUPS:
            return delete and groups_in_use
        if event_failed and entry.table == EVENT:
            return True
        if _machine(entry.table) in machines and (delete or _is_start(entry)):
            return True
        if delete or _is_stop(entry):
            return False
        ports = _ports(entry)
        return bool(ports & missing_stops) or not missing_groups.isdisjoint(groups_of(ports))

    return tuple(filter(is_withheld, step.entries)) if failed else ()


def _ports(entry: SwitchEntry) -> int:
    """Return the mask of all ports that an entry of a table names."""
    masks = (int.from_bytes(value, "big") for name, value in entry.params if name in _PORT_MASKS)
    return reduce(or_, masks, 0)


def _is_stop(entry: SwitchEntry) -> bool:
    return entry.action.endswith(".stop")


def _is_start(entry: SwitchEntry) -> bool:
    """Returns True for the entry that says where a packet's way through a machine begins."""
    if entry.table == PASSES:
        return not int.from_bytes(entry.match[0][2], "big")
    return entry.table.endswith(_START)


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
        (
            f"switch {switch!r}: table {table!r} needs {number} entries, but its program allows "
            f"{sizes[table]}"
        )
        for table, number in sorted(count.items())
        if _over(number, sizes.get(table))
    ]
    if _over(rules, max_rules):
        errors.append(
            f"switch {switch!r}: all tables together need {rules} entries, but max_rules of the "
            f"switch allows {max_rules}"
        )
    if _over(groups, max_groups):
        errors.append(
            f"switch {switch!r}: {groups} multicast groups are needed, but max_groups of the "
            f"switch allows {max_groups}"
        )
    return errors


def _over(number: int, limit: int | None) -> bool:
    return bool(limit is not None and number > limit)
