"""The compiled filters of all switches, where the switches match.

Each switch of the publishers' tree gets the entries of ``packet_subscriptions.p4`` for the rules of
the hosts behind it. A new set of rules is a new *generation*: its states have numbers that the old
ones have not, so all of its rows are installed beside the old, one row of table ``start`` moves the
events over, and only then the old rows go. No event ever sees a mixture in a switch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stackcast.udfs.filters.subscriptions import CheckedRule, Rejection
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.network_match.cell_tags import HeldCells
from stackcast.udfs.network_match.fitting import fitting_rules
from stackcast.udfs.network_match.layout import PREFIX, STATE_BITS, ProgramOptions, program_layout
from stackcast.udfs.network_match.refusals import refused_by_program, rules_without
from stackcast.udfs.network_match.routing import ports_towards, refused_in_network, rules_of_switch
from stackcast.udfs.network_match.values import TableEntry
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.match import canonical

START = f"{PREFIX}.start"

GENERATIONS = 256
"""Generations in turn: a switch that was away meets numbers that it holds after so many edits."""

_STATES = (1 << STATE_BITS) // GENERATIONS
"""The difference between states of one generation and of the next."""


_PORT_KEY = [{"type": "field", "value": ["udp", "dst_port"]}]
"""The key by which a parser in BMv2's JSON tells events from other traffic."""


@dataclass(frozen=True)
class Filtered:
    """Holds entries by switch, every switch of the tree, and rejections: rules no switch holds.

    passes: the most that an event takes in a switch.
    """

    entries: Mapping[str, Sequence[SwitchEntry]]
    rejections: Sequence[Rejection]
    passes: int = 1


class NetworkFilters:
    """Makes entries from version to version; cells of state keep their registers.

    Parameters
    ----------
    publisher: whose packets are filtered, one or several as the setting names them. options: those
    that the program was made with.
    """

    def __init__(
        self, specification: Specification, publisher: str, options: ProgramOptions | None = None
    ) -> None:
        self._specification = specification
        self._publisher = publisher
        self._program = program_layout(specification, options)

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
        A rule that one switch has no room for is refused alone, and held by no switch. Raises
        NetworkError UNKNOWN_HOST, NO_PUBLISHER.
        """
        ports = ports_towards(network, self._publisher)
        rejections = refused_by_program(rules, self._specification, self._program)
        unread = {rejection.id for rejection in rejections}
        live = rules_without(rules, unread, self._specification)
        beyond = refused_in_network(live, network, self._publisher)
        rejections += beyond
        live = rules_without(live, {r.id for r in beyond}, self._specification)
        cells = {switch: HeldCells.of(held.get(switch, ()), edit) for switch in ports}
        while True:
            made, passes = {}, 1
            without: dict[str, Rejection] = {}
            for switch, behind in ports.items():
                own = rules_of_switch(live, behind, self._specification)
                fitting = fitting_rules(
                    own, self._specification, self._program, switch, cells[switch]
                )
                made[switch] = fitting.entries
                passes = max(passes, fitting.passes)
                without |= {refused.id: refused for refused in fitting.rejections}
            if not without:
                break
            rejections += without.values()
            live = rules_without(live, set(without), self._specification)
        found = {
            switch: _next_generation(switch, entries.entries, held.get(switch, ()))
            for switch, entries in made.items()
        }
        return Filtered(found, rejections, passes)


def _next_generation(
    switch: str, made: Sequence[TableEntry], held: Iterable[SwitchEntry]
) -> list[SwitchEntry]:
    """Puts ``made`` in the generation that is held if it is just that, else in the next one."""
    present = {entry.key: entry for entry in held if entry.table.startswith(f"{PREFIX}.")}
    start = next((entry for entry in present.values() if entry.table == START), None)
    generation = 0 if start is None else int.from_bytes(start.params[0][1], "big") // _STATES
    same = [_raised(switch, entry, generation * _STATES) for entry in made]
    if start is None or {entry.key: entry for entry in same} == present:
        return same
    following = (generation + 1) % GENERATIONS
    return [_raised(switch, entry, following * _STATES) for entry in made]


def _raised(switch: str, entry: TableEntry, by: int) -> SwitchEntry:
    """Returns the entry with states whose numbers are ``by`` larger."""
    match = tuple(
        replace(field, value=_more(field.value, by)) if field.name == "state" else field
        for field in entry.match
    )
    params = entry.params
    if entry.action.endswith((".set_state", ".set_next")):
        params = tuple((name, _more(value, by)) for name, value in params)
    return replace(entry, match=match, params=params).on(switch)


def _more(value: bytes, by: int) -> bytes:
    return canonical(int.from_bytes(value, "big") + by)


def event_ports(device_config: bytes) -> set[int]:
    """Returns the UDP ports by which the parser of a program tells events from other traffic.

    ``device_config``: the bytes that the target loads. Empty if it is no BMv2 JSON, or its parser
    asks for no port: other targets do not say.
    """
    try:
        parsers = json.loads(device_config)["parsers"]
        return {
            int(transition["value"], 16)
            for parser in parsers
            for state in parser["parse_states"]
            if state["transition_key"] == _PORT_KEY
            for transition in state["transitions"]
            if transition["type"] == "hexstr"
        }
    except (ValueError, KeyError, TypeError):
        return set()
