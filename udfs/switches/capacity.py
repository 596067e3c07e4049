"""Whether switches have room for what they should hold, and what those without it hold instead.

While batches may still use older versions, a switch holds old and new entries together, which may
be too many although each set fits by itself. Such a switch stays as it is, the others go on; the
new versions are not ready until it has room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from udfs.errors import SwitchError
from udfs.switches.entry import SwitchEntry
from udfs.switches.ordering import check_limits
from udfs.switches.rollout import Union


@dataclass(frozen=True)
class Limits:
    """Of one switch, as for :func:`udfs.switches.ordering.check_limits`."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    max_rules: int | None = None
    max_groups: int | None = None


def crowded(entries: Iterable[SwitchEntry], limits: Mapping[str, Limits]) -> dict[str, list[str]]:
    """Switches that cannot hold their entries, with what is beyond their limits."""
    found = {}
    for switch, own in _by_switch(entries).items():
        limit = limits.get(switch, Limits())
        beyond = check_limits(switch, own, limit.sizes, limit.max_rules, limit.max_groups)
        if beyond:
            found[switch] = beyond
    return found


def stay(union: Union, switches: Collection[str], standing: Iterable[SwitchEntry]) -> Union:
    """The union, but that these switches hold what is ``standing``: what they should hold so far.

    Of that, what the union takes back goes all the same. A switch that has nothing yet is asked for
    all.
    """
    before = {s: own for s, own in _by_switch(standing).items() if s in switches}
    taken_back = set(union.taken_back)
    newer = {(entry.switch, entry.key): entry for entry in union.entries}
    entries = {key: entry for key, entry in newer.items() if key[0] not in before}
    for entry in (entry for own in before.values() for entry in own):
        key = entry.switch, entry.key
        kept = newer.get(key) if entry in taken_back else entry
        if kept is not None:
            entries[key] = kept
    return Union([entries[key] for key in sorted(entries)], union.taken_back)


def no_room(
    switch: str,
    beyond: Iterable[str],
    newest: Collection[SwitchEntry],
    union: Collection[SwitchEntry],
) -> SwitchError:
    """What to tell of a switch without room. newest, union: entries of all switches."""
    own = sum(entry.switch == switch for entry in newest)
    more = sum(entry.switch == switch for entry in union) - own
    advice = (
        "take what is new out again, let trees retire first, and install when a batch has passed"
        if more > 0
        else "ask less of it"
    )
    return SwitchError(
        "LIMIT",
        f"{'; '.join(beyond)}: {own} entries for the newest tables, {more} more for batches that "
        f"still use older versions. The switch stays as it is: {advice}, or raise the limit",
        switch=switch,
    )


def _by_switch(entries: Iterable[SwitchEntry]) -> dict[str, list[SwitchEntry]]:
    found: dict[str, list[SwitchEntry]] = defaultdict(list)
    for entry in entries:
        found[entry.switch].append(entry)
    return found
