"""Capacity of switches: entries beyond their limits, and trees that they may yet hold.

While batches may still use older versions, a switch holds old and new entries together, which may
be too many although each set fits by itself. Such a switch stays as it is, the others go on; the
new versions are not ready until all fits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from stackcast.udfs.errors import SwitchError
from stackcast.udfs.network.network import Network
from stackcast.udfs.switches.entry import GROUPS, SwitchEntry
from stackcast.udfs.switches.ordering import check_limits
from stackcast.udfs.switches.rollout import DesiredEntries
from stackcast.udfs.switches.stack_entries import label_table, positions_of, switch_entries


@dataclass(frozen=True)
class Limits:
    """Limits of one switch, as :func:`stackcast.udfs.switches.ordering.check_limits` takes them.

    sizes: entries that each table of its program can hold. max_rules, max_groups: entries of all
    tables together, and groups; None: not said.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    max_rules: int | None = None
    max_groups: int | None = None


def over_capacity(
    entries: Iterable[SwitchEntry], limits: Mapping[str, Limits]
) -> dict[str, list[str]]:
    """Returns the switches that cannot hold their entries, with a sentence for each limit."""
    found = {}
    for switch, own in _by_switch(entries).items():
        limit = limits.get(switch, Limits())
        beyond = check_limits(switch, own, limit.sizes, limit.max_rules, limit.max_groups)
        if beyond:
            found[switch] = beyond
    return found


def keep_standing(
    desired: DesiredEntries, switches: Collection[str], standing: Iterable[SwitchEntry]
) -> DesiredEntries:
    """Returns ``desired``, but that these switches keep the entries ``standing``, theirs so far.

    Of those, what is taken back goes all the same. A switch that has nothing yet is asked for all.
    """
    before = {s: own for s, own in _by_switch(standing).items() if s in switches}
    taken_back = set(desired.taken_back)
    newer = {(entry.switch, entry.key): entry for entry in desired.entries}
    entries = {key: entry for key, entry in newer.items() if key[0] not in before}
    for entry in (entry for own in before.values() for entry in own):
        key = entry.switch, entry.key
        kept = newer.get(key) if entry in taken_back else entry
        if kept is not None:
            entries[key] = kept
    return DesiredEntries([entries[key] for key in sorted(entries)], desired.taken_back)


def capacity_error(
    switch: str,
    beyond: Iterable[str],
    newest: Collection[SwitchEntry],
    desired: Collection[SwitchEntry],
) -> SwitchError:
    """Makes the error of a switch over its limits. newest, desired: entries of all switches."""
    own = sum(entry.switch == switch for entry in newest)
    more = sum(entry.switch == switch for entry in desired) - own
    advice = (
        (
            "revert the newest changes, wait until trees are retired and a batch has finished, "
            "and install again"
        )
        if more > 0
        else "reduce the number of its entries"
    )
    return SwitchError(
        "LIMIT",
        f"{'; '.join(beyond)}: {own} entries for the newest tables, {more} more for batches that "
        f"still use older versions. The switch was not changed: {advice}, or raise the limit",
        switch=switch,
    )


def tree_budgets(network: Network, limits: Mapping[str, Limits], most: int) -> dict[str, int]:
    """Returns how many trees each switch may hold: at most ``most``, and what its limits leave.

    A tree takes an entry in each of the tables that a pass looks labels up in. A switch whose
    program knows no labels, or that is not among ``limits``, holds none.
    """
    positions = {}
    for name, limit in limits.items():
        try:
            positions[name] = positions_of(limit.sizes)
        except SwitchError:
            positions[name] = 0
    found = dict.fromkeys(network.switches, 0)
    for number in sorted(set(positions.values()) - {0}):
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for entry in switch_entries(network, (), number):
            used[entry.switch][entry.table] += 1
        for name in network.switches:
            if positions.get(name) == number:
                found[name] = max(0, min(most, _free_entries(limits[name], used[name], number)))
    return found


def _free_entries(limit: Limits, used: Counter[str], positions: int) -> int:
    """Returns how many more trees the switch's tables can hold."""
    left = [
        limit.sizes[table] - used[table]
        for table in map(label_table, range(1, positions + 1))
        if limit.sizes.get(table, 0) > 0
    ]
    if limit.max_rules is not None:
        rules = sum(number for table, number in used.items() if table != GROUPS)
        left.append((limit.max_rules - rules) // positions)
    return min(left, default=1 << 30)


def _by_switch(entries: Iterable[SwitchEntry]) -> dict[str, list[SwitchEntry]]:
    found: dict[str, list[SwitchEntry]] = defaultdict(list)
    for entry in entries:
        found[entry.switch].append(entry)
    return found
