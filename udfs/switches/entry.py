"""What one switch should hold, one row of table ``switch_entries`` each: table entries and groups.

The same form for every P4 program: names of its P4Info, values as canonical bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from udfs.switches.match import canonical

__all__ = [
    "GROUPS",
    "Difference",
    "SwitchEntry",
    "canonical",
    "difference",
    "group_entry",
    "group_id",
    "replicas",
]

GROUPS = "multicast_group"
"""In place of a table's name: the entry is a multicast group of the packet replication engine."""

_REPLICATE = "replicate"
_PORT = "port"


@dataclass(frozen=True)
class SwitchEntry:
    """One table entry of one switch. Values are canonical P4Runtime bytes (:func:`canonical`).

    ``match`` holds ``(field, kind, value)``, ``params`` ``(name, value)``, both in the order of
    the P4Info. A value is that of `Match.joined`: low and high of a range, value and mask of a
    ternary, value and prefix length one after the other. A ternary that ignores its field, a range
    of all and a prefix of no bits are left out. ``priority`` is 0 where no match needs one.
    """

    switch: str
    table: str
    match: tuple[tuple[str, str, bytes], ...]
    action: str
    params: tuple[tuple[str, bytes], ...]
    priority: int = 0

    @property
    def key(self) -> str:
        """What makes the entry one of its switch: ``ingress.check_tree|label=4001`` (hex)."""
        fields = "|".join(f"{name}={value.hex()}" for name, _, value in sorted(self.match))
        return f"{self.table}|{fields}" + (f"|priority={self.priority}" if self.priority else "")


def group_entry(switch: str, group: int, ports: Iterable[tuple[int, int]]) -> SwitchEntry:
    """A multicast group as an entry; ``ports`` are replicas ``(egress port, instance)``.

    Its table is `GROUPS`. A parameter ``port`` is a replica of instance 0, ``port:3`` one of
    instance 3.
    """
    return SwitchEntry(
        switch,
        GROUPS,
        (("group", "exact", canonical(group)),),
        _REPLICATE,
        tuple(
            (f"{_PORT}:{instance}" if instance else _PORT, canonical(port))
            for instance, port in sorted((instance, port) for port, instance in ports)
        ),
    )


def group_id(entry: SwitchEntry) -> int:
    """The number of a group's entry."""
    return int.from_bytes(entry.match[0][2], "big")


def replicas(entry: SwitchEntry) -> list[tuple[int, int]]:
    """``(egress port, instance)`` of each replica of a group's entry."""
    return [
        (int.from_bytes(value, "big"), int(name.partition(":")[2] or 0))
        for name, value in entry.params
    ]


@dataclass(frozen=True)
class Difference:
    """What turns the held entries into the desired ones; ``delete`` holds held entries."""

    insert: tuple[SwitchEntry, ...]
    modify: tuple[SwitchEntry, ...]
    delete: tuple[SwitchEntry, ...]

    def __bool__(self) -> bool:
        """True if there is anything to write."""
        return bool(self.insert or self.modify or self.delete)


def difference(desired: Iterable[SwitchEntry], held: Iterable[SwitchEntry]) -> Difference:
    """Compare by ``(switch, key)``; an entry is modified if action or parameters differ.

    Each part keeps the order of the input it comes from.
    """
    wanted = _by_key(desired)
    present = _by_key(held)
    return Difference(
        tuple(entry for key, entry in wanted.items() if key not in present),
        tuple(e for key, e in wanted.items() if key in present and not _same(e, present[key])),
        tuple(entry for key, entry in present.items() if key not in wanted),
    )


def _by_key(entries: Iterable[SwitchEntry]) -> dict[tuple[str, str], SwitchEntry]:
    return {(entry.switch, entry.key): entry for entry in entries}


def _same(one: SwitchEntry, other: SwitchEntry) -> bool:
    # A switch that is read back may give parameters in another order.
    return one.action == other.action and sorted(one.params) == sorted(other.params)
