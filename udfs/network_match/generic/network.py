"""The passes of all switches, where the switches match attribute/value events.

Each switch of the publishers' tree gets the entries of ``attribute_value.p4`` for the rules of the
hosts behind it (KUNDEL III-D).
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.subscriptions import CheckedRule, CheckedRules, Rejection
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.network.network import Network
from stackcast.udfs.network_match.filters import Filtered
from stackcast.udfs.network_match.generic.boxes import boxes_of
from stackcast.udfs.network_match.generic.cells import cells_of
from stackcast.udfs.network_match.generic.entries import event_entries
from stackcast.udfs.network_match.generic.passes import Limits, Passes, passes_of
from stackcast.udfs.network_match.generic.table import refused
from stackcast.udfs.network_match.refusals import rules_without
from stackcast.udfs.network_match.routing import ports_towards, refused_in_network, rules_of_switch
from stackcast.udfs.switches.entry import SwitchEntry


def header_widths(device_config: bytes) -> Widths | None:
    """Returns the widths of the headers that a program reads.

    ``device_config``: the bytes that the target loads. None if it is no BMv2 JSON: other targets do
    not say.
    """
    try:
        headers = json.loads(device_config)["header_types"]
        bits = {one["name"]: one["fields"][0][1] for one in headers if one["fields"]}
        return Widths(bits["first_id_h"], bits["bitmask_h"])
    except (ValueError, KeyError, TypeError, IndexError):
        return None


class AttributeFilters:
    """Makes entries from version to version, anew only where a switch's rules have changed.

    specification: of the rules, that of ``registry``. publisher: whose events are filtered, one or
    several as the setting names them. before: of a registry that had fewer attributes, with the
    same limits; what it has made is not made again.
    """

    def __init__(
        self,
        registry: Registry,
        publisher: str,
        limits: Limits | None = None,
        before: AttributeFilters | None = None,
    ) -> None:
        self.registry = registry
        self.specification = registry.specification()
        self._publisher = publisher
        self._limits = limits or Limits()
        self._made: dict[Hashable, Passes] = {} if before is None else before._made

    def entries(
        self,
        network: Network,
        rules: Sequence[CheckedRule],
        held: Mapping[str, Iterable[SwitchEntry]],
        edit: int = 0,
    ) -> Filtered:
        """Makes the filters of ``rules``; ``held``: entries that switches should hold so far, of
        any table; ``edit``: as of ``HeldCells``.

        If nothing has changed for a switch the result is the held entries, so it is not written.
        Rules that find no room on one switch are held by none, whatever was live before.
        Raises NetworkError UNKNOWN_HOST, NO_PUBLISHER, TOO_MANY_PORTS.
        """
        ports = ports_towards(network, self._publisher)
        rejections = refused(rules, self.registry)
        live = rules_without(rules, {r.id for r in rejections}, self.specification)
        beyond = refused_in_network(live, network, self._publisher)
        rejections += beyond
        live = rules_without(live, {r.id for r in beyond}, self.specification)
        made: dict[Hashable, Passes] = {}
        found: dict[str, Passes] = {}
        waiting = list(ports)
        while waiting:
            switch = waiting.pop(0)
            own = rules_of_switch(live, ports[switch], self.specification)
            found[switch] = self._passes(own, made)
            unfit = _with_any(own, found[switch], self.registry)
            if unfit:
                rejections += [_rejection(rule, switch, self._limits) for rule in unfit]
                live = rules_without(live, set(unfit), self.specification)
                # Switches that were looked at before may hold these rules, too.
                waiting = list(ports)
        self._made = made
        entries = {
            switch: event_entries(switch, found[switch].passes, held.get(switch, ()), edit)
            for switch in ports
        }
        passes = max((len(one.passes) for one in found.values()), default=1)
        return Filtered(entries, rejections, max(1, passes))

    def _passes(self, rules: Sequence[CheckedRule], made: dict[Hashable, Passes]) -> Passes:
        key = _known_by(rules)
        if key not in made:
            known = self._made.get(key)
            made[key] = known or passes_of(
                boxes_of(rules, self.registry), self._limits, cells_of(rules, self.registry)
            )
        return made[key]


def _with_any(rules: Sequence[CheckedRule], made: Passes, registry: Registry) -> list[str]:
    """Returns the ids of the rules with a term or a cell that found no room, in their order."""
    if not made.refused and not made.without:
        return []
    return [
        rule.id
        for rule in rules
        if any(
            (box.spans, port) in made.refused
            for box in boxes_of([rule], registry)
            for port in box.receivers
        )
        or any(one.cell.name in made.without for one in cells_of([rule], registry))
    ]


def _known_by(rules: Sequence[CheckedRule]) -> Hashable:
    """Returns a key of the table of rules; of many it parses none, as equal texts mean the same."""
    if isinstance(rules, CheckedRules):
        texts = (rules.texts[number] for number in rules.numbers)
        return frozenset(zip(texts, rules.receivers, strict=True))
    return frozenset((rule.condition, rule.receivers) for rule in rules)


def _rejection(rule: str, switch: str, limits: Limits) -> Rejection:
    fault = SubscriptionError(
        "NO_ROOM_ON_SWITCHES",
        f"the rules for hosts behind one port of {switch!r} need more terms than {limits.passes} "
        f"passes or the {limits.rows} rows of its generic table can hold, and this rule shares "
        "terms with the fewest other rules: compare an attribute with a single value, as other "
        "rules do, or let the stream match (spark.stackcast.match=spark)",
    )
    return Rejection(rule, fault.code, 1, 1, fault.message)
