"""The subscriptions of a stream from version to version: checked and compiled where they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, compress, count
from operator import ne
from typing import overload

from stackcast.udfs.filters.compiler.compile import Order, table_of_rules
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.grouped import Grouped, GroupedCompiler
from stackcast.udfs.filters.subscriptions import (
    CheckedRule,
    CheckedRules,
    Rejection,
    Subscription,
    check,
)
from stackcast.udfs.messages.specification import Specification

_Place = tuple[Sequence[CheckedRule], int]
_Live = tuple[Sequence[CheckedRule], list[Rejection], Grouped]


class LiveRules:
    """Keeps the rule or the rejection of each subscription, and a compiler of live rules.

    ``publisher``: the host that sends. ``order``: of the fields' tables, as of
    ``compile_rules``.
    """

    def __init__(
        self, specification: Specification, publisher: str, order: Order = "specification"
    ) -> None:
        self._specification = specification
        self._publisher = publisher
        self._order = order
        self._compiler = GroupedCompiler(specification, order)
        self._hosts: set[str] = set()
        self._grants: Grants | None = None
        self._rows: Sequence[Subscription] = ()
        self._live: dict[str, _Place] = {}
        self._rejected: dict[str, Rejection] = {}
        # Those whose rules update variables, or were rejected for how they do.
        self._updating: set[str] = set()
        # What came of these rows and hosts: another network may have the same.
        self._last: _Live | None = None

    def update(
        self,
        subscriptions: Sequence[Subscription],
        hosts: set[str],
        grants: Grants | None = None,
    ) -> _Live:
        """Returns the live rules, the rejections, and the filter of a new version.

        No two ``subscriptions`` have the same id. ``hosts``: names that may receive. ``grants``:
        the same object as long as they are the same.
        """
        rows = tuple(subscriptions)
        before, now = differing(self._rows, rows)
        same = hosts == self._hosts and grants is self._grants
        if self._last is not None and not before and not now and same:
            return self._last
        were, are = ({row.id: row for row in part} for part in (before, now))
        lost = were.keys() - are.keys()
        changed: Sequence[Subscription] = rows
        if same:
            changed = [row for row in now if were.get(row.id) != row]
        rules, rejections = check(changed, self._specification, hosts, self._publisher, grants)
        updating = _updating(rules, rejections)
        touched = {row.id for row in changed} | lost
        others = self._updating - touched
        if others and (updating or self._updating & touched):
            # Whether they fit together is for all of them to say.
            changed = [row for row in rows if row.id in touched or row.id in others]
            rules, rejections = check(changed, self._specification, hosts, self._publisher, grants)
            updating, others = _updating(rules, rejections), set()
        names = rules.ids if isinstance(rules, CheckedRules) else [rule.id for rule in rules]
        live, rejected = self._live.copy(), self._rejected.copy()
        for name in chain(lost, (row.id for row in changed)):
            live.pop(name, None)
            rejected.pop(name, None)
        live |= {name: (rules, at) for at, name in enumerate(names)}
        rejected |= {rejection.id: rejection for rejection in rejections}
        gone = [
            name
            for name in chain(lost, (row.id for row in changed))
            if name in self._live and name not in live
        ]
        table = table_of_rules(rules, self._specification)

        def whole() -> tuple[Sequence[str], TermTable]:
            if len(names) == len(live):
                return names, table
            every, _ = check(rows, self._specification, hosts, self._publisher, grants)
            return [rule.id for rule in every], table_of_rules(every, self._specification)

        grouped = self._compiler.update_table(names, table, gone, whole)
        self._hosts, self._grants = hosts, grants
        self._rows, self._live, self._rejected = rows, live, rejected
        self._updating = others | updating
        refused = [rejected[row.id] for row in rows if row.id in rejected] if rejected else []
        self._last = _Rules(rows, live), refused, grouped
        return self._last


def differing(
    old: Sequence[Subscription], new: Sequence[Subscription]
) -> tuple[list[Subscription], list[Subscription]]:
    """Returns the rows of both that do not stand at the same place, as seen from one of the ends.

    Compares neighbours in memory, which for many rows is much quicker than looking them up.
    """
    shorter = min(len(old), len(new))
    head = next(compress(count(), map(ne, old, new)), shorter)
    tail = next(compress(count(), map(ne, reversed(old), reversed(new))), shorter)
    tail = min(tail, shorter - head)
    parts = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(old) != len(new):
        return list(parts[0]), list(parts[1])
    unlike = list(map(ne, *parts))
    return list(compress(parts[0], unlike)), list(compress(parts[1], unlike))


def _updating(rules: Sequence[CheckedRule], rejections: Sequence[Rejection]) -> set[str]:
    found: Iterable[CheckedRule] = rules
    if isinstance(rules, CheckedRules):
        trees = rules.trees
        found = (rules[at] for at, number in enumerate(rules.numbers) if number in trees)
    mixed = {r.id for r in rejections if r.code == "SUBSCRIPTION.MIXED_UPDATES"}
    return mixed.union(rule.id for rule in found if rule.updates)


class _Rules(Sequence[CheckedRule]):
    """Lists the live rules in the order of their rows; those that nobody asks for stay texts."""

    def __init__(self, rows: Sequence[Subscription], live: Mapping[str, _Place]) -> None:
        self._rows = rows
        self._live = live

    @cached_property
    def _places(self) -> Sequence[_Place]:
        return [self._live[row.id] for row in self._rows if row.id in self._live]

    def __len__(self) -> int:
        return len(self._live)

    @overload
    def __getitem__(self, index: int) -> CheckedRule: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CheckedRule]: ...
    def __getitem__(self, index: int | slice) -> CheckedRule | Sequence[CheckedRule]:
        if isinstance(index, slice):
            return [rules[at] for rules, at in self._places[index]]
        rules, at = self._places[index]
        return rules[at]
