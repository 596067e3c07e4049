"""Table entries and groups of a switch, one row of table ``switch_entries`` each.

The same form for every P4 program: names of its P4Info, values as canonical bytes. A switch's own
side of P4Runtime has two more in this form: default actions (`default_entry`) and clone sessions
(`session_entry`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stackcast.udfs.network.rows import Row
from stackcast.udfs.switches.match import canonical

__all__ = [
    "DEFAULT",
    "GROUPS",
    "SESSIONS",
    "Difference",
    "SwitchEntry",
    "canonical",
    "default_entry",
    "difference",
    "group_entry",
    "group_id",
    "is_default",
    "replicas",
    "session_entry",
    "session_length",
]

GROUPS = "multicast_group"
"""In place of a table's name: the entry is a multicast group of the packet replication engine."""

SESSIONS = "clone_session"
"""In place of a table's name: the entry is a clone session of the packet replication engine."""

DEFAULT = "default"
"""Kind and name of the only match field of an entry that is a table's default action; its value is
empty, as no other match's is."""

_REPLICATE = "replicate"
_CLONE = "clone"
_PORT = "port"
_LENGTH = "length"


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
        """The key of the entry in its switch: ``ingress.label_1.look_up|label=4001`` (hex)."""
        fields = "|".join(f"{name}={value.hex()}" for name, _, value in sorted(self.match))
        return f"{self.table}|{fields}" + (f"|priority={self.priority}" if self.priority else "")


def group_entry(switch: str, group: int, ports: Iterable[tuple[int, int]]) -> SwitchEntry:
    """Makes a multicast group as an entry; ``ports`` are replicas ``(egress port, instance)``.

    Its table is `GROUPS`. A parameter ``port`` is a replica of instance 0, ``port:3`` one of
    instance 3.
    """
    match = (("group", "exact", canonical(group)),)
    return SwitchEntry(switch, GROUPS, match, _REPLICATE, _ports(ports))


def session_entry(
    switch: str, session: int, ports: Iterable[tuple[int, int]], length: int = 0
) -> SwitchEntry:
    """Makes a clone session as an entry of table `SESSIONS`; ``ports`` as of `group_entry`.

    ``length``: most bytes of a clone, 0 for all.
    """
    params = _ports(ports) + (((_LENGTH, canonical(length)),) if length else ())
    match = (("session", "exact", canonical(session)),)
    return SwitchEntry(switch, SESSIONS, match, _CLONE, params)


def default_entry(
    switch: str, table: str, action: str, params: Iterable[tuple[str, bytes]] = ()
) -> SwitchEntry:
    """Makes a table's default action as an entry: key ``<table>|default=``.

    Its one match field, `DEFAULT`, keeps it apart from an entry that matches all, whose ``match``
    is empty. Where an entry is taken away by its key, a switch has the program's own default again.
    """
    return SwitchEntry(switch, table, ((DEFAULT, DEFAULT, b""),), action, tuple(params))


def is_default(entry: SwitchEntry) -> bool:
    """Returns True for an entry of `default_entry`."""
    return len(entry.match) == 1 and entry.match[0][1] == DEFAULT


def group_id(entry: SwitchEntry) -> int:
    """Returns the number of a group's or of a clone session's entry."""
    return int.from_bytes(entry.match[0][2], "big")


def replicas(entry: SwitchEntry) -> list[tuple[int, int]]:
    """Returns ``(egress port, instance)`` of each replica of a group's or clone session's entry."""
    return [
        (int.from_bytes(value, "big"), int(name.partition(":")[2] or 0))
        for name, value in entry.params
        if name.startswith(_PORT)
    ]


def session_length(entry: SwitchEntry) -> int:
    """Returns the most bytes of a clone of a session's entry; 0 for all."""
    return sum(int.from_bytes(value, "big") for name, value in entry.params if name == _LENGTH)


def _ports(ports: Iterable[tuple[int, int]]) -> tuple[tuple[str, bytes], ...]:
    return tuple(
        (f"{_PORT}:{instance}" if instance else _PORT, canonical(port))
        for instance, port in sorted((instance, port) for port, instance in ports)
    )


@dataclass(frozen=True)
class Difference:
    """The updates that turn held entries into desired ones; ``delete`` are held entries."""

    insert: tuple[SwitchEntry, ...]
    modify: tuple[SwitchEntry, ...]
    delete: tuple[SwitchEntry, ...]

    def __bool__(self) -> bool:
        """Return whether there is anything to write."""
        return bool(self.insert or self.modify or self.delete)


def difference(desired: Iterable[SwitchEntry], held: Iterable[SwitchEntry]) -> Difference:
    """Compare entries by ``(switch, key)``.

    An entry is modified if its action or parameters differ. Each part of the result keeps the order
    of the input that it comes from.
    """
    desired, held = tuple(desired), tuple(held)
    if desired is held:
        return Difference((), (), ())
    desired_by_key = {_identity(entry): entry for entry in desired}
    held_by_key = {_identity(entry): entry for entry in held}
    return Difference(
        tuple(entry for key, entry in desired_by_key.items() if key not in held_by_key),
        tuple(
            entry
            for key, entry in desired_by_key.items()
            if key in held_by_key and not _same(entry, held_by_key[key])
        ),
        tuple(entry for key, entry in held_by_key.items() if key not in desired_by_key),
    )


def _identity(entry: SwitchEntry) -> tuple[object, ...]:
    """Return what ``(switch, key)`` of an entry stands for, which takes less time than its text."""
    match = entry.match if len(entry.match) < 2 else tuple(sorted(entry.match))
    return entry.switch, entry.table, match, entry.priority


def _same(a: SwitchEntry, b: SwitchEntry) -> bool:
    # A switch may return parameters in another order than they were written.
    same_params = a.params == b.params or sorted(a.params) == sorted(b.params)
    return a.action == b.action and same_params


def entry_to_row(entry: SwitchEntry) -> dict[str, Any]:
    return {
        "switch": entry.switch,
        "entry_key": entry.key,
        "table_name": entry.table,
        "match": [{"field": f, "kind": kind, "value": value} for f, kind, value in entry.match],
        "action": entry.action,
        "params": [{"name": name, "value": value} for name, value in entry.params],
        "priority": entry.priority,
    }


def entry_from_row(row: Row) -> SwitchEntry:
    return SwitchEntry(
        row["switch"],
        row["table_name"],
        tuple((m["field"], m["kind"], bytes(m["value"])) for m in row["match"]),
        row["action"],
        tuple((p["name"], bytes(p["value"])) for p in row["params"]),
        row["priority"],
    )
