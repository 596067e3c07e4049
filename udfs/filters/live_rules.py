"""The subscriptions of a stream from version to version: checked and compiled where they change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from udfs.filters.compile import CompiledFilter, Order, compile_rules, table_of_rules
from udfs.filters.incremental import IncrementalCompiler
from udfs.filters.subscriptions import CheckedRule, CheckedRules, Rejection, Subscription, check
from udfs.messages.specification import Specification

_Place = tuple[Sequence[CheckedRule], int]


class LiveRules:
    """Keeps what came of each subscription, and a compiler of those that are live.

    ``publisher``: the host that sends. ``order``: of the fields' tables, as of
    ``IncrementalCompiler``.
    """

    def __init__(
        self, specification: Specification, publisher: str, order: Order = "specification"
    ) -> None:
        self._specification = specification
        self._publisher = publisher
        self._order = order
        self._compiler = IncrementalCompiler(specification, order=order)
        self._hosts: set[str] = set()
        self._rows: dict[str, Subscription] = {}
        self._live: dict[str, _Place] = {}
        self._rejected: dict[str, Rejection] = {}
        # Those whose rules update variables, or were rejected for how they do.
        self._updating: set[str] = set()

    def update(
        self, subscriptions: Sequence[Subscription], hosts: set[str]
    ) -> tuple[Sequence[CheckedRule], list[Rejection], CompiledFilter]:
        """The rules that are live, the rejections, and the filter of a new version.

        ``hosts``: who may receive. Errors: ``FilterError`` TOO_LARGE; the last version is then
        what the next update starts from.
        """
        rows = {row.id: row for row in subscriptions}
        if len(rows) < len(subscriptions):
            # Ids that are there twice cannot say what has changed.
            rules, rejections = check(subscriptions, self._specification, hosts, self._publisher)
            return rules, rejections, compile_rules(rules, self._specification, order=self._order)
        same = self._rows if hosts == self._hosts else {}
        changed = [row for name, row in rows.items() if same.get(name) != row]
        rules, rejections = check(changed, self._specification, hosts, self._publisher)
        updating = _updating(rules, rejections)
        touched = {row.id for row in changed}.union(self._rows.keys() - rows.keys())
        others = self._updating - touched
        if others and (updating or self._updating & touched):
            # Whether they fit together is for all of them to say.
            changed = [row for row in rows.values() if row.id in touched or row.id in others]
            rules, rejections = check(changed, self._specification, hosts, self._publisher)
            updating, others = _updating(rules, rejections), set()
        ids = rules.ids if isinstance(rules, CheckedRules) else [rule.id for rule in rules]
        live = {name: place for name, place in self._live.items() if name in rows}
        for row in changed:
            live.pop(row.id, None)
        live |= {name: (rules, at) for at, name in enumerate(ids)}
        rejected = {name: found for name, found in self._rejected.items() if name in rows}
        for row in changed:
            rejected.pop(row.id, None)
        rejected |= {rejection.id: rejection for rejection in rejections}
        gone = [name for name in self._live if name not in live]
        table = table_of_rules(rules, self._specification)
        change = self._compiler.update_table(ids, table, gone)
        self._hosts, self._rows, self._live, self._rejected = hosts, rows, live, rejected
        self._updating = others | updating
        return (
            _Rules([live[name] for name in rows if name in live]),
            [rejected[name] for name in rows if name in rejected],
            change.compiled,
        )


def _updating(rules: Sequence[CheckedRule], rejections: Sequence[Rejection]) -> set[str]:
    found: Iterable[CheckedRule] = rules
    if isinstance(rules, CheckedRules):
        trees = rules.trees
        found = (rules[at] for at, number in enumerate(rules.numbers) if number in trees)
    mixed = {r.id for r in rejections if r.code == "SUBSCRIPTION.MIXED_UPDATES"}
    return mixed.union(rule.id for rule in found if rule.updates)


class _Rules(Sequence[CheckedRule]):
    """Rules by where they are, so that those that nobody asks for stay texts."""

    def __init__(self, places: Sequence[_Place]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> CheckedRule: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CheckedRule]: ...
    def __getitem__(self, index: int | slice) -> CheckedRule | Sequence[CheckedRule]:
        if isinstance(index, slice):
            return _Rules(self._places[index])
        rules, at = self._places[index]
        return rules[at]
