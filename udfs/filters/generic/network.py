"""The generic tables of all switches, where the switches match attribute/value events.

Each switch of the publisher's tree gets the entries of ``attribute_value.p4`` for the rules of the
hosts behind it (KUNDEL III-D). Which entry wins follows from the matches alone, so an edit of the
rules touches only entries whose match comes, goes, or leads to other ports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from udfs.filters.generic.entries import event_entries
from udfs.filters.generic.table import WAYS, Way, generic_table, refused
from udfs.filters.subscriptions import CheckedRule
from udfs.filters.switch.network_filters import Filtered
from udfs.filters.switch.refusals import rules_without
from udfs.filters.switch.routing import ports_towards, rules_of_switch
from udfs.messages.attributes.registry import Registry
from udfs.switches.entry import SwitchEntry
from udfs.trees.network import Network


class AttributeFilters:
    """Makes entries from version to version; keeps nothing, as what is held says it all.

    specification: of the rules, that of ``registry``. publisher: the host whose events are
    filtered. ways: as for ``generic_table``.
    """

    def __init__(self, registry: Registry, publisher: str, ways: Sequence[Way] = WAYS) -> None:
        self.registry = registry
        self.specification = registry.specification()
        self._publisher = publisher
        self._ways = ways

    def entries(
        self,
        network: Network,
        rules: Sequence[CheckedRule],
        held: Mapping[str, Iterable[SwitchEntry]],
    ) -> Filtered:
        """The filters of ``rules``; ``held``: what switches should hold so far, whatever it is.

        Where nothing has changed for a switch the result is what it holds, so it is not written.
        Raises FilterError as ``generic_table`` and ``event_entries`` do, NetworkError UNKNOWN_HOST.
        """
        ports = ports_towards(network, self._publisher)
        rejections = refused(rules)
        live = rules_without(rules, {r.id for r in rejections}, self.specification)
        found: dict[str, list[SwitchEntry]] = {}
        for switch, behind in ports.items():
            own = rules_of_switch(live, behind, self.specification)
            table = generic_table(own, self.registry, ways=self._ways)
            found[switch] = event_entries(switch, table.rows, held.get(switch, ()))
        return Filtered(found, rejections)
