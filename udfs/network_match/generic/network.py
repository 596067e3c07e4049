"""The generic tables of all switches, where the switches match attribute/value events.

Each switch of the publisher's tree gets the entries of ``attribute_value.p4`` for the rules of the
hosts behind it (KUNDEL III-D). Which entry wins follows from the matches alone, so an edit of the
rules touches only entries whose match comes, goes, or leads to other ports.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import prod

from udfs.errors import FilterError, SubscriptionError
from udfs.filters.subscriptions import CheckedRule, CheckedRules, Rejection
from udfs.messages.attributes.registry import Registry
from udfs.network.network import Network
from udfs.network_match.filters import Filtered
from udfs.network_match.generic.boxes import boxes_of, prefixes_of
from udfs.network_match.generic.entries import event_entries
from udfs.network_match.generic.table import (
    MAX_ROWS,
    WAYS,
    GenericTable,
    Way,
    generic_table,
    refused,
)
from udfs.network_match.refusals import rules_without
from udfs.network_match.routing import ports_towards, rules_of_switch
from udfs.switches.entry import SwitchEntry

_FAILURES = 8
"""Tables beyond the limit that are begun for a switch: each may take seconds."""


class AttributeFilters:
    """Makes entries from version to version, anew only where a switch's rules have changed.

    specification: of the rules, that of ``registry``. publisher: the host whose events are
    filtered. ways, max_rows: as for ``generic_table``. before: of a registry that had fewer
    attributes, with the same ways and limit; what it has made is not made again.
    """

    def __init__(
        self,
        registry: Registry,
        publisher: str,
        ways: Sequence[Way] = WAYS,
        max_rows: int = MAX_ROWS,
        before: AttributeFilters | None = None,
    ) -> None:
        self.registry = registry
        self.specification = registry.specification()
        self._publisher = publisher
        self._ways = ways
        self._max_rows = max_rows
        self._tables: dict[Hashable, GenericTable | None] = {} if before is None else before._tables

    def entries(
        self,
        network: Network,
        rules: Sequence[CheckedRule],
        held: Mapping[str, Iterable[SwitchEntry]],
    ) -> Filtered:
        """Makes the filters of ``rules``; ``held``: entries that switches should hold so far, of
        any table.

        If nothing has changed for a switch the result is the held entries, so it is not written.
        Rules that do not fit a switch beside the others are rejected: those that take most rows by
        themselves, so that the choice does not depend on the rules that were there before.
        Raises FilterError as ``event_entries`` does, NetworkError UNKNOWN_HOST.
        """
        ports = ports_towards(network, self._publisher)
        rejections = refused(rules)
        live = rules_without(rules, {r.id for r in rejections}, self.specification)
        made: dict[Hashable, GenericTable | None] = {}
        tables: dict[str, GenericTable] = {}
        waiting = list(ports)
        while waiting:
            switch = waiting.pop(0)
            own = rules_of_switch(live, ports[switch], self.specification)
            table = self._table(own, made)
            if table is None:
                unfit = self._unfit(own, made)
                rejections += [_rejection(rule.id, switch, self._max_rows) for rule in unfit]
                live = rules_without(live, {rule.id for rule in unfit}, self.specification)
                # Switches that were looked at before may hold these rules, too.
                waiting = list(ports)
                continue
            tables[switch] = table
        self._tables = made
        found = {
            switch: event_entries(switch, tables[switch].rows, held.get(switch, ()))
            for switch in ports
        }
        return Filtered(found, rejections)

    def _table(
        self, rules: Sequence[CheckedRule], made: dict[Hashable, GenericTable | None]
    ) -> GenericTable | None:
        """Returns the table of rules, None if it is beyond the limit."""
        key = _known_by(rules)
        if key not in made:
            if key in self._tables:
                made[key] = self._tables[key]
            else:
                made[key] = self._new_table(rules)
        return made[key]

    def _new_table(self, rules: Sequence[CheckedRule]) -> GenericTable | None:
        try:
            return generic_table(rules, self.registry, max_rows=self._max_rows, ways=self._ways)
        except FilterError:
            return None

    def _unfit(
        self, rules: Sequence[CheckedRule], made: dict[Hashable, GenericTable | None]
    ) -> list[CheckedRule]:
        """Returns the rules to leave out so that the others fit: by halves, the cheapest first.

        After some tries all that are left go, so that the end of an edit is in sight.
        """
        failures = 0
        admitted: list[CheckedRule] = []
        out: list[CheckedRule] = []
        waiting = [sorted(rules, key=lambda rule: (self._cost(rule), rule.id))]
        while waiting:
            part = waiting.pop(0)
            if failures < _FAILURES and self._table([*admitted, *part], made) is not None:
                admitted += part
                continue
            failures += 1
            if len(part) == 1 or failures >= _FAILURES:
                out += part
            else:
                waiting[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]
        return out

    def _cost(self, rule: CheckedRule) -> int:
        """Counts the rows of a rule if there were no others."""
        boxes = boxes_of([rule], self.registry)
        return sum(prod(len(prefixes_of(values)) for _, values in box.spans) for box in boxes)


def _known_by(rules: Sequence[CheckedRule]) -> Hashable:
    """Returns a key of the table of rules; of many it parses none, as equal texts mean the same."""
    if isinstance(rules, CheckedRules):
        texts = (rules.texts[number] for number in rules.numbers)
        return frozenset(zip(texts, rules.receivers, strict=True))
    return frozenset((rule.condition, rule.receivers) for rule in rules)


def _rejection(rule: str, switch: str, most: int) -> Rejection:
    fault = SubscriptionError(
        "NO_ROOM_ON_SWITCHES",
        f"switch {switch!r} has room for {most} rows of the generic table, and this rule would "
        "need more beside the others: rules that ask for different attributes multiply, so let it "
        "name one that parts events, as others do, or use limits of fewer prefixes; or let the "
        "stream match (spark.stackcast.match=spark)",
    )
    return Rejection(rule, fault.code, 1, 1, fault.message)
