"""Rows of the generic table as entries of ``attribute_value.p4``, and the groups they send to.

An attribute that a row does not ask for is in none of its match fields. So an entry says the same
however many attributes there are, and a new one leaves all as they are (KUNDEL V).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from zlib import crc32

from udfs.errors import FilterError
from udfs.messages.attributes.registry import BITS
from udfs.network.programs import EVENT
from udfs.network_match.generic.table import GenericRow
from udfs.switches.entry import GROUPS, SwitchEntry, group_entry, group_id, replicas
from udfs.switches.match import Match, canonical

SEND = "ingress.send_to_group"
DROP = "ingress.drop_event"
BITMASK = "bitmask"

MOST_GROUPS = (1 << 15) - 1
"""Numbers of groups are 1 to this: from 2^15 on, targets keep them for themselves."""

_ALL = (1 << BITS) - 1

Ports = tuple[int, ...]


def event_entries(
    switch: str, rows: Sequence[GenericRow], held: Iterable[SwitchEntry]
) -> list[SwitchEntry]:
    """Returns the groups, in ascending order of their numbers, then an entry for each row, in
    order.

    rows: with port numbers as text in ``receivers``. held: entries that the switch should hold so
    far, of any table; a set of ports that has a group there keeps it, so entries that send to that
    set stay as they are. Sets that no row sends to have no group.

    Raises FilterError ``TOO_LARGE``.
    """
    wanted = {ports for row in rows if (ports := _ports(row))}
    numbers = group_numbers(switch, wanted, held)
    groups = [
        group_entry(switch, number, [(port, 0) for port in ports])
        for ports, number in sorted(numbers.items(), key=lambda item: item[1])
    ]
    return groups + [_entry(switch, row, numbers) for row in rows]


def group_numbers(
    switch: str, wanted: Collection[Ports], held: Iterable[SwitchEntry]
) -> dict[Ports, int]:
    """Numbers each set of ports (ascending): the number it has, else a free one.

    A free number is sought from one on that follows from the set alone. So a set that comes back
    mostly has the number that it had, and a switch that was away for some versions does not meet
    a number of other ports, to which its entries would send for a moment.

    Raises FilterError ``TOO_LARGE``.
    """
    if len(wanted) > MOST_GROUPS:
        raise FilterError(
            "TOO_LARGE",
            f"switch {switch!r} would need a multicast group for each of {len(wanted)} sets of "
            f"ports, and there are {MOST_GROUPS} numbers: let fewer rules overlap, or spread their "
            "receivers over more switches",
            switch=switch,
        )
    known = {group_id(entry): _ports_of(entry) for entry in held if entry.table == GROUPS}
    numbers: dict[Ports, int] = {}
    for number, ports in sorted(known.items()):
        if ports in wanted and number <= MOST_GROUPS:
            numbers.setdefault(ports, number)
    new = sorted(set(wanted) - numbers.keys())
    taken = set(known)
    if len(taken) + len(new) > MOST_GROUPS:
        # Not enough beside those that go: better that some events go astray for a moment.
        taken = set(numbers.values())
    for ports in new:
        number = crc32(",".join(map(str, ports)).encode()) % MOST_GROUPS + 1
        while number in taken:
            number = number % MOST_GROUPS + 1
        numbers[ports] = number
        taken.add(number)
    return numbers


def _ports_of(group: SwitchEntry) -> Ports:
    """Returns the ports of a group as it is made here; none of any other."""
    copies = replicas(group)
    if any(instance for _, instance in copies):
        return ()
    return tuple(sorted(port for port, _ in copies))


def _ports(row: GenericRow) -> Ports:
    return tuple(sorted(map(int, row.receivers)))


def _entry(switch: str, row: GenericRow, numbers: Mapping[Ports, int]) -> SwitchEntry:
    fields = [Match(BITMASK, "ternary", canonical(row.bits), canonical(row.care))]
    for attribute, value, length in sorted(row.prefixes):
        mask = _ALL >> BITS - length << BITS - length
        name = f"value_{attribute}"
        fields.append(Match(name, "ternary", canonical(value & mask), canonical(mask)))
    # P4Runtime leaves a ternary match of no bits out.
    match = tuple((f.name, f.kind, f.joined()) for f in fields if f.other != b"\0")
    ports = _ports(row)
    if not ports:
        return SwitchEntry(switch, EVENT, match, DROP, (), row.priority)
    params = (("group", canonical(numbers[ports])),)
    return SwitchEntry(switch, EVENT, match, SEND, params, row.priority)
